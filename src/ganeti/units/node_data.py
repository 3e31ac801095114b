"""The latest reports of nodes, for allocations; a node that no job has changed is not asked for each of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from ganeti.base.clock import Clock
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_units, with_overcommit
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.node_changes import NodeChanges
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfo, NodeInfoArgs
from ganeti.units.calls import Rpc
from ganeti.units.node_texts import Live
from ganeti.units.placements import Placement, Placements, minus_reserved, unknown

MOST_ASKED_PER_S = 50.0
"""How many nodes are asked each second, on average over one age of the reports; a query costs the master 0.3 ms."""
UNCHANGED_S = 300.0
"""How long the report of a node serves that no job changes. What else uses its memory and its disks changes slowly."""


class Asks(Protocol):
    """The part of the master's services that `NodeData` needs."""

    @property
    def clock(self) -> Clock: ...
    @property
    def placements(self) -> Placements: ...
    @property
    def rpc(self) -> Rpc: ...


def info_args(snapshot: Snapshot) -> NodeInfoArgs:
    """Return the arguments of NODE_INFO about everything that the nodes of this cluster have."""
    cluster = snapshot.cluster
    storage = list(dict.fromkeys(storage_units(cluster)))
    return NodeInfoArgs(hypervisors=list(cluster.enabled_hypervisors), storage=storage)


def _usable(snapshot: Snapshot, answer: Any) -> Any:
    """Return a report with the space that disks may have; an error as it is."""
    if not isinstance(answer, NodeInfo):
        return answer
    storage = [with_overcommit(snapshot.cluster, space) for space in answer.storage]
    return replace(answer, storage=storage)


@dataclass(frozen=True, eq=False)
class Round:
    """One time that nodes were queried; all of it is from before the queries."""

    begun: float
    """Seconds, monotonic."""
    mark: int
    """`Placements.mark`."""
    moment: int
    """`NodeChanges.moment`."""
    snapshot: Snapshot


class Report:
    """What a node answered, or the error that took the place of an answer; it never changes."""

    def __init__(self, answer: Any, asked: Round) -> None:
        self.answer, self.asked = answer, asked
        self._lives: dict[tuple[StorageUnit | None, bool], Live] = {}

    def live(
        self, node: Node, unit: StorageUnit | None, taken: "Taken", *, exclusive: bool
    ) -> Live | None:
        """Return the values for allocators, with the disk space of `unit`; None without an answer.

        They are the same object as long as no placement takes anything from the node.
        """
        if not isinstance(self.answer, NodeInfo):
            return None
        if node.uuid in taken.nodes:
            left = minus_reserved(self.answer, self.asked.snapshot, node, taken.placements)
            return Live.of(left, unit, exclusive=exclusive)
        live = self._lives.get((unit, exclusive))
        if live is None:
            live = self._lives[unit, exclusive] = Live.of(self.answer, unit, exclusive=exclusive)
        shared = taken.shared_space(unit)
        return live._replace(free_disk=max(0, live.free_disk - shared)) if shared else live


@dataclass(frozen=True, eq=False)
class Taken:
    """The placements whose resources the reports of one round may not include yet."""

    placements: Sequence[Placement]
    known: Snapshot
    """The configuration from before the queries: the disks of its instances were reported."""

    _shared: dict[StorageUnit | None, int] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> Collection[NodeUuid]:
        """The nodes of the guests and disks."""
        return frozenset(uuid for one in self.placements for uuid in one.nodes)

    def shared_space(self, unit: StorageUnit | None) -> int:
        """Return the MiB that new disks take from a storage unit of all other nodes, too."""
        if unit not in self._shared:
            other = NodeUuid("")
            new = unknown(self.placements, self.known)
            self._shared[unit] = sum(one.disk_space(unit, other) for one in new) if unit else 0
        return self._shared[unit]


class NodeReports(NamedTuple):
    """The reports of all online nodes, and what placements have taken since the round of each."""

    reports: Mapping[NodeUuid, Report]
    taken: Mapping[Round, Taken]

    def live(self, node: Node, unit: StorageUnit | None, *, exclusive: bool) -> Live | None:
        """Return the present values of a node for allocators; None if it did not answer."""
        report = self.reports.get(NodeUuid(node.uuid))
        if report is None:
            return None
        return report.live(node, unit, self.taken[report.asked], exclusive=exclusive)


@dataclass
class NodeData:
    """Queries the nodes, or reuses reports of at most `max_age_s` seconds, and longer in clusters of more than 100 nodes.

    With `changes` a report serves up to UNCHANGED_S if no call has changed the node since, and the node has answered
    each call since. `Placements` knows the resources that placements took since a report; what else was freed
    is seen later, so an allocation without room queries again.
    """

    max_age_s: float = 0.0
    changes: NodeChanges | None = None
    _reports: dict[NodeUuid, Report] = field(default_factory=dict)
    _asking: list[Round] = field(default_factory=list)

    async def reports(self, services: Asks, snapshot: Snapshot, *, fresh: bool) -> NodeReports:
        """Return the reports of all online nodes; an error takes the place of a missing one."""
        now, placements = services.clock.monotonic(), services.placements
        online = snapshot.online_nodes()
        known = {} if fresh or not self.is_remembering else self._valid(snapshot, placements, now)
        moment = 0 if self.changes is None else self.changes.moment()
        asked = Round(now, placements.mark(), moment, snapshot)
        if unknown := [node for node in online if node.uuid not in known]:
            self._asking.append(asked)
            try:
                answers = await services.rpc.call_all(unknown, NODE_INFO, info_args(snapshot))
            finally:
                self._asking.remove(asked)
            known |= {
                uuid: Report(_usable(snapshot, said), asked) for uuid, said in answers.items()
            }
        self._reports = found = {NodeUuid(node.uuid): known[node.uuid] for node in online}
        rounds = {one.asked: None for one in found.values()}
        placements.forget_before(min(one.mark for one in (asked, *rounds, *self._asking)))
        taken = {one: Taken(placements.since(one.mark), one.snapshot) for one in rounds}
        return NodeReports(found, taken)

    def doubt(self, node: NodeUuid) -> None:
        """Query this node again for the next allocation: a job is about to use it, or finds that it cannot."""
        if self.changes is not None:
            self.changes.add(node)

    def _valid(
        self, snapshot: Snapshot, placements: Placements, now: float
    ) -> dict[NodeUuid, Report]:
        """Return the reports that may be used again."""
        young_s = max(self.max_age_s, len(snapshot.nodes) / MOST_ASKED_PER_S)

        def is_valid(node: NodeUuid, report: Report) -> bool:
            asked = report.asked
            if asked.snapshot.cluster is not snapshot.cluster or not placements.knows(asked.mark):
                return False
            if now - asked.begun < young_s:
                return True
            if self.changes is None or self.changes.since(node, asked.moment):
                return False
            return isinstance(report.answer, NodeInfo) and now - asked.begun < UNCHANGED_S

        return {node: one for node, one in self._reports.items() if is_valid(node, one)}

    @property
    def is_remembering(self) -> bool:
        """Whether an answer may be older than its query."""
        return self.max_age_s > 0
