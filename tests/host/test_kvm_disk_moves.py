"""A real guest whose disk moves to another file while it writes: no write is lost, whoever dies at which step."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.mirror import free_port
from ganeti.model.disk_templates import DISK_TEMPLATES, RBD
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.rpc.procedures.disk_moves import DiskMoveStatus
from tests.support.killed_daemons import Daemons, DyingMonitor, Kill, each, numbered
from tests.support.kvm_nodes import Node, boot
from tests.support.patience import patience
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    heartbeats,
    install,
    make_disk,
    open_files,
    tiny_instance,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.requirement("G1", "G11", "F23"),
]


@dataclass(frozen=True)
class Image:
    """A disk that QEMU opens at a server, in place of an image of Ceph; the server keeps it in a file."""

    file: Path
    port: int


Place = Path | Image


def file_of(place: Place) -> Path:
    return place.file if isinstance(place, Image) else place


@dataclass
class Move:
    """The move of the instance's disk from one file or image to another; its token."""

    instance: InstanceSpec
    old: Place
    new: Place
    token: str = "t1"
    bandwidth_mib_s: int = 0

    @property
    def disk(self) -> DiskSpec:
        disk = self.instance.disks[0]
        if isinstance(self.new, Image):
            params = {"pool": "rbd", "access": "userspace"}
            return replace(disk, template="rbd", logical_id=("rbd", "image"), params=params)
        return replace(disk, template="file", logical_id=("file", str(self.new)), params={})

    async def begin(self, node: Node) -> None:
        await node.driver.disk_moves.begin(
            self.instance,
            [self.disk],
            ["rbd:rbd/image" if isinstance(self.new, Image) else str(self.new)],
            token=self.token,
            bandwidth_mib_s=self.bandwidth_mib_s,
        )

    async def status(self, node: Node) -> DiskMoveStatus:
        return await node.driver.disk_moves.status(self.instance, self.token)

    async def in_step(self, node: Node) -> None:
        async with asyncio.timeout(60 * patience()):
            while not (await self.status(node)).in_step:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)

    async def switch(self, node: Node) -> int:
        return await node.driver.disk_moves.switch(self.instance, self.token)

    async def end(self, node: Node) -> bool:
        return await node.driver.disk_moves.end(self.instance, self.token)

    async def whole(self, node: Node) -> None:
        """All of it, as the master does it."""
        await self.begin(node)
        await self.in_step(node)
        await self.switch(node)
        assert await self.end(node)

    def back(self, token: str) -> "Move":
        """Return the reverse of this move, once it is done."""
        instance = replace(self.instance, disks=(self.disk,))
        return Move(instance, self.new, self.old, token)

    def uses(self, node: Node) -> set[Place]:
        """Which of the two QEMU has open."""
        files = set(open_files(node.record(self.instance).pid))
        return {
            place
            for place in (self.old, self.new)
            if (is_connected(place) if isinstance(place, Image) else str(place) in files)
        }


def is_connected(image: Image) -> bool:
    """Whether a client has a connection to the server of an image."""
    established, server = "01", f"0100007F:{image.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((row[2], row[3]) == (server, established) for row in rows)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Image]:
    """An image at a server: QEMU of this host has no driver of Ceph, so it gets that of another protocol."""
    made = Image(make_disk(tmp_path / "image"), free_port("127.0.0.1"))
    server = {"type": "inet", "host": "127.0.0.1", "port": str(made.port)}
    remote: Any = lambda _path: {"driver": "nbd", "server": server}  # noqa: E731
    monkeypatch.setitem(DISK_TEMPLATES, "rbd", replace(RBD, remote=remote))
    words = ["qemu-nbd", "--format=raw", "--persistent", "--shared=4", "--bind=127.0.0.1"]
    with subprocess.Popen([*words, f"--port={made.port}", str(made.file)]) as process:
        wait_until_listening(made.port)
        try:
            yield made
        finally:
            process.terminate()


def wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + 20 * patience()
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def holds_all(disk: Place, shown: list[int]) -> bool:
    """Whether every heartbeat that the console has shown is on the disk, in one row without a hole."""
    written = sorted(disk_heartbeats(file_of(disk)))
    return are_consecutive(written) and set(shown) <= set(written)


async def booted(node: Node, guest: Path, disk: Path, new: Place, **hvparams: Any) -> Move:
    instance = tiny_instance(guest, **hvparams)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    return Move(instance, disk, new)


async def test_a_guest_changes_its_disk_there_and_back_without_a_missing_write(
    node: Node, guest: Path, disk: Path, tmp_path: Path
) -> None:
    await check_there_and_back(node, await booted(node, guest, disk, make_disk(tmp_path / "new")))


async def test_a_guest_changes_to_an_image_of_ceph_and_back_without_a_missing_write(
    node: Node, guest: Path, disk: Path, image: Image
) -> None:
    await check_there_and_back(node, await booted(node, guest, disk, image))


async def check_there_and_back(node: Node, move: Move) -> None:
    disk = file_of(move.old)
    await move.begin(node)
    await move.in_step(node)
    assert move.uses(node) == {disk, move.new}
    assert 0 < await move.switch(node) < 5000 * patience()
    assert move.uses(node) == {move.new}
    assert node.record(move.instance).instance.disks == (move.disk,)
    before = disk.read_bytes()
    await node.beats(move.instance)
    assert disk.read_bytes() == before
    assert await move.switch(node) == 0  # repeated calls find it done
    assert await move.end(node)
    back = move.back("t2")
    await back.whole(node)
    assert back.uses(node) == {disk}
    await node.beats(move.instance)
    again = replace(move.instance, name=move.instance.name)
    third = Move(again, disk, move.new, "t3")
    await third.whole(node)
    shown = heartbeats(node.console(move.instance))
    assert are_consecutive(shown), shown
    await node.driver.stop(move.instance, 60)
    assert holds_all(move.new, shown)
    assert set(disk_heartbeats(file_of(move.new)).values()) == {1}  # one boot all the time


@pytest.mark.parametrize(
    "hvparams",
    [
        {"security_model": "user", "security_domain": "nobody", "use_chroot": True},
        {"disk_cache": "none", "disk_type": "scsi-hd", "disk_discard": "unmap", "root_path": "/dev/sda"},
    ],
    ids=["confined", "scsi"],
)  # fmt: skip
async def test_a_confined_guest_and_one_with_other_devices_change_their_disks(
    node: Node, guest: Path, disk: Path, tmp_path: Path, hvparams: dict[str, Any]
) -> None:
    move = await booted(node, guest, disk, make_disk(tmp_path / "new"), **hvparams)
    await move.whole(node)
    assert move.uses(node) == {move.new}
    await node.beats(move.instance)
    shown = heartbeats(node.console(move.instance))
    await node.driver.stop(move.instance, 60)
    assert holds_all(move.new, shown)


async def test_a_move_that_is_ended_before_the_switch_leaves_the_old_disk_in_use(
    node: Node, guest: Path, disk: Path, tmp_path: Path
) -> None:
    move = await booted(node, guest, disk, make_disk(tmp_path / "new"))
    with disk.open("r+b") as file:  # something to copy
        file.seek(40 << 20)
        file.write(os.urandom(8 << 20))
    move.bandwidth_mib_s = 1
    began = time.monotonic()
    await move.begin(node)
    await move.begin(node)  # the same call again joins it
    seen = await move.status(node)
    assert not seen.in_step
    assert seen.total >= 64 << 20
    with pytest.raises(HypervisorError, match="not in step"):
        await move.switch(node)
    assert not await move.end(node)
    assert time.monotonic() - began < 8 * patience()  # its bandwidth was limited, its end was not
    assert move.uses(node) == {disk}
    assert not await move.end(node)
    with pytest.raises(HypervisorError, match="could not be copied"):
        await move.status(node)
    await node.beats(move.instance)
    await replace_token(move).whole(node)
    assert move.uses(node) == {move.new}


def replace_token(move: Move) -> Move:
    return Move(move.instance, move.old, move.new, f"{move.token}+")


async def test_a_copy_of_another_size_is_refused_and_nothing_stays_open(
    node: Node, guest: Path, disk: Path, tmp_path: Path
) -> None:
    move = await booted(node, guest, disk, make_disk(tmp_path / "new"))
    make_disk(file_of(move.new), 68)
    with pytest.raises(HypervisorError, match="has 64 MiB, but the new storage gives it 68 MiB"):
        await move.begin(node)
    assert move.uses(node) == {disk}
    await node.beats(move.instance)


# --- kills -----------------------------------------------------------------------------------


@pytest.fixture
def daemons(tmp_path: Path, acceleration: bytes) -> Iterator[Daemons]:
    made = Daemons(tmp_path / "a", acceleration)
    yield made
    made.end_guests()


async def restored(node: Node) -> None:
    """What a new daemon does first."""
    await node.driver.upkeep.warm_up()


def settled(daemons: Daemons, move: Move) -> bool:
    """The node's daemon has begun again, and the master asks which disk is right: whether the guest has moved."""
    daemons.do(restored)
    is_moved = daemons.do(move.end)
    assert daemons.do(lambda node: node.state(move.instance)) == "running"
    assert move.uses(daemons.node) == {move.new if is_moved else move.old}
    assert daemons.do(move.end) == is_moved
    daemons.do(lambda node: node.beats(move.instance, 1))
    return is_moved


def killed_daemon(daemons: Daemons, move: Move, kill: Kill) -> tuple[bool, Move]:
    """Kill the daemon in a move, settle it, and finish it if it was undone; return the next move, the other way."""
    was_killed = daemons.killed(move.whole, kill)
    if not settled(daemons, move):
        again = replace_token(move)
        daemons.do(again.whole)
        assert again.uses(daemons.node) == {move.new}
    return was_killed, move.back(f"{move.token}-")


STEPS = each(
    "blockdev-add",
    "blockdev-mirror",
    "stop",
    "block-job-cancel",
    "blockdev-reopen",
    "cont",
    "blockdev-del",
)


def test_a_daemon_that_dies_at_a_step_leaves_the_guest_on_the_right_disk(
    daemons: Daemons, guest: Path, disk: Path, tmp_path: Path
) -> None:
    move = daemons.do(lambda node: booted(node, guest, disk, make_disk(tmp_path / "new")))
    first = move
    for kill in STEPS:
        was_killed, move = killed_daemon(daemons, move, kill)
        assert was_killed, kill
    check_all_written(daemons, first, move.old)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_daemon_that_dies_at_any_question_leaves_the_guest_on_the_right_disk(
    daemons: Daemons, guest: Path, disk: Path, tmp_path: Path
) -> None:
    move = daemons.do(lambda node: booted(node, guest, disk, make_disk(tmp_path / "new")))
    first = move
    for kill in numbered():
        was_killed, move = killed_daemon(daemons, move, kill)
        if not was_killed:
            break
    check_all_written(daemons, first, move.old)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_daemon_that_dies_at_a_step_of_a_move_to_ceph_leaves_the_guest_on_the_right_disk(
    daemons: Daemons, guest: Path, disk: Path, image: Image
) -> None:
    move = daemons.do(lambda node: booted(node, guest, disk, image))
    first = move
    for kill in STEPS:
        was_killed, move = killed_daemon(daemons, move, kill)
        assert was_killed, kill
    check_all_written(daemons, first, move.old)


def check_all_written(daemons: Daemons, move: Move, right: Place) -> None:
    shown = heartbeats(daemons.node.console(move.instance))
    assert are_consecutive(shown), shown
    daemons.do(lambda node: node.driver.stop(move.instance, 60))
    assert holds_all(right, shown)


OF_THE_SWITCH = STEPS[STEPS.index(Kill("stop", False)) :]
RECORDED = OF_THE_SWITCH[OF_THE_SWITCH.index(Kill("blockdev-reopen", True)) :]
"""The steps after which the node's record says that the guest has moved."""


class EndingMonitor(DyingMonitor):
    """A monitor at whose question QEMU dies, instead of the daemon."""

    ends: Kill | None = None
    pid = 0

    async def _ends_with(self, command: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        if self.ends is None or self.ends.question != command:
            return await ask()
        is_done, EndingMonitor.ends = self.ends.is_done, None
        if not is_done:
            os.kill(self.pid, signal.SIGKILL)
        try:
            return await ask()
        finally:
            os.kill(self.pid, signal.SIGKILL)


ORDINARY = (Kill("blockdev-reopen", False), Kill("blockdev-reopen", True), Kill("cont", True))
"""The steps around the node's record; each kill boots a guest twice."""


@pytest.mark.parametrize(
    ("kill", "is_image"),
    [
        pytest.param(
            kill,
            is_image,
            marks=[] if kill in ORDINARY and not is_image else pytest.mark.soak,
            id=f"{kill.question}-{kill.is_done}-{'image' if is_image else 'file'}",
        )
        for is_image in (False, True)
        for kill in OF_THE_SWITCH
    ],
)
def test_after_the_end_of_qemu_at_a_step_the_right_disk_has_all_writes(
    daemons: Daemons,
    guest: Path,
    disk: Path,
    tmp_path: Path,
    kill: Kill,
    is_image: bool,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    new = request.getfixturevalue("image") if is_image else make_disk(tmp_path / "new")
    monkeypatch.setattr(daemons, "monitor", EndingMonitor)
    monkeypatch.setattr(EndingMonitor, "ends", None)
    daemons.renew()
    move = daemons.do(lambda node: booted(node, guest, disk, new))

    async def ended(node: Node) -> None:
        EndingMonitor.pid = node.record(move.instance).pid
        await move.begin(node)
        await move.in_step(node)
        EndingMonitor.ends = kill
        try:
            await move.switch(node)
        except HypervisorError:
            pass
        else:
            assert kill.question in ("cont", "blockdev-del")  # the guest has its new disk

    daemons.do(ended)
    is_moved = daemons.do(move.end)
    right = move.new if is_moved else move.old
    assert is_moved == (kill in RECORDED)
    shown = heartbeats(daemons.node.console(move.instance))
    assert holds_all(right, shown)
    assert daemons.do(lambda node: node.state(move.instance)) is None
