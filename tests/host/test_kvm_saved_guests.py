"""Real guests that are saved with their memory, and continue from it as if nothing had happened."""

import asyncio
import hashlib
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.saved_guests import HEADER, SavedGuest
from ganeti.model.instance_spec import InstanceSpec
from tests.support.killed_daemons import Daemons, Kill
from tests.support.kvm_nodes import Node, boot, nothing_is_left
from tests.support.tiny_guest import (
    MIB,
    are_consecutive,
    disk_heartbeats,
    heartbeats,
    install,
    make_disk,
    said,
    tiny_instance,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("G11"),
]

CAPACITY_MIB = 320


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return make_disk(tmp_path / "memory", CAPACITY_MIB)


async def running(
    node: Node, guest: Path, disk: Path, *, is_confined: bool = False
) -> InstanceSpec:
    instance = tiny_instance(guest)
    if is_confined:
        own = {"security_model": "user", "security_domain": "nobody", "use_chroot": True}
        instance = replace(instance, hvparams={**instance.hvparams, **own})
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    return instance


async def save(
    node: Node, instance: InstanceSpec, memory: Path, disk: Path, capacity_mib: int = CAPACITY_MIB
) -> tuple[SavedGuest, Path]:
    """Save a guest; its disk is copied while it is paused."""
    copy = disk.with_name("copy")

    async def take_disks() -> None:
        assert await node.state(instance) != "running"
        await asyncio.to_thread(shutil.copyfile, disk, copy)

    found = await node.driver.saved.save(instance, memory, capacity_mib * MIB, take_disks)
    return found, copy


@pytest.mark.parametrize("is_confined", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_a_guest_continues_from_the_moment_at_which_it_was_saved(
    node: Node, guest: Path, disk: Path, memory: Path, *, is_confined: bool
) -> None:
    """Twice from the same file: the heartbeats follow those of the moment, on the console and on the disk."""
    instance = await running(node, guest, disk, is_confined=is_confined)
    saved, copy = await save(node, instance, memory, disk)
    moment = max(disk_heartbeats(copy))
    await node.beats(instance, 5)
    assert await node.state(instance) == "running"
    assert not node.record(instance).is_saved
    await node.driver.stop(instance, 0)
    assert max(disk_heartbeats(disk)) > moment
    for _ in range(2):
        shutil.copyfile(copy, disk)
        await node.driver.saved.restore(instance, [str(disk)], memory, saved)
        assert await node.state(instance) == "paused"
        assert heartbeats(node.console(instance)) == []
        await node.driver.start(instance, [str(disk)])
        await node.beats(instance, 5)
        assert "Linux version" not in said(node.console(instance))
        spoken = heartbeats(node.console(instance))
        assert are_consecutive(spoken)
        # It may have been paused between its write to the disk and the line on its console.
        assert spoken[0] - moment in (0, 1, 2)
        await node.driver.stop(instance, 0)
        assert are_consecutive(sorted(disk_heartbeats(disk)))
    assert nothing_is_left(node, instance)


async def test_a_guest_with_little_space_is_paused_early_and_any_failure_lets_it_continue(
    node: Node, guest: Path, disk: Path, memory: Path
) -> None:
    instance = await running(node, guest, disk)
    saved, copy = await save(node, instance, memory, disk, capacity_mib=96)
    await node.beats(instance)

    async def fail() -> None:
        assert await node.state(instance) != "running"
        raise HypervisorError("no space for the snapshot")

    with pytest.raises(HypervisorError, match="no space for the snapshot"):
        await node.driver.saved.save(instance, make_disk(memory.with_name("other")), 2**30, fail)
    assert await node.state(instance) == "running"
    await node.beats(instance)
    await node.driver.stop(instance, 0)

    more = replace(instance, memory=128)
    assert await node.driver.saved.misfits(more, memory) == ["memory in MiB was 96 and is 128"]
    assert await node.driver.saved.misfits(instance, memory) == []
    shutil.copyfile(copy, disk)
    await node.driver.saved.restore(instance, [str(disk)], memory, saved)
    await node.driver.start(instance, [str(disk)])
    await node.beats(instance)
    await node.driver.stop(instance, 0)

    # A header that QEMU reads is not all: a byte in the middle is found before anything starts.
    with memory.open("r+b") as file:
        file.seek(saved.length // 2)
        file.write(b"damage")
    with pytest.raises(HypervisorError, match="SHA-256"):
        await node.driver.saved.restore(instance, [str(disk)], memory, saved)
    assert nothing_is_left(node, instance)


@pytest.mark.soak
async def test_a_stream_that_qemu_does_not_understand_leaves_nothing(
    node: Node, guest: Path, disk: Path, memory: Path
) -> None:
    instance = await running(node, guest, disk)
    saved, _copy = await save(node, instance, memory, disk)
    await node.driver.stop(instance, 0)
    with memory.open("r+b") as file:
        file.seek(HEADER)
        file.write(b"damage")
    digest = hashlib.sha256(memory.read_bytes()[: saved.length]).hexdigest()
    with pytest.raises(HypervisorError, match="does not continue"):
        await node.driver.saved.restore(
            instance, [str(disk)], memory, SavedGuest(saved.length, digest)
        )
    assert nothing_is_left(node, instance)


@pytest.mark.parametrize(
    ("question", "is_done"),
    [
        ("migrate-continue", False),
        pytest.param("migrate", True, marks=pytest.mark.soak),
        pytest.param("migrate-continue", True, marks=pytest.mark.soak),
    ],
)
def test_after_the_death_of_its_daemon_the_guest_continues(
    tmp_path: Path,
    acceleration: bytes,
    guest: Path,
    disk: Path,
    memory: Path,
    *,
    question: str,
    is_done: bool,
) -> None:
    """Killed while QEMU writes, while the guest is paused, and when everything is written."""
    daemons = Daemons(tmp_path / "node", acceleration)
    try:
        instance = daemons.do(lambda node: running(node, guest, disk))
        act = lambda node: save(node, instance, memory, disk)  # noqa: E731 - as short as its uses
        assert daemons.killed(act, Kill(question, is_done))
        daemons.do(lambda node: node.driver.upkeep.warm_up())
        assert daemons.do(lambda node: node.state(instance)) == "running"
        assert not daemons.node.record(instance).is_saved
        daemons.do(lambda node: node.beats(instance))
        saved, copy = daemons.do(act)
        daemons.do(lambda node: node.driver.stop(instance, 0))
        shutil.copyfile(copy, disk)
        restore = daemons.node.driver.saved.restore
        daemons.do(lambda node: restore(instance, [str(disk)], memory, saved))
        daemons.do(lambda node: node.driver.start(instance, [str(disk)]))
        daemons.do(lambda node: node.beats(instance))
    finally:
        daemons.end_guests()
