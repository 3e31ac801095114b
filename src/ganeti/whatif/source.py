"""The cluster that a simulation begins with: its objects, and the sizes of its nodes."""

import hashlib
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ganeti.base.errors import GanetiError, InputError
from ganeti.config.index import index_of
from ganeti.config.kinds import entry_of, kind_of, problems_of
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.planner import NewDisk, Site, placed_disks
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Cluster, Disk, Grant, Instance, Node, NodeUuid
from ganeti.model.stored import Stored

MOST_NODES, MOST_INSTANCES = 10_000, 200_000
LARGEST_SIZE = 2**40
"""MiB of memory or disk of a node; a larger number in a source is an error of the source."""
_SPACE = uuid.UUID("0d3c5f1e-6d2b-5a37-9f43-2f60c6a7d1f0")
_FIRST_PORT = 11000
_SHOWN_PROBLEMS = 5


class NodeSize(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a node; sizes in MiB."""

    memory: int
    disk: int
    cpus: int
    own_memory: int = 0
    """The part that the host itself uses."""
    own_cpus: int = 1

    def __post_init__(self) -> None:
        for name in ("memory", "disk", "cpus"):
            if not 0 <= getattr(self, name) <= LARGEST_SIZE:
                raise InputError(f"must be from 0 to {LARGEST_SIZE} (MiB)", name)


@dataclass(frozen=True)
class Source:
    """A cluster as a simulation begins with it; the cluster itself is the first object."""

    kind: str
    """`running`, `backup`, `htools` or `upstream`."""
    name: str
    """The name of the cluster."""
    objects: tuple[Stored, ...]
    sizes: Mapping[NodeUuid, NodeSize]
    """Sizes of the nodes that the source knows."""
    notes: tuple[str, ...] = ()
    """What the source does not say, and what the simulation assumes instead."""

    @property
    def cluster(self) -> Cluster:
        cluster = self.objects[0]
        assert isinstance(cluster, Cluster)  # noqa: S101 - every reader puts it first
        return cluster

    @property
    def nodes(self) -> list[Node]:
        return [one for one in self.objects if isinstance(one, Node)]

    @property
    def instances(self) -> list[Instance]:
        return [one for one in self.objects if isinstance(one, Instance)]


def checked(source: Source) -> Source:
    """Return the source; InputError if a simulation cannot begin with it."""
    nodes, instances = source.nodes, source.instances
    for what, number, most in (
        ("nodes", len(nodes), MOST_NODES),
        ("instances", len(instances), MOST_INSTANCES),
    ):
        if number > most:
            raise InputError(f"the source has {number} {what}; a simulation can have {most}")
    if not nodes:
        raise InputError("the source has no nodes")
    problems = list(_problems(source))
    if problems:
        more = f" (and {len(problems) - _SHOWN_PROBLEMS} more)"
        shown = "; ".join(problems[:_SHOWN_PROBLEMS])
        raise InputError(
            f"the configuration breaks rules: {shown}{more if len(problems) > _SHOWN_PROBLEMS else ''};"
            " correct the source"
        )
    return source


def _problems(source: Source) -> Iterable[str]:
    """Yield the rules of the configuration that its objects break."""
    by_name: set[tuple[str, str]] = set()
    for one in source.objects:
        if (key := (kind_of(one), one.name)) in by_name and one.name:
            yield f"{key[0]} {key[1]} occurs twice"
        by_name.add(key)
    try:
        snapshot = Snapshot.of(0, source.cluster, others=source.objects[1:])
        for one in source.objects:
            yield from (text for _code, text in problems_of(snapshot, one))
        _, conflicts = index_of(entry_of(source.cluster, one) for one in source.objects)
    except KeyError as err:
        yield f"an object refers to {err}, which does not exist"
        return
    for claim, _claimant, _owner in conflicts:
        yield f"two objects have the {claim.kind} {claim.value}"


def derived_uuid(*words: str) -> str:
    """Return the UUID of an object that its source names only by these words, always the same."""
    return str(uuid.uuid5(_SPACE, "\0".join(words)))


def stand_in_certificate(node: str) -> str:
    """Return the fingerprint of a simulated node's certificate; no such certificate exists."""
    return hashlib.sha256(f"simulated node {node}".encode()).hexdigest()


class DerivedNames:
    """The `layouts.Names` of disks whose source tells only their sizes: always the same names."""

    def __init__(self, ports: Collection[int] = ()) -> None:
        """`ports` are the network ports that the source tells: disks get others."""
        self._next = 0
        self._told_ports = frozenset(ports)
        self._port = _FIRST_PORT
        self._numbers: dict[tuple[str, NodeUuid], int] = {}

    def uuid(self) -> str:
        self._next += 1
        return derived_uuid("disk", str(self._next))

    def secret(self) -> str:
        return derived_uuid("secret", self.uuid())

    def port(self) -> int:
        self._port += 1
        while self._port in self._told_ports:
            self._port += 1
        return self._port

    def number(self, template: str, node: NodeUuid) -> int:
        number = self._numbers.get((template, node), 0)
        self._numbers[template, node] = number + 1
        return number


def with_disks(
    cluster: Cluster, instance: Instance, sizes: Sequence[int], names: DerivedNames
) -> Instance:
    """Return the instance with disks of these sizes, in MiB, on its nodes; both copies of a mirrored one are current."""
    planner = PLANNERS.get(instance.disk_template)
    if planner is None:
        raise InputError(
            f"instance {instance.name}: disk template {instance.disk_template} has no driver here;"
            " remove the instance from the source"
        )
    facts = DISK_TEMPLATES[instance.disk_template]
    disks: list[Disk] = []
    try:
        for index, size in enumerate(sizes if facts.has_disks else ()):
            site = Site(cluster, instance.name, index, others=tuple(disks))
            path = f"{facts.disk_id.root}simulated-{names.uuid()}"
            request = NewDisk(
                size=size,
                params={"provider": "simulated"} if facts.by_provider else {},
                adopt=path if facts.only_adopts else None,
            )
            disks.append(planner.new_disk(request, site, names))
    except GanetiError as err:
        raise InputError(f"instance {instance.name}: {err.message}") from err
    if facts.mirrored:
        grant = Grant(0, frozenset(instance.all_nodes), instance.primary_node)
        disks = [msgspec.structs.replace(disk, grant=grant) for disk in disks]
    made = msgspec.structs.replace(instance, disks=tuple(disks))
    return placed_disks(planner, made, instance.all_nodes, names)


def whole(value: float, what: str, field: str, least: int = 0) -> int:
    """Return a size of a source as a whole number; InputError if it is out of range."""
    if not least <= value <= LARGEST_SIZE:
        raise InputError(f"{field} {value:.0f} must be from {least} to {LARGEST_SIZE} (MiB)", what)
    return int(value)


Progress = Callable[[str], None]
