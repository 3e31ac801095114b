"""Calls about instances, on the fake hypervisor and on disks that tell what is done to them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from ganeti.base.errors import HypervisorError, InputError, StorageError
from ganeti.base.paths import Paths
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.model.disk_templates import FILE, DiskTemplate
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import DiskRole
from ganeti.node import instance
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.host import HypervisorsArgs
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
    RunningInstance,
    ShutdownArgs,
    StartArgs,
    Stopped,
)
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    MIGRATION_INFO,
    MIGRATION_RUN,
    FinishMigrationArgs,
    IncomingArgs,
    MigrateArgs,
    MigrationInfo,
)
from ganeti.storage.interface import BlockDevice

DISKS = tuple(
    DiskSpec(
        uuid=f"d{number}", index=number, size=1, template="file", logical_id=("loop", f"/d{number}")
    )
    for number in range(2)
)
SPEC = InstanceSpec(
    name="web1.example.com",
    uuid="instance-1",
    hypervisor="fake",
    os="tiny",
    memory=128,
    vcpus=1,
    hvparams={},
    disk_template="file",
    disks=DISKS,
)

HERE = MigrationInfo(instance=SPEC, running=True)


class TellingDevice(BlockDevice):
    """Writes down what is done to it, and fails where it is told to."""

    template: ClassVar[DiskTemplate] = FILE

    def __init__(self, node: "Node", disk: DiskSpec) -> None:
        self._node, self._disk = node, disk

    @property
    def path(self) -> str:
        return str(self._node.root / self._disk.uuid)

    def _do(self, what: str) -> None:
        self._node.done.append(f"{what} {self._disk.uuid}")
        if f"{what} {self._disk.uuid}" in self._node.failing:
            raise StorageError(f"{what} failed")

    async def create(self, size_mib: int) -> None:
        self._do("create")

    async def remove(self) -> None:
        self._do("remove")

    async def open(self, role: DiskRole) -> None:
        self._do("assemble")

    async def close(self) -> None:
        self._do("shutdown")

    async def check_identity(self) -> None:
        self._do("look at")

    async def grow(self, size_mib: int) -> None:
        self._do("grow")

    async def size_mib(self) -> int | None:
        return 1


class Node:
    def __init__(self, root: Path, **failures: str) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        for disk in DISKS:
            (root / disk.uuid).touch()
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.hypervisor = FakeHypervisor(Paths(root), failures=failures)
        self.locks = InstanceLocks()
        self.histories = set[str]()
        self.handlers = instance.handlers(
            {"fake": self.hypervisor},
            lambda name, disk: TellingDevice(self, disk),
            self.locks,
            self.histories.__contains__,
        )

    async def call(self, procedure: Procedure[Any, Any], args: Any) -> Any:
        return await self.handlers[procedure.name](args, Call(key="1/0/1"))

    async def running(self) -> list[str]:
        found = await self.call(INSTANCES_INFO, HypervisorsArgs(hypervisors=["fake"]))
        return [one.name for one in found]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_starting_assembles_the_disks_and_stopping_gives_them_up(node: Node) -> None:
    await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    assert node.done == ["assemble d0", "assemble d1"]
    assert await node.running() == [SPEC.name]
    node.done.clear()
    await node.call(INSTANCE_SHUTDOWN, ShutdownArgs(instance=SPEC, timeout_s=0))
    assert node.done == ["shutdown d1", "shutdown d0"]
    assert await node.running() == []


async def test_stopped_guest_has_a_history_if_its_figures_were_recorded(node: Node) -> None:
    args = ShutdownArgs(instance=SPEC, timeout_s=0)
    assert await node.call(INSTANCE_SHUTDOWN, args) == Stopped(has_history=False)
    node.histories.add(SPEC.uuid)
    assert await node.call(INSTANCE_SHUTDOWN, args) == Stopped(has_history=True)


async def test_the_hypervisor_gets_the_paths_in_the_order_of_the_disks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Sequence[str]] = []

    async def start(spec: InstanceSpec, disk_paths: Sequence[str], *, paused: bool) -> None:
        seen.append(disk_paths)

    monkeypatch.setattr(node.hypervisor, "start", start)
    await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    assert seen == [[str(node.root / "d0"), str(node.root / "d1")]]


async def test_a_start_that_fails_gives_the_disks_up(tmp_path: Path) -> None:
    node = Node(tmp_path, start="QEMU died")
    with pytest.raises(HypervisorError, match="QEMU died"):
        await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    assert node.done == ["assemble d0", "assemble d1", "shutdown d1", "shutdown d0"]
    assert await node.running() == []


@pytest.mark.requirement("G11")
async def test_a_start_that_fails_leaves_a_guest_that_lives_its_disks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs already, stands still, or is in the middle of a migration."""
    await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    node.done.clear()

    async def fail(*rest: Any, **more: Any) -> None:
        raise HypervisorError("it stands still")

    monkeypatch.setattr(node.hypervisor, "start", fail)
    monkeypatch.setattr(node.hypervisor, "accept", fail)
    with pytest.raises(HypervisorError, match="it stands still"):
        await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    with pytest.raises(HypervisorError, match="it stands still"):
        await node.call(MIGRATION_ACCEPT, IncomingArgs(instance=SPEC, address="a", info=HERE))
    assert [one for one in node.done if one.startswith("shutdown")] == []


async def test_failed_start_keeps_disks_active_while_the_guest_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, start="QEMU died")

    async def silent(_uuid: str) -> None:
        raise HypervisorError("no answer")

    monkeypatch.setattr(node.hypervisor, "one_running", silent)
    with pytest.raises(HypervisorError, match="QEMU died"):
        await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    assert node.done == ["assemble d0", "assemble d1"]


async def test_failed_assembly_closes_the_earlier_disks(node: Node) -> None:
    node.failing = {"assemble d1", "shutdown d0"}
    with pytest.raises(StorageError, match="assemble failed"):
        await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    assert node.done == ["assemble d0", "assemble d1", "shutdown d0"]
    assert await node.running() == []


async def test_stop_closes_every_disk_and_reports_a_failure(node: Node) -> None:
    node.failing = {"shutdown d1"}
    await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    with pytest.raises(StorageError, match="shutdown failed"):
        await node.call(INSTANCE_SHUTDOWN, ShutdownArgs(instance=SPEC, timeout_s=0))
    assert node.done[-2:] == ["shutdown d1", "shutdown d0"]


async def test_information_about_one_instance_is_found_by_its_uuid(node: Node) -> None:
    await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    renamed = msgspec.structs.replace(SPEC, name="other.example.com")
    found = await node.call(INSTANCE_INFO, InstanceArgs(instance=renamed))
    assert isinstance(found, RunningInstance)
    assert (found.name, found.state) == (SPEC.name, "running")
    other = msgspec.structs.replace(SPEC, uuid="instance-2")
    assert await node.call(INSTANCE_INFO, InstanceArgs(instance=other)) is None


async def test_two_changes_of_one_instance_do_not_interleave_but_questions_never_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, order = asyncio.Event(), list[str]()

    async def slow(spec: InstanceSpec, *rest: Any, **more: Any) -> None:
        order.append("stop begins")
        await gate.wait()
        order.append("stop ends")

    async def reboot(spec: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        order.append("reboot")

    monkeypatch.setattr(node.hypervisor, "stop", slow)
    monkeypatch.setattr(node.hypervisor, "reboot", reboot)
    args = RebootArgs(instance=SPEC, reboot_type="hard", timeout_s=0)
    calls = [
        asyncio.ensure_future(
            node.call(INSTANCE_SHUTDOWN, ShutdownArgs(instance=SPEC, timeout_s=9))
        ),
        asyncio.ensure_future(node.call(INSTANCE_REBOOT, args)),
    ]
    await asyncio.sleep(0)
    assert await node.call(INSTANCE_INFO, InstanceArgs(instance=SPEC)) is None
    assert order == ["stop begins"]
    gate.set()
    await asyncio.gather(*calls)
    assert order == ["stop begins", "stop ends", "reboot"]


@pytest.mark.parametrize(("kind", "soft"), [("soft", True), ("hard", False)])
async def test_a_reboot_is_soft_or_hard(
    node: Node, monkeypatch: pytest.MonkeyPatch, kind: str, soft: bool
) -> None:
    seen: list[tuple[bool, float]] = []

    async def reboot(spec: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        seen.append((soft, timeout_s))

    monkeypatch.setattr(node.hypervisor, "reboot", reboot)
    await node.call(INSTANCE_REBOOT, RebootArgs(instance=SPEC, reboot_type=kind, timeout_s=7))
    assert seen == [(soft, 7)]


@pytest.mark.parametrize("kind", ["full", "", "Soft"])
async def test_other_reboots_are_not_the_nodes_business(node: Node, kind: str) -> None:
    with pytest.raises(InputError, match="reboot_type"):
        await node.call(INSTANCE_REBOOT, RebootArgs(instance=SPEC, reboot_type=kind, timeout_s=7))


@pytest.mark.parametrize(
    ("procedure", "args"),
    [
        (INSTANCES_INFO, HypervisorsArgs(hypervisors=["fake", "xen"])),
        (VALIDATE_HVPARAMS, HvParamsArgs(hypervisor="xen", hvparams={})),
        (INSTANCE_START, StartArgs(instance=msgspec.structs.replace(SPEC, hypervisor="xen"))),
    ],
)
async def test_an_unknown_hypervisor_is_an_error(
    node: Node, procedure: Procedure[Any, Any], args: Any
) -> None:
    with pytest.raises(HypervisorError, match=r"no hypervisor 'xen' \(it has fake\)"):
        await node.call(procedure, args)
    assert node.done == []


async def test_console_and_parameters_are_the_drivers_to_answer(node: Node) -> None:
    await node.call(INSTANCE_START, StartArgs(instance=SPEC))
    console = await node.call(INSTANCE_CONSOLE, InstanceArgs(instance=SPEC))
    assert console.kind == "msg"
    args = HvParamsArgs(hypervisor="fake", hvparams={})
    assert await node.call(VALIDATE_HVPARAMS, args) == []


@pytest.mark.parametrize("success", [True, False])
async def test_after_a_migration_only_the_end_with_the_guest_keeps_its_disks(
    tmp_path: Path, success: bool
) -> None:
    source, target = Node(tmp_path / "source"), Node(tmp_path / "target")
    await source.call(INSTANCE_START, StartArgs(instance=SPEC))
    info = await source.call(MIGRATION_INFO, InstanceArgs(instance=SPEC))
    incoming = await target.call(
        MIGRATION_ACCEPT, IncomingArgs(instance=SPEC, address="192.0.2.2", info=info)
    )
    assert target.done == ["assemble d0", "assemble d1"]
    send = MigrateArgs(instance=SPEC, address=incoming.address, port=incoming.port)
    await source.call(MIGRATION_RUN, send)
    for node in (source, target):
        node.done.clear()
    end = FinishMigrationArgs(instance=SPEC, success=success)
    await target.call(MIGRATION_FINISH_TARGET, end)
    await source.call(MIGRATION_FINISH_SOURCE, end)
    given_up = ["shutdown d1", "shutdown d0"]
    assert source.done == (given_up if success else [])
    assert target.done == ([] if success else given_up)
    assert (await source.running(), await target.running()) == (
        ([], [SPEC.name]) if success else ([SPEC.name], [])
    )


async def test_a_guest_that_cannot_be_accepted_leaves_no_disks_assembled(tmp_path: Path) -> None:
    node = Node(tmp_path, accept="no port")
    with pytest.raises(HypervisorError, match="no port"):
        await node.call(MIGRATION_ACCEPT, IncomingArgs(instance=SPEC, address="a", info=HERE))
    assert node.done[-2:] == ["shutdown d1", "shutdown d0"]


@pytest.mark.parametrize("act", ["start", "accept"])
async def test_a_cancelled_call_gives_the_disks_up(
    node: Node, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    async def hang(*rest: Any, **more: Any) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(node.hypervisor, act, hang)
    calls: dict[str, Callable[[], Any]] = {
        "start": lambda: node.call(INSTANCE_START, StartArgs(instance=SPEC)),
        "accept": lambda: node.call(
            MIGRATION_ACCEPT, IncomingArgs(instance=SPEC, address="a", info=HERE)
        ),
    }
    task = asyncio.ensure_future(calls[act]())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert node.done[-2:] == ["shutdown d1", "shutdown d0"]
    assert node.locks.statistics() == {}
