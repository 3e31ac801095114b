"""The latest reports of nodes, for allocations in quick succession."""

from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from ganeti.base.clock import Clock
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_units, with_overcommit
from ganeti.model.objects import NodeUuid
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfo, NodeInfoArgs
from ganeti.units.calls import Rpc
from ganeti.units.placements import Placements

MOST_ASKED_PER_S = 50.0
"""How many nodes are asked each second, on average over one age of the reports; a query costs the master 0.3 ms."""


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


@dataclass(frozen=True)
class NodeReports:
    """One round of reports; `mark` and `snapshot` are from before the queries."""

    answers: dict[NodeUuid, Any]
    mark: int
    snapshot: Snapshot
    question: NodeInfoArgs
    begun: float
    """Seconds, monotonic."""

    def serves(self, snapshot: Snapshot) -> bool:
        """Return whether the answers cover all nodes of the present cluster."""
        nodes = {node.uuid for node in snapshot.online_nodes()}
        return nodes <= self.answers.keys() and self.question == info_args(snapshot)


@dataclass
class NodeData:
    """Queries the nodes, or reuses reports of at most `max_age_s` seconds, and longer in clusters of more than 100 nodes.

    `Placements` knows the resources that placements took since then; freed resources are seen later, so an allocation
    without room queries again.
    """

    max_age_s: float = 0.0
    _reports: NodeReports | None = None

    async def reports(self, services: Asks, snapshot: Snapshot, *, fresh: bool) -> NodeReports:
        """Return the reports of all online nodes, at most some seconds old; an error takes the place of a missing one."""
        now, last = services.clock.monotonic(), self._reports
        longest_s = max(self.max_age_s, len(snapshot.nodes) / MOST_ASKED_PER_S)
        if (
            not fresh
            and self.is_remembering
            and last is not None
            and now - last.begun < longest_s
            and services.placements.knows(last.mark)
            and last.serves(snapshot)
        ):
            return last
        mark, question = services.placements.mark(), info_args(snapshot)
        answers = await services.rpc.call_all(snapshot.online_nodes(), NODE_INFO, question)
        answers = {uuid: _usable(snapshot, answer) for uuid, answer in answers.items()}
        reports = NodeReports(answers, mark, snapshot, question, now)
        self._reports = reports
        services.placements.forget_before(mark)
        return reports

    @property
    def is_remembering(self) -> bool:
        """Whether an answer may be older than its query."""
        return self.max_age_s > 0
