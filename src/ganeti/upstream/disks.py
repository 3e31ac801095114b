"""Import and export of disks.

The `logical_id` of upstream's mirrored disks names nodes, port, minors and secret, and the volumes have the same
names on both nodes. Here all parts share the port, each node has its own parts, and volumes that were created here
have different names on each node.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import is_uuid, plain_name
from ganeti.model import wire
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES, PLAIN, RAW, TEMPLATES, disk_format
from ganeti.model.objects import DetachedDisk, Disk, Instance, InstanceUuid, NodeUuid
from ganeti.model.params import Params, layered
from ganeti.upstream.choices import Reading
from ganeti.upstream.forms import Document
from ganeti.upstream.report import Judge
from ganeti.upstream.stored import read_stored, written_stored

_READ = {
    *("spindles", "uuid", "dev_type", "logical_id", "children", "size", "mode", "params", "name"),
    *("iv_name", "nodes", "serial_no", "ctime", "mtime", "dynamic_params"),
}
_SLOTS = {"pci", "hvinfo"}
"""Positions of devices in a running guest; the next start assigns new ones."""
_STRIPES = ("data-stripes", "meta-stripes")
"""Parameters of the volumes below a mirrored disk."""
_NOT_IN_PARAMS = ("vg", "thin_pool", "pool", "provider", "stripes", "spindles", "format")
"""The part that upstream stores in the `logical_id` or in the parameters of the cluster."""
_SECRET_CHARACTERS = 64
_MODES = ("rw", "ro")
_PORTS, _MINORS = range(1, 1 << 16), range(1 << 20)

Layers = Callable[[str], Params]
"""Template -> its parameters for the disk, all layers together."""


class NotOurs(InputError):
    """A disk that this implementation does not support."""


def read_disk(reading: Reading, what: str, given: Document, layers: Layers) -> Disk:
    """Return one disk; NotOurs if this implementation does not support it."""
    kind = str(given.get("dev_type"))
    if kind not in DISK_TEMPLATES:
        raise NotOurs(f"disks of the kind {kind} are not supported")
    if any(not is_uuid(str(one.get("uuid"))) for one in (given, *(given.get("children") or ()))):
        raise NotOurs("a disk, or a part of one, has no UUID")
    if (mode := given.get("mode") or "rw") not in _MODES:
        raise NotOurs(f"{mode!r:.60} must be {' or '.join(_MODES)}", "mode")
    reading.rest(what, given, _READ | _SLOTS)
    checked = reading.params(
        what, "params", given.get("params"), lambda one: check_disk_params(kind, one, "")
    )
    own = {name: value for name, value in checked.items() if name not in _STRIPES}
    row = DISK_TEMPLATES[kind]
    if given.get("spindles") and "spindles" not in row.own_params:
        reading.keep(what, "spindles", f"a disk of {kind} has none here")
    parts = _mirrored if row.mirrored else _single
    disk: Disk = wire.convert(
        {
            "uuid": given.get("uuid"),
            "size": given.get("size"),
            "template": kind,
            "mode": mode,
            "name": device_name(reading, what, given),
            "params": own,
            **parts(given, layers),
        },
        Disk,
        what=what,
    )
    return disk


def device_name(reading: Reading, what: str, given: Document) -> str | None:
    """Return the name of a disk or an interface, if it has one."""
    name = given.get("name") or None
    try:
        return name and plain_name(name, "name")
    except InputError as err:
        reading.unknown(what, "name", err.message)
        return None


def _single(given: Document, layers: Layers) -> dict[str, Any]:
    kind, words = given["dev_type"], given.get("logical_id")
    row, form = DISK_TEMPLATES[kind], DISK_TEMPLATES[kind].disk_id
    if not isinstance(words, list) or len(words) != 2 or not all(isinstance(w, str) for w in words):  # noqa: PLR2004 - driver and name
        raise NotOurs(f"{words!r:.80} does not name a disk of {kind}")
    first, second = words
    if form.root and not form.is_path(second):
        raise NotOurs(f"{second!r:.200} is not a path below {form.root}")
    if not form.root:
        form.checked_name(second, "logical_id")
    # Parameters that upstream reads from the cluster are stored with the disk here.
    own: Params = {
        name: str(layers(kind)[name])
        for name in row.fixed_params
        if name in row.params and name != form.param
    }
    if form.param:
        own[form.param] = form.checked_name(first, "logical_id")
    if (
        "spindles" in row.own_params
        and isinstance(given.get("spindles"), int)
        and given["spindles"] > 0
    ):
        own["spindles"] = given["spindles"]
    params = {**(given.get("params") or {}), **own}
    return {"logical_id": (form.driver or first, second), "params": params}


def _mirrored(given: Document, layers: Layers) -> dict[str, Any]:
    match given.get("logical_id"), given.get("children"):
        case [
            [str(first), str(second), int(port), int(minor), int(other), str(secret)],
            [{"dev_type": "plain"} as data, {"dev_type": "plain"} as meta],
        ] if (
            port in _PORTS
            and minor in _MINORS
            and other in _MINORS
            and secret.isalnum()
            and len(secret) <= _SECRET_CHARACTERS
            and first != second
        ):
            params = layers("drbd")
            below = [
                _volume(one, (first, second), int(params[name]))
                for one, name in zip((data, meta), _STRIPES, strict=True)
            ]
            return {
                "logical_id": (port,),
                "parts": {first: (minor,), second: (other,)},
                "children": below,
                "secret": secret,
                "imported": True,
            }
    raise NotOurs("must be two nodes, a port, two minors and a secret over two volumes")


def _volume(given: Document, nodes: Iterable[str], stripes: int) -> Document:
    words = given.get("logical_id") or ()
    if len(words) != 2 or not all(isinstance(word, str) for word in words):  # noqa: PLR2004 - group and name
        raise NotOurs(f"{words!r:.80} does not name a volume")
    group, volume = (PLAIN.disk_id.checked_name(word, "logical_id") for word in words)
    return {
        "uuid": given.get("uuid"),
        "size": given.get("size"),
        "template": PLAIN.name,
        "parts": dict.fromkeys(nodes, (group, volume)),
        "params": {"vg": group, "stripes": stripes},
    }


def disk_layers(
    of_cluster: Mapping[str, Params], of_group: Mapping[str, Params]
) -> Callable[[str], Params]:
    """Return the parameters of a template, with our defaults below those of cluster and group."""

    def layers(name: str) -> Params:
        return layered(TEMPLATES[name].params, of_cluster.get(name, {}), of_group.get(name, {}))

    return layers


def written_disk(
    judge: Judge, instance: Instance, index: int, names: Mapping[NodeUuid, str]
) -> Document:
    """Return a disk in the form of 3.0."""
    disk = instance.disks[index]
    nodes = _nodes_of(instance, disk)
    found = {
        **_written_layer(disk, nodes, instance),
        "iv_name": f"disk/{index}",
        "mode": disk.mode,
        "logical_id": list(disk.logical_id),
    }
    if disk.name is not None:
        found["name"] = disk.name
    if disk_format(disk.template, disk.params) != RAW:
        judge.refuse(
            f"instance {instance.name}",
            f"disk {index}",
            "it is a qcow2 image, which upstream Ganeti would give to the guest as raw data",
            "replace it by a disk with format=raw",
        )
    if "spindles" in disk.params:
        found["spindles"] = disk.params["spindles"]
    if DISK_TEMPLATES[disk.template].mirrored:
        minors = [disk.part(node)[0] for node in nodes]
        found["logical_id"] = [*nodes, disk.logical_id[0], *minors, disk.secret]
        found["children"] = [
            {**_written_layer(child, nodes, instance), "logical_id": list(child.part(nodes[0]))}
            for child in disk.children
        ]
        for child in disk.children:
            _judge_names(judge, f"instance {instance.name}", child, nodes, names)
    return found


def written_detached(
    judge: Judge, detached: DetachedDisk, names: Mapping[NodeUuid, str]
) -> Document:
    """Return a disk without an instance, in the form of 3.0."""
    nodes = detached.nodes or (NodeUuid(""),)
    last = Instance(
        uuid=InstanceUuid(""),
        name=detached.last_instance,
        primary_node=nodes[0],
        ctime=detached.ctime,
        disks=(detached.disk,),
    )
    found = written_disk(judge, last, 0, names)
    del found["iv_name"]
    found |= {"nodes": list(detached.nodes), **written_stored(detached)}
    del found["tags"]  # a disk of upstream has none
    return found


def read_detached(reading: Reading, given: Document, layers: Layers) -> DetachedDisk | None:
    """Return a disk without an instance; None if this implementation does not support it, which is reported."""
    what = f"disk {given.get('name') or given.get('uuid')}"
    try:
        disk = read_disk(reading, what, given, layers)
    except NotOurs as err:
        reading.unknown(what, "logical_id", err.message)
        return None
    nodes = tuple(NodeUuid(str(node)) for node in given.get("nodes") or ())
    is_shared = DISK_TEMPLATES[disk.template].shared
    if not nodes and not is_shared:
        reading.refuse(what, "nodes", "does not name its node")
    stored = read_stored(reading, what, given)
    return DetachedDisk(**stored, name=disk.name or "", disk=disk, nodes=() if is_shared else nodes)


def _written_layer(layer: Disk, nodes: list[NodeUuid], instance: Instance) -> Document:
    return {
        "uuid": layer.uuid,
        "dev_type": layer.template,
        "size": layer.size,
        "params": {
            name: value for name, value in layer.params.items() if name not in _NOT_IN_PARAMS
        },
        "nodes": list(nodes),
        "serial_no": 1,
        "ctime": instance.ctime,
        "mtime": instance.ctime,
    }


def _nodes_of(instance: Instance, disk: Disk) -> list[NodeUuid]:
    if DISK_TEMPLATES[disk.template].shared:
        return []
    others = [node for node in disk.parts if node != instance.primary_node]
    return [instance.primary_node, *others]


def _judge_names(
    judge: Judge, what: str, volume: Disk, nodes: list[NodeUuid], names: Mapping[NodeUuid, str]
) -> None:
    """Report volumes with different names on the two nodes: upstream needs one name."""
    first = volume.part(nodes[0])
    for node in nodes[1:]:
        group, old = volume.part(node)
        if (group, old) == first:
            continue
        judge.change(
            what,
            "disks",
            f"its volume {group}/{old} on {names[node]} must have the name {first[1]} there",
            f"before upstream Ganeti starts, on {names[node]}: lvrename {group} {old} {first[1]}",
        )
        if group != first[0]:
            judge.refuse(
                what, "disks", f"its volumes are in {first[0]} and {group}, not in one group"
            )
