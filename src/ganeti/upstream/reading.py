"""Convert a document in the form of 3.0 to objects, with a report of every decision."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ganeti.model.address_pool import AddressPool
from ganeti.model.objects import Cluster, DetachedDisk, Instance, Network, NodeGroup
from ganeti.model.stored import Stored
from ganeti.upstream import hypervisors
from ganeti.upstream.choices import Choices, Reading
from ganeti.upstream.clusters import read_cluster
from ganeti.upstream.disks import Layers, disk_layers, read_detached
from ganeti.upstream.forms import TABLES, Document, damage_named
from ganeti.upstream.instances import InstanceReader
from ganeti.upstream.networks import MARK, read_network
from ganeti.upstream.nodes import read_filter, read_group, read_node
from ganeti.upstream.report import Report
from ganeti.upstream.stored import KIND_WORDS

T = TypeVar("T", bound=Stored)
_HEAD = ("version", "cluster", "serial_no", "ctime", "mtime")


@dataclass(frozen=True)
class Imported:
    """The content of a document, in our terms; it must not be used while the report refuses something."""

    cluster: Cluster
    others: tuple[Stored, ...]
    """Groups, nodes, networks, instances, filters. Nodes have no certificates."""
    report: Report

    @property
    def objects(self) -> tuple[Stored, ...]:
        """The cluster first."""
        return (self.cluster, *self.others)


def translate(document: Document, choices: Choices | None = None) -> Imported:
    """Return everything in a document (of `forms.parse`); InputError if it is damaged."""
    reading = Reading(choices or Choices())
    reading.rest("configuration", document, {*TABLES, *_HEAD})
    with damage_named("cluster"):
        cluster = read_cluster(reading, document["cluster"])
    groups = _all(document, "nodegroups", lambda one: read_group(reading, one))
    nodes = _all(document, "nodes", lambda one: read_node(reading, one))
    networks = _all(document, "networks", lambda one: read_network(reading, one))
    filters = _all(document, "filters", lambda one: read_filter(reading, one))

    def group_of(node: str) -> NodeGroup | None:
        return groups.get(nodes[node].group) if node in nodes else None

    def layers_of(node: str) -> Layers:
        group = group_of(node)
        return disk_layers(cluster.diskparams, group.diskparams if group else {})

    reader = InstanceReader(
        reading,
        document,
        shutdown_counts=bool(document["cluster"].get("enabled_user_shutdown")),
        group_of=group_of,
        layers_of=layers_of,
    )
    instances = _all(document, "instances", reader.read)
    _judge_addresses(reading, document, networks, instances)
    cluster = hypervisors.with_images(reading, cluster, instances.values())
    used = {uuid for one in document["instances"].values() for uuid in one.get("disks") or ()}
    free = {uuid: one for uuid, one in document.get("disks", {}).items() if uuid not in used}

    def detached(one: Document) -> DetachedDisk | None:
        return read_detached(reading, one, layers_of(next(iter(one.get("nodes") or ()), "")))

    disks = _all({"disks": free}, "disks", detached)
    _judge_times(reading, document)
    others = (
        *groups.values(),
        *nodes.values(),
        *networks.values(),
        *instances.values(),
        *disks.values(),
    )
    report = reading.report
    report.count(KIND_WORDS[type(one)] for one in (*others, *filters.values()))
    report.counts["disks"] = sum(len(one.disks) for one in instances.values())
    return Imported(cluster, (*others, *filters.values()), report)


def _all(document: Document, table: str, read: Callable[[Document], T | None]) -> dict[str, T]:
    found = {}
    for one in document[table].values():
        with damage_named(f"{table} {one.get('name', one.get('uuid'))!s:.80}"):
            thing = read(one)
        if thing is not None:
            found[thing.uuid] = thing
    return found


def _judge_times(reading: Reading, document: Document) -> None:
    """Report times of disks, of which many configurations have thousands."""
    used = [uuid for one in document["instances"].values() for uuid in one.get("disks") or ()]
    timed = [uuid for uuid in used if document["disks"].get(uuid, {}).get("ctime")]
    if timed:
        reading.keep(
            "disks", "ctime, mtime", f"{len(timed)} disks have the times of their instances here"
        )


def _judge_addresses(
    reading: Reading,
    document: Document,
    networks: Mapping[str, Network],
    instances: Mapping[str, Instance],
) -> None:
    """Return a network's reserved addresses that no interface has."""
    taken: dict[str, set[str]] = {}
    for instance in instances.values():
        for nic in instance.nics:
            if nic.network and nic.ip:
                taken.setdefault(nic.network, set()).add(nic.ip)
    marks = {str(one["uuid"]): one.get("reservations") for one in document["networks"].values()}
    for uuid, network in networks.items():
        bits = str(marks.get(uuid) or "")
        pool = AddressPool(network)
        used = {pool.number(ip) for ip in taken.get(uuid, ())} | set(pool.reserved())
        lost = [number for number, bit in enumerate(bits) if bit == MARK and number not in used]
        if lost:
            reading.keep(
                f"network {network.name}",
                "reservations",
                f"{len(lost)} addresses that no interface has are free, for example {pool.address(lost[0])}",
            )
