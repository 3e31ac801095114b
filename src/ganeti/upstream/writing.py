"""Convert objects to a document in the form of 3.0, with a report of every decision."""

from collections.abc import Iterable, Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.backup_key import BackupKey
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.model.job_filter import JobFilter
from ganeti.model.objects import Cluster, DetachedDisk, Image, Instance, Network, Node, NodeGroup
from ganeti.model.stored import Stored
from ganeti.model.webhook import Webhook
from ganeti.upstream.choices import Choices
from ganeti.upstream.clusters import written_cluster
from ganeti.upstream.disks import written_detached
from ganeti.upstream.forms import TABLES, VERSION_3_0, Document
from ganeti.upstream.hypervisors import own_layers
from ganeti.upstream.instances import written_instance
from ganeti.upstream.networks import written_network
from ganeti.upstream.nodes import apart, written_filter, written_group, written_node
from ganeti.upstream.reading import translate
from ganeti.upstream.report import Judge, Report
from ganeti.upstream.stored import KIND_WORDS

PORTS = range(11000, 15000)
"""The ports that upstream assigns."""
_PORT_WORD = 2
"""The position of the port in the `logical_id` of a mirrored disk."""
_NOWHERE = object()


def document_of(
    objects: Iterable[Stored], original: Document | None = None, *, keep_unknown: bool = False
) -> tuple[Document, Report]:
    """Return a configuration for upstream.

    With the imported document (`forms.parse`), everything that has not changed since is written as it was there, and
    fields without a meaning here are written again.
    """
    judge = Judge(keep_unknown=keep_unknown)
    objects = tuple(objects)
    new = _written(judge, objects)
    if original is not None:
        theirs, ours = original["cluster"].get("uuid"), new["cluster"]["uuid"]
        if theirs != ours:
            raise InputError(
                f"belongs to another cluster ({theirs}, not {ours}): pass the file of the takeover",
                "original",
            )
        before = translate(original, Choices(keep_unknown=True))
        old = _written(Judge(keep_unknown=True), _as_imported(before.objects, objects))
        new = merged(original, old, new)
    _number_ports(judge, new)
    new["version"] = VERSION_3_0
    new["serial_no"] = max(new.get("serial_no") or 0, new["cluster"].get("serial_no") or 0) + 1
    return new, judge.report


def _as_imported(before: Iterable[Stored], objects: Iterable[Stored]) -> tuple[Stored, ...]:
    """Return upstream's objects as the import made them: nodes that have not joined since are separate."""
    waiting = {one.uuid for one in objects if isinstance(one, Node) and not one.certificate}
    return tuple(
        apart(one) if isinstance(one, Node) and one.uuid in waiting else one for one in before
    )


def _written(judge: Judge, objects: tuple[Stored, ...]) -> Document:
    clusters = [one for one in objects if isinstance(one, Cluster)]
    if len(clusters) != 1:
        raise InputError(
            f"the document has {len(clusters)} clusters instead of one", "configuration"
        )
    (cluster,) = clusters
    groups = {one.uuid: one for one in objects if isinstance(one, NodeGroup)}
    nodes = {one.uuid: one for one in objects if isinstance(one, Node)}
    names = {uuid: node.name for uuid, node in nodes.items()}
    new: Document = {
        "ctime": cluster.ctime,
        "mtime": cluster.mtime,
        "cluster": written_cluster(judge, cluster),
        **{table: {} for table in TABLES},
    }
    instances = [one for one in objects if isinstance(one, Instance)]
    new["cluster"]["enabled_user_shutdown"] = any(
        layer.get("user_shutdown")
        for name in HYPERVISORS
        for layer in own_layers(cluster, instances, name)
    )
    for instance in instances:
        node = nodes.get(instance.primary_node)
        group = groups.get(node.group) if node else None
        found, disks = written_instance(judge, instance, group, names)
        new["instances"][instance.uuid] = found
        new["disks"].update(disks)
    for detached in objects:
        if isinstance(detached, DetachedDisk):
            new["disks"][detached.uuid] = written_detached(judge, detached, names)
    _write_others(judge, new, objects, _addresses_of(instances))
    judge.report.count(KIND_WORDS[type(one)] for one in objects if type(one) in KIND_WORDS)
    return new


_UNKNOWN_THERE: Mapping[type[Stored], tuple[str, str, str]] = {
    BackupSchedule: ("schedule", "calendar", "upstream Ganeti has no schedules of backups"),
    BackupKey: ("backup key", "secret", "upstream Ganeti has no encrypted backups"),
    Webhook: ("webhook", "url", "upstream Ganeti has no webhooks"),
    Image: ("image", "", "upstream Ganeti has no images; its copies stay on the nodes"),
}
"""What upstream's configuration cannot hold -> its word, its main field, and why."""


def _write_others(
    judge: Judge, new: Document, objects: tuple[Stored, ...], taken: Mapping[str, list[str]]
) -> None:
    for thing in objects:
        match thing:
            case NodeGroup():
                new["nodegroups"][thing.uuid] = written_group(judge, thing)
            case Node():
                new["nodes"][thing.uuid] = written_node(judge, thing)
            case JobFilter():
                new["filters"][thing.uuid] = written_filter(thing)
            case BackupSchedule() | BackupKey() | Webhook() | Image():
                what, field, why = _UNKNOWN_THERE[type(thing)]
                judge.keep(f"{what} {thing.name}", field, why)
            case Network():
                network = written_network(judge, thing, taken.get(thing.uuid, ()))
                if network is not None:
                    new["networks"][thing.uuid] = network


def _addresses_of(instances: Iterable[Instance]) -> dict[str, list[str]]:
    """Return network -> its addresses in use."""
    taken: dict[str, list[str]] = {}
    for instance in instances:
        for nic in instance.nics:
            if nic.network and nic.ip:
                taken.setdefault(nic.network, []).append(nic.ip)
    return taken


def merged(original: Any, old: Any, new: Any) -> Any:
    """Return `new`, with the values of `original` for fields that it lacks or that equal `old`."""
    if new == old:
        return original if original is not _NOWHERE else new
    if not (isinstance(original, dict) and isinstance(old, dict) and isinstance(new, dict)):
        return new
    found = {}
    for name in dict.fromkeys((*original, *new)):
        if name in new:
            found[name] = merged(original.get(name, _NOWHERE), old.get(name, _NOWHERE), new[name])
        elif name not in old:
            found[name] = original[name]
    return found


def _number_ports(judge: Judge, document: Document) -> None:
    """List the free ports: assigned earlier, and unused now."""
    used: dict[int, str] = {}
    claims = [
        (one["network_port"], f"instance {one.get('name')}")
        for one in document["instances"].values()
        if one.get("network_port") is not None
    ]
    claims += [
        (one["logical_id"][_PORT_WORD], f"disk {uuid}")
        for uuid, one in document["disks"].items()
        if one.get("dev_type") == "drbd"
    ]
    for port, owner in claims:
        if port in used:
            judge.refuse(owner, "port", f"{used[port]} has {port} too")
        used[port] = owner
    before = _pool(document["cluster"])
    highest = max(
        [PORTS.start - 1, *used, *before, document["cluster"].get("highest_used_port") or 0]
    )
    free = set(range(PORTS.start, min(highest + 1, PORTS.stop))) | before
    document["cluster"]["highest_used_port"] = highest
    document["cluster"]["tcpudp_port_pool"] = sorted(free - used.keys())


def _pool(cluster: Mapping[str, Any]) -> set[int]:
    return set(cluster.get("tcpudp_port_pool") or ())
