"""A small cluster to ask about: three nodes (one offline), two groups, four instances."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import RpcError, RpcUnknown
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.manager import LockInfo
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.job import LOCAL_SOURCE, LogEntry, OpState
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.progress import JobProgress
from ganeti.rpc.procedures.backups import BACKUP_LIST, BackupListing, PointInfo
from ganeti.rpc.procedures.exports import EXPORT_LIST, ExportListing
from ganeti.rpc.procedures.external import EXT_PROVIDERS, ProviderInfo
from ganeti.rpc.procedures.figures import (
    FIGURES,
    HISTORY,
    HistoryArgs,
    HistoryPart,
    NodeFigures,
)
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfo, StorageSpace
from ganeti.rpc.procedures.instances import (
    INSTANCE_CONSOLE,
    INSTANCES_INFO,
    ConsoleInfo,
    RunningInstance,
)
from ganeti.rpc.procedures.programs import OS_DIAGNOSE, OsInfo

NODE_UUIDS = [NodeUuid(f"00000000-0000-4000-8000-00000000000{number}") for number in (1, 2, 3)]
GROUP_UUIDS = [GroupUuid(f"00000000-0000-4000-8000-00000000001{number}") for number in (1, 2)]
INSTANCE_UUIDS = [f"00000000-0000-4000-8000-00000000002{number}" for number in (1, 2, 3, 4)]


def node(number: int, **given: Any) -> Node:
    return Node(
        uuid=NODE_UUIDS[number - 1],
        name=f"node{number}.example.com",
        primary_ip=f"192.0.2.{number}",
        secondary_ip=f"198.51.100.{number}",
        group=GROUP_UUIDS[0],
        certificate="00" * 32,
        **given,
    )


def instance(number: int, on: int, **given: Any) -> Instance:
    return Instance(
        uuid=InstanceUuid(INSTANCE_UUIDS[number - 1]),
        name=f"web{number}.example.com",
        primary_node=NODE_UUIDS[on - 1],
        os="noop+default",
        hypervisor="fake",
        beparams={"minmem": 64, "maxmem": 64},
        ctime=1_700_000_000.0,
        **given,
    )


def snapshot(position: int = 1) -> Snapshot:
    cluster = Cluster(
        shared_file_storage_dir="/srv",
        uuid="00000000-0000-4000-8000-000000000000",
        name="cluster.example.com",
        master_node=NODE_UUIDS[0],
        enabled_hypervisors=("fake",),
        enabled_disk_templates=("sharedfile", "diskless"),
        tags=("lab",),
    )
    disk = Disk(uuid="d1", size=1024, template="sharedfile", logical_id=("file", "/x"))
    nic = Nic(uuid="n1", mac="aa:00:00:11:22:33", ip="203.0.113.5")
    return Snapshot.of(
        position,
        cluster,
        nodes=[
            node(1, master_candidate=True),
            node(2, ndparams={"spindle_count": 7}, tags=("fast",)),
            node(3, offline=True),
        ],
        groups=[
            NodeGroup(uuid=GROUP_UUIDS[0], name="default"),
            NodeGroup(uuid=GROUP_UUIDS[1], name="spare"),
        ],
        instances=[
            instance(1, 1, admin_state=AdminState.UP, disks=(disk,), nics=(nic,), tags=("a",)),
            instance(2, 2, admin_state=AdminState.UP),
            instance(3, 2),
            instance(4, 3, admin_state=AdminState.UP),
        ],
    )


def running(number: int, state: str = "running") -> RunningInstance:
    return RunningInstance(
        name=f"web{number}.example.com",
        uuid=INSTANCE_UUIDS[number - 1],
        hypervisor="fake",
        memory=64,
        vcpus=1,
        state=state,
        cpu_time_s=1.0,
    )


STATED = NodeInfo(
    memory_total=4096,
    memory_free=3000,
    memory_node=500,
    cpu_total=8,
    cpu_nodes=1,
    cpu_sockets=2,
    cpu_node=1,
    boot_id="boot",
    time=0.0,
    storage=[
        StorageSpace(unit=StorageUnit(kind="sharedfile", key="/srv"), total=20480, free=10240)
    ],
    hypervisor_versions={},
)


@dataclass
class FakeNodes:
    """Answers the calls of queries; `silent` nodes do not."""

    instances: dict[str, list[RunningInstance]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    providers: dict[str, list[ProviderInfo]] = field(default_factory=dict)
    systems: list[OsInfo] = field(default_factory=list)
    """What all nodes have."""
    figures: dict[str, NodeFigures] = field(default_factory=dict)
    histories: dict[str, HistoryPart] = field(default_factory=dict)
    asked: list[HistoryArgs] = field(default_factory=list)
    points: dict[str, list[PointInfo]] = field(default_factory=dict)

    async def call(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        name = node.name.partition(".")[0]
        self.calls.append((procedure.name, name))
        if name in self.silent:
            raise RpcUnknown(node.name, "no answer")
        if procedure is INSTANCE_CONSOLE:
            return ConsoleInfo(kind="socket", path=f"/run/{args.instance.name}", log_path="/log")
        if procedure is HISTORY:
            self.asked.append(args)
        answers: dict[str, Any] = {
            NODE_INFO.name: STATED,
            INSTANCES_INFO.name: self.instances.get(name, []),
            EXT_PROVIDERS.name: self.providers.get(name, []),
            OS_DIAGNOSE.name: self.systems,
            EXPORT_LIST.name: ExportListing(
                names=["web1.example.com"] if name == "node1" else [], free=1
            ),
            FIGURES.name: self.figures.get(name, NodeFigures()),
            HISTORY.name: self.histories.get(name, HistoryPart()),
            BACKUP_LIST.name: BackupListing(targets=[], points=self.points.get(name, [])),
        }
        if procedure.name in answers:
            return answers[procedure.name]
        raise RpcError(node.name, f"unexpected {procedure.name}")


@dataclass(frozen=True)
class FakeJob:
    """A job as queries see it."""

    id: int
    ops: Sequence[OpState]
    log: Sequence[Sequence[LogEntry]] = ((),)
    status: JobStatus = JobStatus.SUCCESS
    received: float = 1_700_000_000.25
    start: float | None = 1_700_000_001.0
    end: float | None = None
    priority: int = 0
    source: str = LOCAL_SOURCE
    waiting_for: str | None = None
    progress: JobProgress | None = None


def job(job_id: int, status: JobStatus = JobStatus.SUCCESS, **given: Any) -> FakeJob:
    state = OpState(op=OpTestDelay(duration=0.5), status=status, result=None)
    return FakeJob(job_id, (state,), status=status, **given)


@dataclass
class FakeJobs:
    live: list[FakeJob] = field(default_factory=list)
    archived: list[FakeJob] = field(default_factory=list)

    def ids(self) -> list[int]:
        return sorted(one.id for one in self.live)

    def view(self, job_id: int) -> FakeJob | None:
        return next((one for one in self.live if one.id == job_id), None)

    async def archived_ids(self, *, below: int | None, limit: int) -> list[int]:
        ids = sorted((one.id for one in self.archived), reverse=True)
        return [one for one in ids if below is None or one < below][:limit]

    async def archived_view(self, job_id: int) -> FakeJob | None:
        return next((one for one in self.archived if one.id == job_id), None)


def locks() -> list[LockInfo]:
    return [
        LockInfo(Level.CLUSTER, "BGL", None, frozenset(), ()),
        LockInfo(Level.NODE, NODE_UUIDS[0], Mode.EXCLUSIVE, frozenset((12,)), ()),
    ]
