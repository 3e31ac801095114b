"""Conversion of a `config.data` of any version from 2.7 to 3.1 to the form of 3.0; pure.

Differences: nodes and instances had references by name until 2.8, disks were inside of instances until 2.12 (with a
`physical_id`, and other words for their types until 2.8), the template was the instance's until 2.13, policies
had one `min` and `max` until 2.8, filters came with 2.13, disks have `nodes` since 2.14. Missing UUIDs are derived
from those of the owner, so that a file always yields the same ones.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.upstream.shapes import check_shapes

Document = dict[str, Any]

OLDEST, NEWEST_2, NEWEST = (2, 7), (2, 17), (3, 1)
VERSION_3_0 = 3_000_000
_MAJOR, _MINOR = 1_000_000, 10_000
TABLES = ("nodes", "nodegroups", "instances", "disks", "networks", "filters")
NEVER_WITHOUT = ("nodes", "nodegroups", "instances")
"""Tables that each of these versions has."""
NEW_TYPES = {"lvm": "plain", "drbd8": "drbd"}
DRBD_NODES = 2
"""A mirrored disk names its two nodes first."""
LARGEST = 256 << 20
"""The limit of a file in bytes; 10,000 instances need a tenth of it."""
_DERIVED = uuid.UUID("0e56f1c3-5a86-5a49-9a3c-6c0e0d9f7b21")


def parse(data: bytes) -> Document:
    """Parse a file as a document in the form of 3.0; InputError says why it is not one."""
    document = _json(data)
    if not isinstance(document, dict) or not isinstance(document.get("cluster"), dict):
        raise InputError("this is not a config.data of Ganeti: it has no cluster", "configuration")
    _check_version(document.get("version"))
    for name in TABLES:
        if name in NEVER_WITHOUT and name not in document:
            raise InputError(
                f"this is not a config.data of Ganeti: it has no {name}", "configuration"
            )
        table = document.setdefault(name, {})
        if not isinstance(table, dict) or not all(isinstance(one, dict) for one in table.values()):
            raise InputError("must have objects by their keys", name)
    check_shapes(document)
    with damage_named("configuration"):
        return in_form_of_3_0(document)


def version_of(data: bytes) -> int:
    """Return the number of a file's version, as VERSION_3_0; InputError says why it has none."""
    document = _json(data)
    version = document.get("version") if isinstance(document, dict) else None
    _check_version(version)
    return int(version or 0)


def _json(data: bytes) -> Any:
    try:
        return wire.parse_foreign(data, what="configuration")
    except InputError as err:
        why = err.message.removeprefix(f"{err.field}: ")
        raise InputError(f"this is not a config.data of Ganeti: {why}", "configuration") from err


@contextmanager
def damage_named(what: str) -> Iterator[None]:
    """Report a malformed part as InputError, not as an error of this program."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as err:
        raise InputError(f"is damaged: {err}", what) from err


def _check_version(version: Any) -> None:
    if not isinstance(version, int):
        raise InputError("this is not a config.data of Ganeti: it has no version", "version")
    found = version // _MAJOR, version % _MAJOR // _MINOR
    if not (OLDEST <= found <= NEWEST_2 or (3, 0) <= found <= NEWEST):
        raise InputError(
            f"is {found[0]}.{found[1]}; versions 2.7 to 3.1 can be read: update an older file with"
            " cfgupgrade of such a version",
            "version",
        )


def derived_uuid(owner: str, part: str) -> str:
    """Return the UUID of a part without one in the file."""
    return str(uuid.uuid5(_DERIVED, f"{owner} {part}"))


def in_form_of_3_0(document: Document) -> Document:
    """Return the same configuration; the document itself is consumed."""
    new = dict(document)
    nodes = _by_uuid(document["nodes"], "node")
    keys = {key: node["uuid"] for key, node in document["nodes"].items()}
    keys |= {node.get("name"): uuid for uuid, node in nodes.items()}
    networks = {one.get("name"): one.get("uuid", key) for key, one in document["networks"].items()}
    new["nodes"] = nodes
    new["cluster"] = _cluster(document["cluster"], keys)
    for name in ("nodegroups", "networks", "filters"):
        new[name] = {key: _with_uuid(name, key, one) for key, one in document[name].items()}
    for group in new["nodegroups"].values():
        group["ipolicy"] = _policy(group.get("ipolicy"), new["cluster"]["ipolicy"], of_group=True)
    disks = {
        key: _disk(_with_uuid("disks", key, disk), keys) for key, disk in document["disks"].items()
    }
    new["instances"] = {
        uuid: _instance(instance, keys, networks, disks)
        for uuid, instance in _by_uuid(document["instances"], "instance").items()
    }
    new["disks"] = disks
    return new


def _with_uuid(table: str, key: str, one: Document) -> Document:
    """Return the object with its UUID."""
    if one.get("uuid") not in (None, key):
        raise InputError(f"{one['uuid']!r:.80} is stored under the UUID {key!r:.80}", table)
    return {**one, "uuid": key}


def _by_uuid(table: Mapping[str, Document], kind: str) -> dict[str, Document]:
    for key, one in table.items():
        if not isinstance(one.get("uuid"), str):
            raise InputError(f"{kind} {key!r:.80} has no UUID", f"{kind}s")
    found: dict[str, Document] = {}
    for key, one in table.items():
        if (other := found.setdefault(one["uuid"], one)) is not one:
            raise InputError(f"{kind} {key!r:.80} has the UUID of {other.get('name')}", f"{kind}s")
    return {uuid: dict(one) for uuid, one in found.items()}


def _cluster(cluster: Document, keys: Mapping[Any, str]) -> Document:
    master = cluster.get("master_node")
    return {
        **cluster,
        "master_node": keys.get(master, master),
        "ipolicy": _policy(cluster.get("ipolicy"), None, of_group=False),
    }


def _policy(given: Any, of_cluster: Document | None, *, of_group: bool) -> Document:
    policy = {name: value for name, value in dict(given or {}).items() if value not in ({}, None)}
    bounds = {end: policy.pop(end) for end in ("min", "max") if end in policy}
    if of_group:
        policy.pop("std", None)
    if bounds:
        below = ((of_cluster or {}).get("minmax") or [{}])[0]
        policy["minmax"] = [
            {end: {**below.get(end, {}), **bounds.get(end, {})} for end in ("min", "max")}
        ]
    return policy


def _instance(
    instance: Document,
    nodes: Mapping[Any, str],
    networks: Mapping[Any, str],
    disks: dict[str, Document],
) -> Document:
    uuid, primary = instance["uuid"], instance.get("primary_node")
    given = instance.get("disks") or []
    inside = [
        (number, one) for number, one in enumerate(_objects(given)) if not isinstance(one, str)
    ]
    known = [one for one in given if isinstance(one, str)]
    for number, disk in inside:
        made = _disk({"uuid": derived_uuid(uuid, f"disk/{number}"), **disk}, nodes)
        # The word "file" once denoted both templates in files.
        if made["dev_type"] == "file" and instance.get("disk_template") == "sharedfile":
            made["dev_type"] = "sharedfile"
        disks[made["uuid"]] = made
        known.append(made["uuid"])
    return {
        **instance,
        "primary_node": nodes.get(primary, primary),
        "disks": known,
        "nics": [
            _nic({"uuid": derived_uuid(uuid, f"nic/{number}"), **nic}, networks)
            for number, nic in enumerate(_objects(instance.get("nics") or []))
        ],
    }


def _objects(given: Iterable[Any]) -> list[Any]:
    found = list(given)
    if not all(isinstance(one, dict | str) for one in found):
        raise InputError("disks and interfaces must be objects", "instances")
    return found


def _nic(nic: Document, networks: Mapping[Any, str]) -> Document:
    network = nic.get("network")
    return {**nic, "network": networks[network]} if network in networks else nic


def _disk(disk: Document, nodes: Mapping[Any, str]) -> Document:
    kind = disk.get("dev_type")
    words = list(disk.get("logical_id") or ())
    new = {key: value for key, value in disk.items() if key != "physical_id"}
    new["dev_type"] = NEW_TYPES.get(str(kind), kind)
    if new["dev_type"] == "drbd":
        words[:DRBD_NODES] = [nodes.get(one, one) for one in words[:DRBD_NODES]]
    new["logical_id"] = words
    if disk.get("children"):
        new["children"] = [
            _disk({"uuid": derived_uuid(str(disk.get("uuid")), f"child {number}"), **child}, nodes)
            for number, child in enumerate(disk["children"])
        ]
    return new
