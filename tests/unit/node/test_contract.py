"""One contract, two nodes: the real handlers and the model that tests of the master use (see `contract_nodes`).

What only a real hypervisor does (a refused connection of a migration, NVRAM of a running guest, agents)
is shown with QEMU in `tests/host`; here the fake one runs the guests, and kvm answers about guests that are down.
"""

import asyncio
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import GanetiError
from ganeti.model import wire
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.hooks import Phase
from ganeti.model.host_facts import HostQuestion
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.objects import Grant, GroupUuid, Node, NodeUuid
from ganeti.recovery.grants import SHARED
from ganeti.rpc.procedures.agent import AGENT_FREEZE, AGENT_INFO, AGENT_THAW, FrozenArgs
from ganeti.rpc.procedures.commands import (
    FENCE_AGENT_PROBLEMS,
    FENCE_AGENT_RUN,
    OOB_PROBLEMS,
    OOB_RUN,
    RESTRICTED_COMMAND,
    SHELL_COMMAND,
    FenceAgentArgs,
    FenceAgentsArgs,
    OobArgs,
    ProgramsArgs,
    RestrictedArgs,
    ShellArgs,
)
from ganeti.rpc.procedures.consoles import CONSOLE_OPEN, ConsoleArgs
from ganeti.rpc.procedures.devices import (
    HOTPLUG_DISK,
    HOTPLUG_LIMITS,
    HOTPLUG_MEDIUM,
    HOTPLUG_NIC,
    HOTPLUG_OBSTACLES,
    INSTANCE_MEMORY,
    INSTANCE_VCPUS,
    DeviceAction,
    DiskChangeArgs,
    GuestLimits,
    MediumArgs,
    MemoryArgs,
    NicChangeArgs,
    VcpusArgs,
    VcpusResult,
)
from ganeti.rpc.procedures.disk_moves import (
    DISK_MOVE_BEGIN,
    DISK_MOVE_END,
    DISK_MOVE_OBSTACLES,
    DISK_MOVE_STATUS,
    DISK_MOVE_SWITCH,
    BeginDiskMoveArgs,
    DiskMoveArgs,
    EndDiskMoveArgs,
)
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_FENCE,
    BLOCKDEV_GROW,
    BLOCKDEV_INFO,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN,
    BLOCKDEV_UNFENCE,
    COPY_JOINS,
    DISK_GRANTED,
    DISK_GRANTS,
    DISKS_INFO,
    STORED_DISKS,
    DiskArgs,
    DisksArgs,
    FenceArgs,
    GrantArgs,
    GrantsArgs,
    GrowDiskArgs,
    StorageUnits,
)
from ganeti.rpc.procedures.figures import (
    FIGURES,
    HISTORY,
    HISTORY_FORGET,
    HistoryArgs,
    HistoryForgetArgs,
    HistoryPart,
    NodeFigures,
)
from ganeti.rpc.procedures.files import (
    SHARED_FILES,
    WRITE_FILE,
    WRITE_SSCONF,
    NodeFile,
    SharedFilesArgs,
    SsconfArgs,
)
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.hardware import (
    INSTANCE_SCREENSHOT,
    NVRAM_FORGET,
    NVRAM_READ,
    NVRAM_WRITE,
    PINNED_HVPARAMS,
    ForgetNvramArgs,
    WriteNvramArgs,
)
from ganeti.rpc.procedures.hooks import (
    HOOKS_LIST,
    HOOKS_RUN,
    HookDirectory,
    HookResult,
    HooksArgs,
)
from ganeti.rpc.procedures.host import (
    HOST_FACTS,
    LEAVE_CLUSTER,
    NODE_INFO,
    NODE_VERIFY,
    TEST_DELAY,
    VERSION,
    HypervisorsArgs,
    LeaveArgs,
    NodeInfoArgs,
    VerifyArgs,
)
from ganeti.rpc.procedures.host import (
    TestDelayArgs as DelayArgs,
)
from ganeti.rpc.procedures.instances import (
    INSTANCE_CONSOLE,
    INSTANCE_INFO,
    INSTANCE_REBOOT,
    INSTANCE_SHUTDOWN,
    INSTANCE_START,
    INSTANCES_INFO,
    VALIDATE_HVPARAMS,
    HvParamsArgs,
    InstanceArgs,
    RebootArgs,
    ShutdownArgs,
    StartArgs,
)
from ganeti.rpc.procedures.mastership import (
    MASTER_IP_DOWN,
    MASTER_IP_UP,
    REGISTER_READ,
    MasterIpArgs,
)
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    MIGRATION_INFO,
    MIGRATION_OBSTACLES,
    MIGRATION_RUN,
    FinishMigrationArgs,
    FitArgs,
    IncomingArgs,
    MigrateArgs,
    MigrationInfo,
)
from ganeti.rpc.procedures.networks import NICS_CHECK, NicsArgs
from ganeti.rpc.procedures.power import NODE_POWERCYCLE
from ganeti.rpc.procedures.programs import (
    ALLOCATOR_RUN,
    OS_CREATE,
    OS_DIAGNOSE,
    OS_RENAME,
    OS_VALIDATE,
    AllocatorArgs,
    OsCreateArgs,
    OsRenameArgs,
    OsValidateArgs,
)
from ganeti.rpc.procedures.progress import CALL_PROGRESS, ProgressArgs
from ganeti.rpc.procedures.recovery import HEARTBEAT, RELAY_HEARTBEAT, HeartbeatArgs, RelayArgs
from ganeti.rpc.procedures.stale_work import END_STALE_WORK, EndWorkArgs
from ganeti.rpc.procedures.streams import (
    STREAM_COPY,
    STREAM_END,
    STREAM_RECEIVE,
    STREAM_SEND,
    STREAM_WITHIN,
    TRANSFER_KEY_CREATE,
    TRANSFER_KEY_REMOVE,
    CopyArgs,
    DiskEnd,
    EndArgs,
    ReceiveArgs,
    SendArgs,
    StreamArgs,
    TransferKeyArgs,
    WithinArgs,
)
from ganeti.rpc.procedures.uids import UID_POOL_USE, UidPoolArgs
from tests.support.contract_nodes import (
    ADDRESS,
    CLUSTER,
    CONTRACT_AGENT,
    LOCAL,
    UPLOAD,
    ContractNode,
    ModelContractNode,
    pretend_addresses,
    two_nodes,
)

SIZE = 2
MAC = "aa:00:00:00:00:01"


KEY_NAME = "x509-00000001"


@dataclass
class Bench:
    """Two nodes of one kind, and what they are asked about."""

    nodes: list[ContractNode]
    shared: str

    @property
    def node(self) -> ContractNode:
        return self.nodes[0]

    @property
    def units(self) -> list[StorageUnit]:
        return [
            StorageUnit(kind="file", key=LOCAL),
            StorageUnit(kind="sharedfile", key=self.shared),
        ]

    def disk(self, uuid: str = "disk-0", *, template: str = "file", **changes: Any) -> DiskSpec:
        directory = self.shared if template == "sharedfile" else LOCAL
        logical_id = ("loop", f"{directory}/web1/{uuid}")
        disk = DiskSpec(uuid=uuid, index=0, size=SIZE, template=template, logical_id=logical_id)
        return replace(disk, **changes)

    def spec(self, *disks: DiskSpec, **changes: Any) -> InstanceSpec:
        spec = InstanceSpec(
            name="web1.example.com",
            uuid="instance-1",
            hypervisor="fake",
            os="tiny",
            memory=128,
            vcpus=1,
            hvparams={},
            disk_template=disks[0].template if disks else "diskless",
            disks=disks,
        )
        return replace(spec, **changes)

    async def on_disk(
        self, procedure: Procedure[Any, Any], disk: DiskSpec, node: int = 0, key: str = ""
    ) -> Any:
        args = DiskArgs(instance_name="web1.example.com", disk=disk)
        return await self.nodes[node].call(procedure, args, key=key)

    async def disk_info(self, disk: DiskSpec, node: int = 0) -> tuple[bool, int, bool]:
        """Whether it is there, its size, whether something is wrong with it."""
        info = await self.on_disk(BLOCKDEV_INFO, disk, node)
        args = DiskArgs(instance_name="web1.example.com", disk=disk)
        assert await self.nodes[node].call(DISKS_INFO, DisksArgs(disks=[args])) == [info]
        return info.exists, info.size, bool(info.problem)

    async def on_guest(
        self, procedure: Procedure[Any, Any], spec: InstanceSpec, node: int = 0
    ) -> Any:
        return await self.nodes[node].call(procedure, InstanceArgs(instance=spec))

    async def start(self, spec: InstanceSpec, node: int = 0, *, paused: bool = False) -> None:
        await self.nodes[node].call(INSTANCE_START, StartArgs(instance=spec, paused=paused))

    async def stop(self, spec: InstanceSpec, node: int = 0) -> None:
        await self.nodes[node].call(INSTANCE_SHUTDOWN, ShutdownArgs(instance=spec, timeout_s=0))

    async def reboot(self, spec: InstanceSpec, kind: str = "hard", node: int = 0) -> None:
        args = RebootArgs(instance=spec, reboot_type=kind, timeout_s=0)
        await self.nodes[node].call(INSTANCE_REBOOT, args)

    async def state(self, spec: InstanceSpec, node: int = 0) -> str:
        """Of its guest, or of this end of its migration; '' where there is none."""
        found = await self.on_guest(INSTANCE_INFO, spec, node)
        return found.state if found else ""

    async def states(self, spec: InstanceSpec) -> tuple[str, str]:
        return await self.state(spec, 0), await self.state(spec, 1)

    async def accept(self, spec: InstanceSpec, node: int = 1) -> Any:
        info = await self.on_guest(MIGRATION_INFO, spec, 1 - node)
        args = IncomingArgs(instance=spec, address=ADDRESS, info=info)
        return await self.nodes[node].call(MIGRATION_ACCEPT, args)

    async def send(self, spec: InstanceSpec, port: int = 8102) -> str:
        args = MigrateArgs(instance=spec, address=ADDRESS, port=port)
        result = await self.nodes[0].call(MIGRATION_RUN, args)
        return str(result.status)

    async def finish(self, spec: InstanceSpec, node: int, *, success: bool) -> None:
        procedure = MIGRATION_FINISH_TARGET if node else MIGRATION_FINISH_SOURCE
        await self.nodes[node].call(procedure, FinishMigrationArgs(instance=spec, success=success))


@pytest.fixture(params=["model", "real"])
async def bench(
    request: pytest.FixtureRequest, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    pretend_addresses(monkeypatch.setattr)
    nodes = two_nodes(request.param, disk_path)
    yield Bench(nodes, str(disk_path / "shared"))
    for node in nodes:
        await node.close()


async def error_of(call: Awaitable[Any]) -> str:
    """What kind of error a call ends with; '' if it succeeds."""
    try:
        await call
    except GanetiError as err:
        return err.wire_name
    return ""


# --- the node itself ---


async def test_node_reports_its_identity_and_resources(bench: Bench) -> None:
    version = await bench.node.call(VERSION, Nothing())
    assert (version.protocol, version.cluster_uuid) == (1, CLUSTER)
    nothing = await bench.node.call(NODE_INFO, NodeInfoArgs(hypervisors=[]))
    assert (nothing.storage, nothing.hypervisor_versions) == ([], {})
    storage = [*bench.units, StorageUnit(kind="file", key="/srv/elsewhere")]
    args = NodeInfoArgs(hypervisors=["fake", "xen"], storage=storage)
    info = await bench.node.call(NODE_INFO, args)
    assert info.hypervisor_versions == {"fake": "0", "xen": ""}
    assert [one.unit for one in info.storage] == bench.units, "one that is not allowed has no space"
    assert all(0 < one.free <= one.total for one in info.storage)
    assert 0 <= info.memory_free <= info.memory_total


async def test_a_node_examines_itself(bench: Bench) -> None:
    await bench.node.call(WRITE_FILE, NodeFile(path=UPLOAD, content=b"abc", mode=0o644))
    args = VerifyArgs(hypervisors=["fake", "xen"], files=[UPLOAD, "/etc/missing"])
    report = await bench.node.call(NODE_VERIFY, args)
    assert report.hypervisor_problems["fake"] == []
    assert len(report.hypervisor_problems["xen"]) == 1
    assert list(report.file_checksums) == [UPLOAD]
    assert (report.storage_problems, report.ssconf_position) == ([], -1)
    assert report.ssconf_checksum == ""


async def test_host_facts_answer_only_the_question(bench: Bench) -> None:
    question = HostQuestion(runs_kvm=False, directories=("/srv/disks",))
    facts = await bench.node.call(HOST_FACTS, question)
    assert facts.memory_mib > 0
    assert facts.cpus > 0
    assert any(one.endswith("/srv/disks") for one in facts.spaces)
    assert all(0 < one.free <= one.total for one in facts.spaces.values())
    assert (facts.links, facts.ports_in_use, facts.lvm_problem) == ({}, (), "")
    assert (facts.qemu_problem, facts.kvm_problem) == ("", "")


async def test_a_set_of_facts_is_never_replaced_by_an_older_one(bench: Bench) -> None:
    async def write(position: int, **values: str) -> str:
        args = SsconfArgs(position=position, values={"cluster_name": "c", **values})
        return await error_of(bench.node.call(WRITE_SSCONF, args))

    assert await write(5) == ""
    assert await write(5) == "", "it may be repeated"
    assert await write(4) == "OpPrereqError"
    await bench.node.restart()
    report = await bench.node.call(NODE_VERIFY, VerifyArgs(hypervisors=[]))
    assert report.ssconf_position == 5
    assert len(report.ssconf_checksum) == 64


async def test_only_the_own_cluster_can_be_left(bench: Bench) -> None:
    wrong = LeaveArgs(cluster_uuid="another")
    assert await error_of(bench.node.call(LEAVE_CLUSTER, wrong)) == "OpPrereqError"
    await bench.node.call(LEAVE_CLUSTER, LeaveArgs(cluster_uuid=CLUSTER))
    version = await bench.node.call(VERSION, Nothing())
    assert version.cluster_uuid == ""


async def test_a_later_master_supersedes_the_earlier_one(bench: Bench) -> None:
    args = NodeFile(path=UPLOAD, content=b"", mode=0o644)
    await bench.node.call(WRITE_FILE, args, epoch=2, master="second")
    await bench.node.restart()
    answer = await bench.node.call(REGISTER_READ, Nothing())
    assert answer.vote.register.promised.epoch == 2
    for master, epoch in (("master", 1), ("third", 2), ("", 3), ("second", 0)):
        for procedure, given in (
            (WRITE_FILE, args),
            (END_STALE_WORK, EndWorkArgs(keys=["9/0/1"])),
            (NODE_POWERCYCLE, Nothing()),
            (HEARTBEAT, HeartbeatArgs()),
        ):
            call = bench.node.call(procedure, given, epoch=epoch, master=master)
            assert await error_of(call) == "NotMasterError", (procedure.name, epoch)
    await bench.node.call(WRITE_FILE, args, epoch=2, master="second")


async def test_restart_of_the_host_is_announced(bench: Bench) -> None:
    assert (await bench.node.call(NODE_POWERCYCLE, Nothing())).delay_s == 5


async def test_a_heartbeat_is_answered_with_a_fresh_token(bench: Bench) -> None:
    first = (await bench.node.call(HEARTBEAT, HeartbeatArgs())).token
    args = HeartbeatArgs(token=first, protected=("instance-1",), wanted=("instance-1",))
    answer = await bench.node.call(HEARTBEAT, args)
    assert answer.token.boot_id == first.boot_id
    assert answer.token.sent_at >= first.sent_at
    assert answer.is_armed is (not answer.why_unarmed)
    assert answer.faults == {}


async def test_heartbeat_for_a_silent_node_is_refused_with_the_reason(bench: Bench) -> None:
    """Nothing listens at its address."""
    silent = Node(
        uuid=NodeUuid("b9"), name="silent", primary_ip="127.0.0.1", secondary_ip="127.0.0.1",
        group=GroupUuid("g"), certificate="0" * 64, port=1,
    )  # fmt: skip
    args = RelayArgs(node=silent, heartbeat=HeartbeatArgs())
    assert await error_of(bench.node.call(RELAY_HEARTBEAT, args)) != ""


async def test_a_delay_is_not_negative(bench: Bench) -> None:
    assert await bench.node.call(TEST_DELAY, DelayArgs(duration_s=0)) == Nothing()
    call = bench.node.call(TEST_DELAY, DelayArgs(duration_s=-1))
    assert await error_of(call) == "OpPrereqError"


async def test_files_are_shared_and_taken_over_where_the_node_allows_it(bench: Bench) -> None:
    await bench.node.restart()
    bench.node.share_file(UPLOAD, b"words")
    shared = await bench.node.call(SHARED_FILES, SharedFilesArgs(hypervisors=["fake"]))
    assert UPLOAD in {file.path for file in shared.files}
    (file,) = [file for file in shared.files if file.path == UPLOAD]
    assert (file.content, shared.problems) == (b"words", [])
    assert await error_of(bench.nodes[1].call(WRITE_FILE, file)) == ""
    report = await bench.nodes[1].call(NODE_VERIFY, VerifyArgs(hypervisors=[], files=[UPLOAD]))
    assert list(report.file_checksums) == [UPLOAD]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "etc/motd", "/etc/../etc/motd", "/etc//motd", "/", ""]
)
async def test_no_other_file_is_taken_over(bench: Bench, path: str) -> None:
    args = NodeFile(path=path, content=b"", mode=0o644)
    assert await error_of(bench.node.call(WRITE_FILE, args)) == "OpPrereqError"


async def test_the_clusters_address_comes_and_goes(bench: Bench) -> None:
    args = MasterIpArgs(address="192.0.2.100", netmask=24, netdev="eth0")
    for procedure in (MASTER_IP_UP, MASTER_IP_UP, MASTER_IP_DOWN, MASTER_IP_DOWN):
        assert await error_of(bench.node.call(procedure, args)) == ""
        assert await error_of(bench.node.call(procedure, replace(args, netdev=""))) == ""


@pytest.mark.parametrize(
    "change", [{"address": "no-address"}, {"netmask": 0}, {"netmask": 33}, {"netdev": "a b"}]
)
async def test_nothing_else_becomes_the_clusters_address(
    bench: Bench, change: dict[str, Any]
) -> None:
    args = replace(MasterIpArgs(address="192.0.2.100", netmask=24, netdev="eth0"), **change)
    for procedure in (MASTER_IP_UP, MASTER_IP_DOWN):
        assert await error_of(bench.node.call(procedure, args)) == "OpPrereqError"


async def test_user_ids_of_guests_are_looked_at(bench: Bench) -> None:
    use = await bench.node.call(UID_POOL_USE, UidPoolArgs(uid_pool=[(61000, 61001)]))
    assert use.in_use == []
    for pool in ([(61001, 61000)], [(61000, 61005), (61003, 61009)], [(0, 0)]):
        call = bench.node.call(UID_POOL_USE, UidPoolArgs(uid_pool=pool))
        assert await error_of(call) == "OpPrereqError", pool


# --- disks ---


@pytest.fixture(params=["file", "sharedfile"])
def disk(request: pytest.FixtureRequest, bench: Bench) -> DiskSpec:
    return bench.disk(template=request.param)


async def test_a_disk_comes_and_goes_as_often_as_it_is_asked_for(
    bench: Bench, disk: DiskSpec
) -> None:
    assert await bench.disk_info(disk) == (False, 0, False)
    for _ in range(2):
        made = await bench.on_disk(BLOCKDEV_CREATE, disk)
        assert (made.exists, made.size) == (True, SIZE)
        assert made.path.endswith(str(disk.logical_id[1]))
    await bench.node.restart()
    assert await bench.disk_info(disk) == (True, SIZE, False)
    assert await bench.disk_info(disk, node=1) == (
        (True, SIZE, False) if disk.template == "sharedfile" else (False, 0, False)
    )
    used = await bench.on_disk(BLOCKDEV_ASSEMBLE, disk)
    assert (used.exists, used.path) == (True, made.path)
    for _ in range(2):
        assert await error_of(bench.on_disk(BLOCKDEV_SHUTDOWN, disk)) == ""
    for _ in range(2):
        await bench.on_disk(BLOCKDEV_REMOVE, disk)
        assert await bench.disk_info(disk) == (False, 0, False)


@pytest.mark.requirement("D8", "D9")
async def test_disk_is_not_opened_under_an_older_grant(bench: Bench, disk: DiskSpec) -> None:
    grant = Grant(4, frozenset({SHARED}), bench.node.uuid)
    granted = replace(disk, grant=grant)
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    assert await error_of(bench.on_disk(BLOCKDEV_ASSEMBLE, granted)) == ""
    elsewhere = Grant(5, grant.current, NodeUuid("other"))
    assert (
        await bench.node.call(DISK_GRANTS, GrantsArgs(grants={disk.uuid: elsewhere})) == Nothing()
    )
    await bench.node.restart()
    assert await error_of(bench.on_disk(BLOCKDEV_ASSEMBLE, granted)) == "StorageError"
    await bench.on_disk(BLOCKDEV_REMOVE, disk)


@pytest.mark.requirement("D3")
async def test_only_a_synchronised_copy_joins(bench: Bench, disk: DiskSpec) -> None:
    grant = Grant(4, frozenset({bench.node.uuid}), bench.node.uuid)
    args = GrantArgs(disk=disk.uuid, grant=grant)
    assert await bench.node.call(DISK_GRANTED, args) == Nothing()
    assert await error_of(bench.node.call(COPY_JOINS, args)) == "StorageError"


async def test_storage_of_files_cannot_refuse_a_node(bench: Bench, disk: DiskSpec) -> None:
    args = FenceArgs(
        instance_name="web1.example.com", disk=disk, node_name="b", addresses=[ADDRESS]
    )
    for procedure in (BLOCKDEV_FENCE, BLOCKDEV_UNFENCE):
        assert await error_of(bench.node.call(procedure, args)) == "StorageError"


async def test_a_disk_that_is_not_there_cannot_be_used(bench: Bench, disk: DiskSpec) -> None:
    assert await error_of(bench.on_disk(BLOCKDEV_ASSEMBLE, disk)) == "StorageError"
    assert await error_of(bench.on_disk(BLOCKDEV_SHUTDOWN, disk)) == ""
    grown = GrowDiskArgs(instance_name="web1", disk=disk, size=3)
    assert await error_of(bench.node.call(BLOCKDEV_GROW, grown)) == "StorageError"


@pytest.mark.parametrize("size", [0, -1, 10**9])
async def test_a_disk_without_a_size_or_room_is_not_made(
    bench: Bench, disk: DiskSpec, size: int
) -> None:
    wrong = replace(disk, size=size)
    assert await error_of(bench.on_disk(BLOCKDEV_CREATE, wrong)) == "StorageError"
    assert await bench.disk_info(disk) == (False, 0, False)


async def test_a_disk_of_another_size_is_neither_taken_nor_harmed(
    bench: Bench, disk: DiskSpec
) -> None:
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    larger = replace(disk, size=SIZE + 1)
    assert await error_of(bench.on_disk(BLOCKDEV_CREATE, larger)) == "StorageError"
    assert await error_of(bench.on_disk(BLOCKDEV_ASSEMBLE, larger)) == "StorageError"
    assert await bench.disk_info(larger) == (True, SIZE, True)
    grown = GrowDiskArgs(instance_name="web1", disk=larger, size=9)
    assert await error_of(bench.node.call(BLOCKDEV_GROW, grown)) == "StorageError"
    assert await bench.disk_info(disk) == (True, SIZE, False)


async def test_another_disks_file_is_neither_taken_nor_removed(
    bench: Bench, disk: DiskSpec, disk_path: Path
) -> None:
    probe = disk_path / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.probe", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes, by which files know their disk")
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    other = replace(disk, uuid="another")
    for procedure in (BLOCKDEV_CREATE, BLOCKDEV_ASSEMBLE):
        assert await error_of(bench.on_disk(procedure, other)) == "StorageError"
    assert await bench.disk_info(other) == (False, 0, False)
    await bench.on_disk(BLOCKDEV_REMOVE, other)
    assert await bench.disk_info(disk) == (True, SIZE, False)


async def test_a_disk_grows_to_what_it_is_to_have_at_least(bench: Bench, disk: DiskSpec) -> None:
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    for size in (SIZE + 2, SIZE + 2, SIZE + 1):
        grown = GrowDiskArgs(instance_name="web1", disk=disk, size=size)
        assert (await bench.node.call(BLOCKDEV_GROW, grown)).exists
        assert await bench.disk_info(disk) == (True, SIZE + 2, False)
    too_much = GrowDiskArgs(instance_name="web1", disk=disk, size=10**9)
    assert await error_of(bench.node.call(BLOCKDEV_GROW, too_much)) == "StorageError"
    assert await bench.disk_info(disk) == (True, SIZE + 2, False)


async def test_disks_lie_where_the_node_allows_it(bench: Bench, disk: DiskSpec) -> None:
    away = replace(disk, logical_id=("loop", "/srv/elsewhere/disk-0"))
    for procedure in (BLOCKDEV_CREATE, BLOCKDEV_ASSEMBLE, BLOCKDEV_REMOVE):
        assert await error_of(bench.on_disk(procedure, away)) == "StorageError"
    assert await bench.disk_info(away) == (False, 0, True)


async def test_what_lies_in_the_directories_of_disks_is_listed(bench: Bench) -> None:
    disks = [bench.disk("b"), bench.disk("a"), bench.disk("c", template="sharedfile")]
    for disk in disks:
        await bench.on_disk(BLOCKDEV_CREATE, disk)
    found = await bench.node.call(STORED_DISKS, StorageUnits(units=bench.units))
    assert [(one.unit.kind, one.name, one.size) for one in found] == [
        ("file", f"{LOCAL}/web1/a", SIZE),
        ("file", f"{LOCAL}/web1/b", SIZE),
        ("sharedfile", f"{bench.shared}/web1/c", SIZE),
    ]
    assert await bench.node.call(STORED_DISKS, StorageUnits(units=[])) == []


async def test_a_repeated_call_is_not_done_again_by_the_same_daemon(bench: Bench) -> None:
    """A call that was delayed on its way does not bring back what was removed meanwhile."""
    disk = bench.disk()
    await bench.on_disk(BLOCKDEV_CREATE, disk, key="7/0/1")
    await bench.on_disk(BLOCKDEV_REMOVE, disk, key="7/0/2")
    again = await bench.on_disk(BLOCKDEV_CREATE, disk, key="7/0/1")
    assert again.exists, "as it was answered the first time"
    assert await bench.disk_info(disk) == (False, 0, False)
    await bench.node.restart()
    await bench.on_disk(BLOCKDEV_CREATE, disk, key="7/0/1")
    assert await bench.disk_info(disk) == (True, SIZE, False)


# --- copies of disks ---


async def keys_of(bench: Bench) -> list[str]:
    """The certificates of new keys on both nodes."""
    args = TransferKeyArgs(instance_name="web1.example.com", key_name=KEY_NAME)
    return [
        (await node.call(TRANSFER_KEY_CREATE, args, key=f"1/1/{number}")).certificate
        for number, node in enumerate(bench.nodes)
    ]


def stream_args(
    bench: Bench, disk: DiskSpec, certificates: list[str]
) -> tuple[ReceiveArgs, SendArgs]:
    both: dict[str, Any] = {
        "instance_name": "web1.example.com",
        "token": "the token",
        "key_name": KEY_NAME,
        "address": ADDRESS,
        "size": SIZE * 1024 * 1024,
        "disk": DiskEnd(instance=bench.spec(disk), index=0),
    }
    receive = ReceiveArgs(**both, peer=certificates[0], limit=SIZE * 1024 * 1024)
    return receive, SendArgs(**both, peer=certificates[1], port=1)


async def test_disk_is_sent_to_the_node_that_waits_for_it(bench: Bench) -> None:
    disk, certificates = bench.disk(), await keys_of(bench)
    receive, send = stream_args(bench, disk, certificates)
    for node in (0, 1):
        await bench.on_disk(BLOCKDEV_CREATE, disk, node)
    progress = ProgressArgs(key="1/0/2")
    assert await bench.nodes[0].call(CALL_PROGRESS, progress) is None
    where = await bench.nodes[1].call(STREAM_RECEIVE, receive, key="1/0/1")
    assert where.port > 0
    assert where.inflates
    sent = await bench.nodes[0].call(STREAM_SEND, replace(send, port=where.port), key="1/0/2")
    assert sent.data_bytes
    assert await bench.nodes[0].call(CALL_PROGRESS, progress) is None, "it has ended"
    for number, receives in enumerate((False, True)):
        end = StreamArgs(instance_name="web1.example.com", token="the token", receives=receives)
        await bench.nodes[number].call(STREAM_END, end, key=f"1/0/{3 + number}")


async def test_stream_that_cannot_be_is_refused(bench: Bench) -> None:
    disk, certificates = bench.disk(), await keys_of(bench)
    receive, send = stream_args(bench, disk, certificates)
    receive = replace(receive, peer=certificates[1])
    assert await error_of(bench.node.call(STREAM_RECEIVE, receive, key="1/0/1")) == "StorageError"
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    wrong = replace(send, pack="lzma")
    assert await error_of(bench.node.call(STREAM_SEND, wrong, key="1/0/2")) == "OpPrereqError"
    assert await error_of(bench.node.call(STREAM_SEND, send, key="1/0/3")) == "HostError"
    args = TransferKeyArgs(instance_name="web1.example.com", key_name=KEY_NAME)
    for _ in range(2):
        await bench.node.call(TRANSFER_KEY_REMOVE, args, key="1/0/4")
    assert await error_of(bench.node.call(STREAM_RECEIVE, receive, key="1/0/5")) == "HostError"
    wrong_name = replace(args, key_name="../x")
    refused = bench.node.call(TRANSFER_KEY_CREATE, wrong_name, key="1/0/6")
    assert await error_of(refused) == "OpPrereqError"


async def test_data_moves_between_two_ends_of_a_node(bench: Bench) -> None:
    source, target = bench.disk(), bench.disk("disk-1", index=1)
    ends = [EndArgs(disk=DiskEnd(instance=bench.spec(one), index=0)) for one in (source, target)]
    size = SIZE * 1024 * 1024
    args = WithinArgs(
        instance_name="web1.example.com",
        token="t",
        source=ends[0],
        target=ends[1],
        size=size,
        limit=size,
    )
    assert await error_of(bench.node.call(STREAM_WITHIN, args, key="1/0/1")) == "StorageError"
    for disk in (source, target):
        await bench.on_disk(BLOCKDEV_CREATE, disk)
    wrong = replace(args, target=EndArgs())
    assert await error_of(bench.node.call(STREAM_WITHIN, wrong, key="1/0/2")) == "OpPrereqError"
    assert (await bench.node.call(STREAM_WITHIN, args, key="1/0/3")).data_bytes
    end = StreamArgs(instance_name="web1.example.com", token="t", receives=False)
    for _ in range(2):
        await bench.node.call(STREAM_END, end, key="1/0/4")


async def test_disk_is_copied_within_a_node(bench: Bench) -> None:
    source, target = bench.disk(), bench.disk("disk-1", index=1)
    args = CopyArgs(instance_name="web1.example.com", token="t", source=source, target=target)
    assert await error_of(bench.node.call(STREAM_COPY, args, key="1/0/1")) == "StorageError"
    for disk in (source, target):
        await bench.on_disk(BLOCKDEV_CREATE, disk)
    assert (await bench.node.call(STREAM_COPY, args, key="1/0/2")).data_bytes
    end = StreamArgs(instance_name="web1.example.com", token="t", receives=False)
    for _ in range(2):
        await bench.node.call(STREAM_END, end, key="1/0/3")


# --- figures ---


async def test_a_node_without_samples_has_neither_figures_nor_a_history(bench: Bench) -> None:
    assert await bench.node.call(FIGURES, Nothing()) == NodeFigures()
    args = HistoryArgs(uuid="instance-1", start=0, end=1, step=60)
    assert await bench.node.call(HISTORY, args) == HistoryPart()
    forget = HistoryForgetArgs(uuid="instance-1")
    for key in ("1/0/1", "1/0/2"):
        await bench.node.call(HISTORY_FORGET, forget, key=key)


# --- OS definitions and allocators ---


async def test_programs_of_the_administrator_are_run_where_that_is_allowed(bench: Bench) -> None:
    program = "/usr/local/sbin/power"
    args = OobArgs(program=program, command="health", node_name="node2", timeout_s=5)
    assert await error_of(bench.node.call(OOB_RUN, args)) == "HostError"
    wanted = ProgramsArgs(programs=[program])
    assert list(await bench.node.call(OOB_PROBLEMS, wanted)) == [program]
    bench.node.allow_programs(program, "show")
    assert (await bench.node.call(OOB_RUN, args)).stdout == "[]"
    assert await bench.node.call(OOB_PROBLEMS, wanted) == {}
    agent_args = FenceAgentArgs(agent=CONTRACT_AGENT, action="status", timeout_s=5)
    assert (await bench.node.call(FENCE_AGENT_RUN, agent_args)).status == 0
    agents = FenceAgentsArgs(agents=[CONTRACT_AGENT, "fence_none"])
    assert list(await bench.node.call(FENCE_AGENT_PROBLEMS, agents)) == ["fence_none"]
    missing = FenceAgentArgs(agent="fence_none", action="status", timeout_s=5)
    assert await error_of(bench.node.call(FENCE_AGENT_RUN, missing)) == "HostError"
    ran = await bench.node.call(RESTRICTED_COMMAND, RestrictedArgs(command="show"))
    assert (ran.status, ran.stdout) == (0, "[]")
    assert (await bench.node.call(SHELL_COMMAND, ShellArgs(line="echo '[]'"))).status == 0


async def test_no_line_of_shell_is_run_unasked(bench: Bench) -> None:
    line = ShellArgs(line="exit 0")
    assert await error_of(bench.node.call(SHELL_COMMAND, line)) == "OpPrereqError"


async def test_hooks_are_listed_and_run(bench: Bench) -> None:
    assert await bench.node.call(HOOKS_LIST, Nothing()) == []
    bench.node.add_hook("instance-start", Phase.PRE, "10-check", "no")
    here = HookDirectory(hook="instance-start", phase=Phase.PRE)
    assert await bench.node.call(HOOKS_LIST, Nothing()) == [here]
    args = HooksArgs(hook=here.hook, phase=here.phase, environment={"GANETI_A": "b"})
    ran = await bench.node.call(HOOKS_RUN, args)
    assert ran == [HookResult(script="10-check", problem="exit status 1", output="no")]


async def test_oses_are_found_and_their_parameters_judged(bench: Bench) -> None:
    assert await bench.node.call(OS_DIAGNOSE, Nothing()) == []
    for name in ("tiny", "also"):
        bench.node.add_os(name)
    found = await bench.node.call(OS_DIAGNOSE, Nothing())
    assert [(one.name, one.problem, one.api_versions) for one in found] == [
        ("also", "", [20]),
        ("tiny", "", [20]),
    ]
    assert all({"create", "rename"} <= set(one.scripts) for one in found)

    async def judge(os: str, osparams: dict[str, str], **more: Any) -> str:
        args = OsValidateArgs(os=os, osparams=osparams, **more)
        return await error_of(bench.node.call(OS_VALIDATE, args))

    assert await judge("tiny", {"good": "x"}) == ""
    assert await judge("tiny", {"bad": "x"}) == "InvalidOS"
    assert await judge("tiny", {"bad": "x"}, are_defaults=True) == "InvalidOS"
    assert await judge("tiny+variant", {}) == "InvalidOS"
    assert await judge("huge", {}) == "InvalidOS"
    assert await judge("huge", {"bad": "x"}, are_defaults=True) == ""
    assert await judge("../tiny", {}) == "OpPrereqError"


async def test_an_os_is_installed_and_renamed_on_disks_that_are_there(bench: Bench) -> None:
    bench.node.add_os("tiny")
    spec = bench.spec(bench.disk())
    create = OsCreateArgs(instance=spec, os="tiny", osparams={})
    rename = OsRenameArgs(instance=spec, os="tiny", old_name="web0.example.com", osparams={})
    assert await error_of(bench.node.call(OS_CREATE, create, key="2/0/1")) == "StorageError"
    assert await error_of(bench.node.call(OS_RENAME, rename, key="2/0/2")) == "StorageError"
    await bench.on_disk(BLOCKDEV_CREATE, bench.disk())
    for key in ("2/0/3", "2/0/3", "2/0/4"):
        assert (await bench.node.call(OS_CREATE, create, key=key)).tail == "installed"
    assert "renamed" in (await bench.node.call(OS_RENAME, rename, key="2/0/5")).tail
    for wrong in (replace(create, os="huge"), replace(create, os="tiny+x")):
        assert await error_of(bench.node.call(OS_CREATE, wrong, key="2/0/6")) == "InvalidOS"
    unknown = replace(rename, os="huge")
    assert await error_of(bench.node.call(OS_RENAME, unknown, key="2/0/7")) == "InvalidOS"
    assert await error_of(bench.node.call(OS_CREATE, create)) == "OpPrereqError", "without a key"
    bench.node.fail_rename("tiny")
    assert await error_of(bench.node.call(OS_RENAME, rename, key="2/0/8")) == "InvalidOS"


async def test_a_script_is_ended_for_a_later_master_and_never_begins_again(bench: Bench) -> None:
    bench.node.add_os("tiny")
    bench.node.let_scripts_stay("tiny")
    args = OsCreateArgs(instance=bench.spec(), os="tiny", osparams={})
    waiting = asyncio.ensure_future(bench.node.call(OS_CREATE, args, key="3/0/1"))
    async with asyncio.timeout(30):
        while not bench.node.running_scripts():  # noqa: ASYNC110 - nobody tells that it runs
            await asyncio.sleep(0.01)
    end = EndWorkArgs(older=True)
    result = await bench.node.call(END_STALE_WORK, end, key="end/1", epoch=2, master="second")
    assert (result.ended, result.unfinished) == (["task 3/0/1"], [])
    assert bench.node.running_scripts() == []
    with contextlib.suppress(GanetiError):
        await waiting
    await bench.node.restart()
    keys = EndWorkArgs(keys=["3/0/1", "3/0/2"])
    result = await bench.node.call(END_STALE_WORK, keys, epoch=2, master="second")
    assert (result.ended, result.unfinished) == ([], [])
    call = bench.node.call(OS_CREATE, args, key="3/0/1", epoch=2, master="second")
    # Its status was written, or it was ended before there was one.
    assert await error_of(call) in ("InvalidOS", "HostError")
    call = bench.node.call(OS_CREATE, args, key="3/0/2", epoch=2, master="second")
    assert await error_of(call) == "HostError", "it never begins"


async def test_allocators_are_found_by_plain_names(bench: Bench) -> None:
    bench.node.add_allocator("oracle", '{"success": true}')
    args = AllocatorArgs(name="oracle", message="{}")
    answer = await bench.node.call(ALLOCATOR_RUN, args)
    assert (answer.found, answer.status, answer.stdout) == (True, 0, '{"success": true}')
    assert not (await bench.node.call(ALLOCATOR_RUN, replace(args, name="nobody"))).found
    looked = await bench.node.call(ALLOCATOR_RUN, replace(args, message=None))
    assert (looked.found, looked.stdout) == (True, "")
    assert not (
        await bench.node.call(ALLOCATOR_RUN, replace(args, name="nobody", message=None))
    ).found
    for wrong in (replace(args, name="../oracle"), replace(args, options=["-x"])):
        assert await error_of(bench.node.call(ALLOCATOR_RUN, wrong)) == "OpPrereqError"
    good = replace(args, options=["--capacity=no"])
    assert (await bench.node.call(ALLOCATOR_RUN, good)).found


# --- guests ---


async def test_a_guest_starts_once_and_stops_however_often_it_is_asked(bench: Bench) -> None:
    spec = bench.spec(bench.disk())
    assert await error_of(bench.start(spec)) == "StorageError"
    assert await bench.state(spec) == ""
    await bench.on_disk(BLOCKDEV_CREATE, bench.disk())
    for _ in range(2):
        await bench.start(spec)
        assert await bench.state(spec) == "running"
    await bench.node.restart()
    found = await bench.node.call(INSTANCES_INFO, HypervisorsArgs(hypervisors=["fake"]))
    assert [(one.name, one.uuid, one.hypervisor, one.memory, one.vcpus) for one in found] == [
        (spec.name, spec.uuid, "fake", 128, 1)
    ]
    for _ in range(2):
        await bench.stop(spec)
        assert await bench.state(spec) == ""


async def test_a_running_guest_keeps_what_it_was_started_with(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec)
    await bench.start(replace(spec, memory=512))
    assert (await bench.on_guest(INSTANCE_INFO, spec)).memory == 128


async def test_start_resumes_a_paused_guest(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec, paused=True)
    assert await bench.state(spec) == "paused"
    await bench.start(spec, paused=True)
    assert await bench.state(spec) == "paused"
    await bench.start(spec)
    assert await bench.state(spec) == "running"
    await bench.start(spec, paused=True)
    assert await bench.state(spec) == "running"


async def test_only_a_guest_that_is_here_can_be_rebooted(bench: Bench) -> None:
    spec = bench.spec()
    assert await error_of(bench.reboot(spec)) == "HypervisorError"
    await bench.start(spec, paused=True)
    for kind in ("soft", "hard"):
        await bench.reboot(spec, kind)
        assert await bench.state(spec) == "running"
    assert await error_of(bench.reboot(spec, "full")) == "OpPrereqError"


async def test_what_runs_is_asked_of_hypervisors_that_the_node_has(bench: Bench) -> None:
    unknown = bench.spec(hypervisor="xen")
    calls: list[tuple[Procedure[Any, Any], Any]] = [
        (INSTANCES_INFO, HypervisorsArgs(hypervisors=["fake", "xen"])),
        (VALIDATE_HVPARAMS, HvParamsArgs(hypervisor="xen", hvparams={})),
        (NICS_CHECK, NicsArgs(hypervisor="xen", nics=[])),
        (INSTANCE_INFO, InstanceArgs(instance=unknown)),
        (INSTANCE_CONSOLE, InstanceArgs(instance=unknown)),
        (INSTANCE_START, StartArgs(instance=unknown)),
        (INSTANCE_SHUTDOWN, ShutdownArgs(instance=unknown, timeout_s=0)),
        (INSTANCE_REBOOT, RebootArgs(instance=unknown, reboot_type="hard", timeout_s=0)),
        (MIGRATION_INFO, InstanceArgs(instance=unknown)),
        (MIGRATION_FINISH_SOURCE, FinishMigrationArgs(instance=unknown, success=True)),
        (HOTPLUG_MEDIUM, MediumArgs(instance=unknown, drive="cdrom_image_path")),
        (HOTPLUG_LIMITS, InstanceArgs(instance=unknown)),
        (INSTANCE_VCPUS, VcpusArgs(instance=unknown, vcpus=1)),
        (INSTANCE_MEMORY, MemoryArgs(instance=unknown, memory=1)),
    ]
    for procedure, args in calls:
        error = await error_of(bench.node.call(procedure, args))
        assert error == "HypervisorError", procedure.name
    assert len(await bench.on_guest(HOTPLUG_OBSTACLES, unknown)) == 1
    known = bench.spec()
    for spec, number in ((unknown, 1), (known, 0)):
        fit = FitArgs(instance=spec, info=MigrationInfo(instance=spec, running=True))
        assert len(await bench.node.call(MIGRATION_OBSTACLES, fit)) == number
    assert await bench.node.call(INSTANCES_INFO, HypervisorsArgs(hypervisors=[])) == []
    good = HvParamsArgs(hypervisor="fake", hvparams={})
    assert await bench.node.call(VALIDATE_HVPARAMS, good) == []


async def test_a_console_is_one_of_a_guest_that_runs(bench: Bench) -> None:
    spec = bench.spec()
    assert await error_of(bench.on_guest(INSTANCE_CONSOLE, spec)) == "HypervisorError"
    await bench.start(spec)
    assert (await bench.on_guest(INSTANCE_CONSOLE, spec)).kind == "msg"


async def test_a_node_that_knows_itself_to_be_offline_starts_nothing(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec)
    values = {"offline_nodes": bench.node.name, "cluster_name": "c"}
    await bench.node.call(WRITE_SSCONF, SsconfArgs(position=1, values=values))
    assert await error_of(bench.start(replace(spec, uuid="instance-2"))) == "OpPrereqError"
    assert await error_of(bench.reboot(spec)) == "OpPrereqError"
    await bench.stop(spec)
    assert await bench.state(spec) == ""


# --- hardware ---


async def test_what_a_hypervisor_has_not_is_nothing_or_refused(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec)
    assert await bench.on_guest(AGENT_INFO, spec) is None
    assert (
        await bench.node.call(PINNED_HVPARAMS, HvParamsArgs(hypervisor="fake", hvparams={})) == {}
    )
    assert (await bench.on_guest(NVRAM_READ, spec)).content is None
    nic = NicSpec(uuid="nic-0", index=0, mac=MAC, link="no-such-bridge")
    assert await bench.node.call(NICS_CHECK, NicsArgs(hypervisor="fake", nics=[nic])) == []
    assert await error_of(bench.node.call(NVRAM_FORGET, ForgetNvramArgs(instance=spec))) == ""
    refused: list[tuple[Procedure[Any, Any], Any]] = [
        (INSTANCE_SCREENSHOT, InstanceArgs(instance=spec)),
        (CONSOLE_OPEN, ConsoleArgs(instance=spec, kind="serial", address="127.0.0.1")),
        (AGENT_FREEZE, FrozenArgs(instance=spec, limit_s=1)),
        (AGENT_THAW, InstanceArgs(instance=spec)),
        (NVRAM_WRITE, WriteNvramArgs(instance=spec, content=b"x")),
    ]
    for procedure, args in refused:
        assert await error_of(bench.node.call(procedure, args)) == "HypervisorError", procedure.name


async def test_kvm_answers_about_guests_that_are_down(bench: Bench) -> None:
    spec = bench.spec(hypervisor="kvm")
    assert await bench.on_guest(INSTANCE_INFO, spec) is None
    assert await bench.on_guest(AGENT_INFO, spec) is None
    for procedure in (INSTANCE_SCREENSHOT, INSTANCE_CONSOLE, MIGRATION_INFO):
        assert await error_of(bench.on_guest(procedure, spec)) == "HypervisorError", procedure.name
    freeze = FrozenArgs(instance=spec, limit_s=1)
    assert await error_of(bench.node.call(AGENT_FREEZE, freeze)) == "HypervisorError"
    assert (await bench.on_guest(AGENT_THAW, spec)).file_systems == 0
    nic = NicSpec(uuid="nic-0", index=3, mac=MAC, link="no-such-bridge")
    (problem,) = await bench.node.call(NICS_CHECK, NicsArgs(hypervisor="kvm", nics=[nic]))
    assert problem.startswith("NIC 3: the bridge 'no-such-bridge' does not exist")
    memory = await bench.node.call(INSTANCE_MEMORY, MemoryArgs(instance=spec, memory=64))
    assert memory.memory == 0
    assert (await bench.node.call(INSTANCE_VCPUS, VcpusArgs(instance=spec, vcpus=2))).vcpus == 0


async def test_disks_of_a_guest_that_is_down_do_not_move(bench: Bench) -> None:
    spec = bench.spec(hypervisor="kvm")
    assert await bench.on_guest(DISK_MOVE_OBSTACLES, spec) == [
        "web1.example.com does not run on this node"
    ]
    begin = BeginDiskMoveArgs(instance=spec, token="t1", disks=())
    move = DiskMoveArgs(instance=spec, token="t1")
    refused: list[tuple[Procedure[Any, Any], Any]] = [
        (DISK_MOVE_BEGIN, begin),
        (DISK_MOVE_STATUS, move),
        (DISK_MOVE_SWITCH, move),
    ]
    for procedure, args in refused:
        assert await error_of(bench.node.call(procedure, args)) == "HypervisorError", procedure.name
    others = replace(begin, disks=(bench.disk(),))
    assert await error_of(bench.node.call(DISK_MOVE_BEGIN, others)) == "OpPrereqError"
    for forget in (False, True, True):
        args = EndDiskMoveArgs(instance=spec, token="t1", forget=forget)
        assert not (await bench.node.call(DISK_MOVE_END, args)).is_moved
    (obstacle,) = await bench.on_guest(DISK_MOVE_OBSTACLES, bench.spec())
    assert "cannot move disks of running guests" in obstacle


async def test_nvram_goes_with_its_instance(bench: Bench) -> None:
    spec = bench.spec(hypervisor="kvm")
    content = wire.encode({"tpm": b"state"})
    assert (await bench.on_guest(NVRAM_READ, spec)).content is None
    for _ in range(2):
        await bench.node.call(NVRAM_WRITE, WriteNvramArgs(instance=spec, content=content))
    await bench.node.restart()
    read = await bench.on_guest(NVRAM_READ, spec)
    await bench.nodes[1].call(NVRAM_WRITE, WriteNvramArgs(instance=spec, content=read.content))
    for _ in range(2):
        await bench.node.call(NVRAM_FORGET, ForgetNvramArgs(instance=spec))
        assert (await bench.on_guest(NVRAM_READ, spec)).content is None
    assert (await bench.on_guest(NVRAM_READ, spec, 1)).content == read.content


# --- running guests that change ---


async def test_a_running_guest_gets_disks_and_gives_them_up(bench: Bench) -> None:
    disk = bench.disk()
    spec = bench.spec()

    async def change(action: DeviceAction) -> str:
        args = DiskChangeArgs(instance=spec, action=action, disk=disk)
        return await error_of(bench.node.call(HOTPLUG_DISK, args))

    assert await bench.on_guest(HOTPLUG_OBSTACLES, spec) == []
    assert await change(DeviceAction.ADD) == "StorageError", "also if no guest runs"
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    assert await change(DeviceAction.ADD) == "", "nothing to change"
    await bench.start(spec)
    for action in (DeviceAction.ADD, DeviceAction.ADD, DeviceAction.GROW):
        assert await change(action) == ""
        info = await bench.on_guest(MIGRATION_INFO, spec)
        assert [one.uuid for one in info.instance.disks] == [disk.uuid]
    assert await change(DeviceAction.MODIFY) == "OpPrereqError"
    for _ in range(2):
        assert await change(DeviceAction.REMOVE) == ""
        info = await bench.on_guest(MIGRATION_INFO, spec)
        assert info.instance.disks == ()


async def test_a_running_guest_gets_nics_and_gives_them_up(bench: Bench) -> None:
    nic = NicSpec(uuid="nic-0", index=0, mac=MAC, link="br0")
    spec = bench.spec()

    async def change(action: DeviceAction, nic: NicSpec = nic) -> str:
        args = NicChangeArgs(instance=spec, action=action, nic=nic)
        return await error_of(bench.node.call(HOTPLUG_NIC, args))

    async def nics() -> tuple[NicSpec, ...]:
        info = await bench.on_guest(MIGRATION_INFO, spec)
        found: tuple[NicSpec, ...] = info.instance.nics
        return found

    assert await change(DeviceAction.ADD) == "", "nothing to change"
    await bench.start(spec)
    assert await nics() == ()
    for _ in range(2):
        assert await change(DeviceAction.ADD) == ""
        assert await nics() == (nic,)
    moved = replace(nic, link="br1")
    assert await change(DeviceAction.MODIFY, moved) == ""
    assert await nics() == (moved,)
    assert await change(DeviceAction.GROW) == "OpPrereqError"
    for _ in range(2):
        assert await change(DeviceAction.REMOVE) == ""
        assert await nics() == ()


async def test_a_running_guest_gets_processors_and_gives_them_up(bench: Bench) -> None:
    spec = bench.spec()

    async def change(vcpus: int) -> int:
        args = VcpusArgs(instance=spec, vcpus=vcpus)
        answer: VcpusResult = await bench.node.call(INSTANCE_VCPUS, args)
        return answer.vcpus

    assert await change(4) == 0, "nothing to change"
    assert await bench.on_guest(HOTPLUG_LIMITS, spec) == GuestLimits()
    await bench.start(spec)
    limits = await bench.on_guest(HOTPLUG_LIMITS, spec)
    assert limits.least_vcpus <= spec.vcpus < limits.most_vcpus
    for vcpus in (4, 4, 2, spec.vcpus):
        assert await change(vcpus) == vcpus
        assert (await bench.on_guest(INSTANCE_INFO, spec)).vcpus == vcpus


async def test_media_and_memory_of_a_running_guest_change(bench: Bench) -> None:
    drive = "cdrom_image_path"
    spec = bench.spec(hvparams={drive: "/a.iso"})
    change = MediumArgs(instance=replace(spec, hvparams={drive: "/b.iso"}), drive=drive)
    assert (
        await bench.node.call(INSTANCE_MEMORY, MemoryArgs(instance=spec, memory=64))
    ).memory == 0
    assert (await bench.node.call(HOTPLUG_MEDIUM, change)).is_changed, "its next start has it"
    await bench.start(spec)
    assert (await bench.node.call(HOTPLUG_MEDIUM, change)).is_changed
    info = await bench.on_guest(MIGRATION_INFO, spec)
    assert info.instance.hvparams[drive] == "/b.iso"
    less = await bench.node.call(INSTANCE_MEMORY, MemoryArgs(instance=spec, memory=64))
    assert less.memory == 64
    assert (await bench.on_guest(INSTANCE_INFO, spec)).memory == 64
    await bench.stop(spec)
    await bench.start(bench.spec())
    assert not (await bench.node.call(HOTPLUG_MEDIUM, change)).is_changed, "it has no such drive"


# --- migration ---


async def test_a_guest_goes_from_one_node_to_the_other(bench: Bench) -> None:
    spec = bench.spec()
    assert await error_of(bench.accept(spec)) == "HypervisorError", "it does not run"
    await bench.start(spec)
    for _ in range(2):
        where = await bench.accept(spec)
        assert where.address == ADDRESS
        assert await bench.states(spec) == ("running", "incoming")
    for _ in range(2):
        assert await bench.send(spec, where.port) == "completed"
        assert await bench.states(spec) == ("postmigrate", "incoming")
    for node in bench.nodes:
        await node.restart()
    for _ in range(2):
        await bench.finish(spec, 1, success=True)
        assert await bench.states(spec) == ("postmigrate", "running")
    for _ in range(2):
        await bench.finish(spec, 0, success=True)
        assert await bench.states(spec) == ("", "running")


@pytest.mark.parametrize("state", ["running", "paused"])
async def test_a_migration_that_failed_leaves_the_guest_at_its_source_as_it_was(
    bench: Bench, state: str
) -> None:
    spec = bench.spec()
    await bench.start(spec, paused=state == "paused")
    await bench.accept(spec)
    for _ in range(2):
        await bench.send(spec)
    for _ in range(2):
        await bench.finish(spec, 1, success=False)
        assert await bench.states(spec) == ("postmigrate", "")
    for _ in range(2):
        await bench.finish(spec, 0, success=False)
        assert await bench.states(spec) == (state, "")


async def test_no_end_of_a_migration_is_ended_while_the_guest_runs_there(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec)
    assert await error_of(bench.finish(spec, 0, success=True)) == "HypervisorError"
    await bench.accept(spec)
    await bench.send(spec)
    await bench.finish(spec, 1, success=True)
    assert await error_of(bench.finish(spec, 1, success=False)) == "HypervisorError"
    assert await bench.states(spec) == ("postmigrate", "running")
    await bench.finish(spec, 0, success=True)
    assert await error_of(bench.finish(spec, 0, success=False)) == "HypervisorError", "it is gone"


async def test_missing_guest_can_neither_arrive_nor_resume(bench: Bench) -> None:
    spec = bench.spec()
    assert await error_of(bench.finish(spec, 1, success=True)) == "HypervisorError"
    assert await error_of(bench.finish(spec, 0, success=False)) == "HypervisorError"
    assert await error_of(bench.send(spec)) == "HypervisorError"
    assert await error_of(bench.finish(spec, 1, success=False)) == ""
    assert await error_of(bench.finish(spec, 0, success=True)) == ""


async def test_both_ends_of_a_migration_take_no_other_change(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec)
    await bench.accept(spec)
    assert await error_of(bench.start(spec, 1)) == "HypervisorError"
    assert await error_of(bench.reboot(spec, node=1)) == "HypervisorError"
    await bench.send(spec)
    assert await error_of(bench.start(spec, 0)) == "HypervisorError"
    assert await error_of(bench.reboot(spec, node=0)) == "HypervisorError"
    assert await bench.states(spec) == ("postmigrate", "incoming")


async def test_a_guest_is_not_waited_for_where_it_runs_or_has_no_disks(bench: Bench) -> None:
    disk = bench.disk()
    spec = bench.spec(disk)
    await bench.on_disk(BLOCKDEV_CREATE, disk)
    await bench.start(spec)
    assert await error_of(bench.accept(spec)) == "StorageError"
    assert await bench.state(spec, 1) == ""
    info = await bench.on_guest(MIGRATION_INFO, spec)
    here = IncomingArgs(instance=spec, address=ADDRESS, info=info)
    assert await error_of(bench.nodes[0].call(MIGRATION_ACCEPT, here)) == "HypervisorError"
    assert await bench.states(spec) == ("running", "")


async def test_a_guest_brings_the_hardware_that_it_has(bench: Bench) -> None:
    spec = bench.spec()
    await bench.start(spec)
    await bench.accept(replace(spec, memory=999))
    found = await bench.on_guest(INSTANCE_INFO, spec, 1)
    assert found.memory == 128


def test_every_procedure_that_the_model_answers_is_held_to_the_contract() -> None:
    model = two_nodes("model", Path("/unused"))[0]
    assert isinstance(model, ModelContractNode)
    text = Path(__file__).read_text()
    calls = text[text.index("class Bench") :]
    missing = [
        name for name in model.node.handlers() if not re.search(rf"\b{name.upper()}\b", calls)
    ]
    assert missing == []


# --- long lives ---

STEPS = 150
WEIGHTS = (5, 1, 1, 5, 2, 1, 5, 5, 5, 1, 1)
"""Of the acts of a life: guests run most of the time, and are often on their way."""


async def life(nodes: list[ContractNode], shared: str, seed: int) -> list[str]:
    """What a node answers to a random sequence of calls about two instances, restarts between."""
    bench, chosen, told = Bench(nodes, shared), random.Random(seed), []
    disks = [bench.disk(f"disk-{number}", template="sharedfile") for number in range(2)]
    specs = [
        bench.spec(*disks[:count], uuid=f"instance-{count}", name=f"web{count}.example.com")
        for count in range(2)
    ]
    nic = NicSpec(uuid="nic-0", index=0, mac=MAC, link="br0")

    # The fake hypervisor cannot see whether its peer waits, or has sent: it is asked when that is so.
    async def send(spec: InstanceSpec) -> None:
        if await bench.state(spec, 1) == "incoming":
            await bench.send(spec)

    async def finish(spec: InstanceSpec, node: int, *, success: bool) -> None:
        if not (node and success) or await bench.state(spec, 0) == "postmigrate":
            await bench.finish(spec, node, success=success)

    acts: list[Callable[[InstanceSpec, int], Awaitable[Any]]] = [
        lambda _spec, node: bench.on_disk(BLOCKDEV_CREATE, chosen.choice(disks), node),
        lambda _spec, node: bench.on_disk(BLOCKDEV_ASSEMBLE, chosen.choice(disks), node),
        lambda _spec, node: bench.on_disk(BLOCKDEV_REMOVE, chosen.choice(disks), node),
        lambda spec, node: bench.start(
            spec, int(node and chosen.random() < 0.2), paused=chosen.random() < 0.3
        ),
        bench.stop,
        lambda spec, node: bench.reboot(spec, chosen.choice(("soft", "hard")), node),
        lambda spec, _node: bench.accept(spec),
        lambda spec, _node: send(spec),
        lambda spec, node: finish(spec, node, success=chosen.random() < 0.6),
        lambda spec, node: nodes[node].call(INSTANCE_MEMORY, MemoryArgs(instance=spec, memory=64)),
        lambda spec, node: nodes[node].call(
            HOTPLUG_NIC,
            NicChangeArgs(
                instance=spec,
                action=chosen.choice((DeviceAction.ADD, DeviceAction.REMOVE)),
                nic=nic,
            ),
        ),
    ]
    for number in range(STEPS):
        act, spec = chosen.choices(acts, WEIGHTS)[0], chosen.choice(specs)
        node = int(chosen.random() < 0.3)
        if chosen.random() < 0.05:
            await nodes[node].restart()
        error = await error_of(act(spec, node))
        states = [await bench.state(spec, node) for spec in specs for node in (0, 1)]
        there = [(await bench.disk_info(disk))[0] for disk in disks]
        told.append(f"{number}: {acts.index(act)} {spec.name} {node}: {error} {states} {there}")
    return told


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
async def test_a_long_life_is_the_same_on_both(seed: int, disk_path: Path) -> None:
    lives = []
    for kind in ("real", "model"):
        directory = disk_path / kind
        directory.mkdir()
        nodes = two_nodes(kind, directory)
        lives.append(await life(nodes, str(directory / "shared"), seed))
        for node in nodes:
            await node.close()
    assert lives[0] == lives[1]
    told = "".join(lives[0])
    for state in ("running", "incoming", "postmigrate", "HypervisorError"):
        assert state in told, f"no such life saw {state}"
