"""The data of one query: a snapshot, jobs and locks, and the reports of nodes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from ganeti.config.snapshot import Snapshot
from ganeti.locking.manager import LockInfo
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.job import LogEntry, OpState
from ganeti.model.names import JobStatus
from ganeti.model.objects import Instance, Nic, Node
from ganeti.model.progress import JobProgress
from ganeti.model.stored import Stored
from ganeti.query.fields.field import NO_DATA, OFFLINE, UNAVAILABLE, Missing
from ganeti.query.ordered import OrderedTables
from ganeti.rpc.procedures.backups import PointInfo
from ganeti.rpc.procedures.external import ProviderInfo
from ganeti.rpc.procedures.figures import NodeFigures
from ganeti.rpc.procedures.host import NodeInfo
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.rpc.procedures.programs import OsInfo

T = TypeVar("T", bound=Stored)


class JobRow(Protocol):
    """A job in the form for queries; the queue's `JobView` has this form."""

    @property
    def id(self) -> int: ...
    @property
    def ops(self) -> Sequence[OpState]: ...
    @property
    def log(self) -> Sequence[Sequence[LogEntry]]: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def received(self) -> float: ...
    @property
    def start(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def waiting_for(self) -> str | None: ...
    @property
    def progress(self) -> JobProgress | None: ...


Running = Mapping[str, RunningInstance]
"""UUID of an instance -> its state on one node."""


@dataclass(frozen=True)
class LiveData:
    """The reports of nodes, by their UUID; a node without a report has a Missing."""

    nodes: Mapping[str, NodeInfo | Missing] = field(default_factory=dict)
    instances: Mapping[str, Running | Missing] = field(default_factory=dict)
    consoles: Mapping[str, ConsoleInfo | Missing] = field(default_factory=dict)
    """By the instance's UUID."""
    exports: Mapping[str, Sequence[str] | Missing] = field(default_factory=dict)
    """The names of exports."""
    backups: Mapping[str, Sequence[PointInfo] | Missing] = field(default_factory=dict)
    systems: Mapping[str, list[OsInfo] | Missing] = field(default_factory=dict)
    """The OS definitions of each node."""
    providers: Mapping[str, list[ProviderInfo] | Missing] = field(default_factory=dict)
    """The providers of external storage of each node."""
    figures: Mapping[str, NodeFigures | Missing] = field(default_factory=dict)
    """The figures of each node and its guests."""

    @cached_property
    def places(self) -> Mapping[str, Sequence[str]]:
        """Return UUID of an instance -> UUIDs of the nodes on which it runs."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for node_uuid, running in self.instances.items():
            if not isinstance(running, Missing):
                for instance_uuid, one in running.items():
                    if one.has_guest:
                        found[instance_uuid].append(node_uuid)
        return found


NOTHING_SAID = LiveData()


@dataclass
class QueryContext:
    """The data from which the rows of one query are made."""

    snapshot: Snapshot
    live: LiveData = NOTHING_SAID
    jobs: Sequence[JobRow] = ()
    archived: frozenset[int] = frozenset()
    """Ids of those `jobs` that are archived."""
    locks: Sequence[LockInfo] = ()
    queue_is_drained: bool | None = None
    watcher_pause: float | None = None
    """The end of the watcher's pause."""
    named: frozenset[Any] | None = None
    """The only names, or prefixes of names, that rows may have; None: any."""
    ordered: OrderedTables = field(default_factory=OrderedTables, repr=False)

    def in_order(self, kind: type[T]) -> Sequence[T]:
        """Return the objects of a kind that may have rows, in the order of lists."""
        if self.named is None:
            return self.ordered.all(self.snapshot, kind)
        return self.ordered.named(self.snapshot, kind, self.named)

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Return the nodes by UUID."""
        return self.snapshot.nodes

    def node_name(self, uuid: str) -> str:
        """Return the name of a node, or its UUID if the configuration lacks it."""
        node = self.nodes.get(uuid)
        return uuid if node is None else node.name

    @cached_property
    def primaries(self) -> Mapping[str, Sequence[Instance]]:
        """Return UUID of a node -> instances with it as primary node."""
        found: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in self.snapshot.instances.values():
            found[instance.primary_node].append(instance)
        return found

    @cached_property
    def secondaries(self) -> Mapping[str, Sequence[Instance]]:
        """Return UUID of a node -> instances with it as a secondary node."""
        found: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in self.snapshot.instances.values():
            for uuid in instance.secondary_nodes:
                found[uuid].append(instance)
        return found

    @cached_property
    def network_users(self) -> Mapping[str, Sequence[tuple[Instance, Nic]]]:
        """Return UUID of a network -> the interfaces in it, with their instances."""
        found: defaultdict[str, list[tuple[Instance, Nic]]] = defaultdict(list)
        for instance in self.snapshot.instances.values():
            for nic in instance.nics:
                if nic.network is not None:
                    found[nic.network].append((instance, nic))
        return found

    @cached_property
    def backup_runs_of_schedule(self) -> Mapping[str, Sequence[BackupRun]]:
        """Return UUID of a schedule -> the memory of its instances."""
        found: defaultdict[str, list[BackupRun]] = defaultdict(list)
        for run in self.snapshot.table(BackupRun).values():
            found[run.schedule].append(run)
        return found

    @cached_property
    def backup_runs(self) -> Mapping[str, Sequence[BackupRun]]:
        """Return UUID of an instance -> the memory of the schedules that save it.

        That of a removed schedule goes with the master's next decision.
        """
        found: defaultdict[str, list[BackupRun]] = defaultdict(list)
        schedules = self.snapshot.table(BackupSchedule)
        for run in self.snapshot.table(BackupRun).values():
            if run.schedule in schedules:
                found[run.instance].append(run)
        return found

    @cached_property
    def members(self) -> Mapping[str, Sequence[Node]]:
        """Return UUID of a node group -> its nodes."""
        found: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.snapshot.nodes.values():
            found[node.group].append(node)
        return found

    def node_info(self, node: Node) -> NodeInfo | Missing:
        """Return a node's report about itself."""
        if node.offline:
            return OFFLINE
        if not node.vm_capable:
            return UNAVAILABLE
        return self.live.nodes.get(node.uuid, NO_DATA)

    def figures_of(self, node: Node) -> NodeFigures | Missing:
        """Return the figures of a node and its guests."""
        if node.offline:
            return OFFLINE
        if not node.vm_capable:
            return UNAVAILABLE
        return self.live.figures.get(node.uuid, NO_DATA)

    def running_on(self, node: Node) -> Running | Missing:
        """Return the guests of a node."""
        if node.offline:
            return OFFLINE
        return self.live.instances.get(node.uuid, NO_DATA)
