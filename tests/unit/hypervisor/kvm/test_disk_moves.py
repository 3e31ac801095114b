"""Moves of a guest's disks with a scripted QEMU: the daemon killed around each question, QEMU refusing or ending."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.disk_moves import DiskMoveRecords
from ganeti.hypervisor.kvm import disks
from ganeti.hypervisor.kvm.command_line import file_nodes, node_name
from ganeti.hypervisor.kvm.pace import LEAST_MIB_S
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import DiskSpec
from tests.unit.hypervisor.kvm.test_killed import DISK, INSTANCE, UUID, Host, Qemu, sweep

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G1", "G11", "F23")]

BEFORE = replace(INSTANCE, disks=(DISK,), disk_template="file")
NEW = replace(DISK, logical_id=("loop", "/2"), template="sharedfile")
UPPER, (FIRST, SECOND) = node_name("disk", DISK), file_nodes(DISK)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Programs, "find", lambda _self, _hvparams: "/usr/bin/qemu")


def new_path(host: Host) -> Path:
    return host.paths.root.with_name(f"{host.paths.root.name}.new")


async def up(root: Path) -> Host:
    host, old = Host(root), root.with_name(f"{root.name}.old")
    for path in (old, new_path(host)):
        path.write_bytes(bytes(1 << 20))
    await host.driver.start(BEFORE, [str(old)])
    qemu = the_qemu(host)
    qemu.nodes |= {UPPER, FIRST}
    qemu.below[UPPER] = FIRST
    return host


def the_qemu(host: Host) -> Qemu:
    (qemu,) = host.qemus.values()
    return qemu


async def begin(host: Host, token: str = "t1") -> None:
    path = "rbd:fast/img" if NEW.template == "rbd" else str(new_path(host))
    await host.driver.disk_moves.begin(BEFORE, [NEW], [path], token=token, bandwidth_mib_s=0)


async def move(host: Host) -> None:
    await begin(host)
    assert (await host.driver.disk_moves.status(BEFORE, "t1")).in_step
    await host.driver.disk_moves.switch(BEFORE, "t1")
    assert await host.driver.disk_moves.end(BEFORE, "t1")


async def check_settled(host: Host) -> bool:
    """What the next daemon does, and the master asks: the guest runs on exactly the disk that the node says."""
    await host.driver.upkeep.warm_up()
    qemu, is_moved = the_qemu(host), await host.driver.disk_moves.end(BEFORE, "t1")
    right = SECOND if is_moved else FIRST
    assert qemu.below == {UPPER: right}
    assert qemu.nodes == {UPPER, right}
    assert (qemu.state, qemu.jobs) == ("running", {})
    record = GuestFiles.of(host.paths, UUID).read()
    assert record is not None
    assert record.instance.disks == ((NEW,) if is_moved else (DISK,))
    assert record.instance.disk_template == (NEW.template if is_moved else "file")
    assert record.resume_at == 0
    return is_moved


CEPH = replace(DISK, logical_id=("rbd", "img"), template="rbd", params={"access": "userspace"})


@pytest.mark.parametrize(
    "new", [NEW, pytest.param(CEPH, marks=pytest.mark.soak)], ids=["file", "ceph"]
)
async def test_a_move_whose_daemon_was_killed_is_settled_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: DiskSpec
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "NEW", new)
    outcomes = set()

    async def check(host: Host) -> None:
        outcomes.add(is_moved := await check_settled(host))
        if not is_moved:
            await move(host)
            assert await check_settled(host)

    assert await sweep(tmp_path, up, move, check) > 30
    assert outcomes == {False, True}


async def test_image_is_not_moved_below_a_node_of_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await up(tmp_path / "node")
    monkeypatch.setattr(sys.modules[__name__], "NEW", replace(NEW, params={"format": "qcow2"}))
    with pytest.raises(HypervisorError, match=r"disk 0 is or becomes an image \(qcow2\)"):
        await begin(host)
    assert not await check_settled(host)
    assert DiskMoveRecords(host.paths).read(UUID) is None


async def test_copy_gives_way_while_the_guest_uses_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await up(tmp_path / "node")
    qemu, real, speeds = the_qemu(host), the_qemu(host).answer, list[int]()
    stats = {"rd_operations": 0, "wr_operations": 0}
    device = f"/machine/peripheral/{device_id('disk', DISK.uuid)}/virtio-backend"
    progress = iter((0, 1 << 18, 1 << 19))

    def answer(there: Host, asked: str, arguments: dict[str, Any]) -> Any:
        if asked == "query-blockstats":
            return [{"qdev": device, "stats": stats}]
        if asked == "block-job-set-speed":
            speeds.append(arguments["speed"])
        answered = real(there, asked, arguments)
        if asked == "query-jobs":
            answered[0]["current-progress"] = next(progress)
        return answered

    monkeypatch.setattr(qemu, "answer", answer)
    await begin(host)
    moves = host.driver.disk_moves
    for _ in range(2):
        await moves.status(BEFORE, "t1")
        await asyncio.sleep(1)
        stats["wr_operations"] += 100
    assert speeds == [LEAST_MIB_S << 20]
    stats["wr_operations"] = 101
    await moves.status(BEFORE, "t1")
    assert speeds == [LEAST_MIB_S << 20, 0]


async def test_a_daemon_that_was_killed_while_the_guest_was_held_lets_it_continue(
    tmp_path: Path,
) -> None:
    async def check(host: Host) -> None:
        await host.driver.upkeep.warm_up()
        qemu, found = the_qemu(host), DiskMoveRecords(host.paths).read(UUID)
        assert qemu.state == "running"
        if found is not None:
            assert qemu.below == {UPPER: SECOND if found.is_moved else FIRST}

    await sweep(tmp_path, up, move, check)


@pytest.mark.parametrize(
    "command", ["blockdev-add", "blockdev-mirror", "block-job-cancel", "blockdev-reopen"]
)
async def test_a_command_that_qemu_refuses_leaves_the_old_disk_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    host = await up(tmp_path / "node")
    qemu, real, refused = the_qemu(host), the_qemu(host).answer, list[str]()

    def answer(there: Host, asked: str, arguments: dict[str, object]) -> object:
        if asked == command and not refused:
            refused.append(asked)
            if command == "block-job-cancel":  # the mirror fails at its end
                del qemu.jobs[str(arguments["device"])]
            raise HypervisorError(f"QEMU refused {asked}")
        return real(there, asked, arguments)

    monkeypatch.setattr(qemu, "answer", answer)
    with pytest.raises(HypervisorError):
        await move(host)
    assert refused
    assert not await check_settled(host)
    await move(host)
    assert await check_settled(host)


async def test_a_record_that_cannot_be_written_leaves_the_old_disk_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await up(tmp_path / "node")
    await begin(host)

    def fail(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskMoveRecords, "write", fail)
    with pytest.raises(OSError, match="No space"):
        await host.driver.disk_moves.switch(BEFORE, "t1")
    assert the_qemu(host).state == "running"
    assert not await check_settled(host)


async def test_the_record_outlives_the_guest_until_it_is_forgotten(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    await begin(host)
    await host.driver.disk_moves.switch(BEFORE, "t1")
    host.qemus.clear()
    moves = host.daemon().disk_moves
    assert await moves.end(BEFORE, "t1")
    assert not await moves.end(BEFORE, "t2")
    moves.forget(BEFORE, "t2")
    assert await moves.end(BEFORE, "t1")
    moves.forget(BEFORE, "t1")
    assert not await moves.end(BEFORE, "t1")


async def test_a_move_of_another_job_ends_the_one_that_was_left(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    await begin(host, "t0")
    await move(host)
    assert await check_settled(host)
    with pytest.raises(HypervisorError, match="are not being moved by this job"):
        await host.driver.disk_moves.status(BEFORE, "t0")


async def test_obstacles_are_named(tmp_path: Path) -> None:
    host = Host(tmp_path / "node")
    assert await host.driver.disk_moves.obstacles(BEFORE) == ["web1 does not run on this node"]
    host = await up(tmp_path / "other")
    assert await host.driver.disk_moves.obstacles(BEFORE) == []
    the_qemu(host).state = "io-error"
    assert await host.driver.disk_moves.obstacles(BEFORE) == [
        "web1 does not run: QEMU reports io-error"
    ]


async def test_the_copy_bypasses_the_cache_of_the_host_until_the_guest_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "_takes_direct_access", lambda _path: True)
    host = await up(tmp_path / "node")
    for template, is_direct in (("file", False), ("sharedfile", True)):
        new, token = replace(NEW, template=template), template
        move = (BEFORE, [new], [str(new_path(host))])
        await host.driver.disk_moves.begin(*move, token=token, bandwidth_mib_s=0)
        qemu = the_qemu(host)
        copy = next(target for _, target in qemu.jobs.values())
        assert qemu.direct[copy]
        await host.driver.disk_moves.switch(BEFORE, token)
        assert qemu.below[UPPER] == copy
        assert qemu.direct[copy] == is_direct


async def test_other_disks_than_the_guest_has_are_refused(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    with pytest.raises(HypervisorError, match="has other disks than its configuration"):
        await host.driver.disk_moves.begin(BEFORE, [], [], token="t1", bandwidth_mib_s=0)
