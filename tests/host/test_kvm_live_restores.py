"""A real guest that starts while its disk still arrives from a backup: no write is lost, whichever process dies at any moment."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.hypervisor.kvm import live_restores
from ganeti.hypervisor.kvm.pci_slots import device_id
from tests.support.backup_store import DISK
from tests.support.kvm_nodes import READY, Node
from tests.support.live_restores import Live, on_backed_disk, restorable
from tests.support.patience import patience
from tests.support.qemu_images import convert
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    install,
    said,
    tiny_instance,
    wait_for_text,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.requirement("G1", "G11", "F23"),
]


@pytest.fixture
async def live(
    nodes: list[Node], guest: Path, disk: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Live]:
    """An instance with a backup, whose disk has other data by now."""
    options = getattr(request, "param", {})
    instance = tiny_instance(guest, **options.get("hvparams", {}))
    instance = on_backed_disk(instance, options.get("format", "raw"))
    install(guest, disk, instance.name)
    with disk.open("r+b") as file:
        file.seek(40 << 20)
        file.write(random.Random(1).randbytes(8 << 20))
    real = tmp_path / "real"
    real.write_bytes(b"\xff" * (64 << 20))
    if (form := options.get("format")) is not None:
        real.rename(raw := tmp_path / "raw")
        convert(raw, real, "raw", form)
    ways = {name: options.get(name, False) for name in ("is_local", "is_encrypted")}
    found = restorable(nodes, instance, disk, real, **ways)
    yield found
    await found.close()


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "live",
    [
        {},
        {"is_encrypted": True},
        {"format": "qcow2"},
        {"is_local": True, "hvparams": {"disk_type": "scsi-hd", "root_path": "/dev/sda"}},
        {"hvparams": {"security_model": "user", "security_domain": "nobody", "use_chroot": True}},
    ],
    ids=["two nodes", "encrypted", "image", "one node, scsi", "confined"],
    indirect=True,
)
async def test_guest_boots_from_the_backup_and_changes_to_its_disk_without_a_missing_write(
    live: Live,
) -> None:
    assert not await live.begin()
    await wait_for_text(live.nodes[0].console(live.instance), READY)
    assert live.uses() == {"overlay"}
    before = live.real.read_bytes()
    await live.beats()
    assert live.real.read_bytes() == before
    await live.copy()
    await live.in_step()
    with pytest.raises(HostError, match="its latest data is only in"):
        await live.end()
    await live.finish()
    assert live.uses() == {"real"}
    live.check_nothing_is_left()
    await live.beats()
    await live.driver.stop(live.instance, 60)
    beats = live.beats_on_disk()
    assert are_consecutive(beats)
    assert set(disk_heartbeats(live.on_disk()).values()) == {1}
    data = live.on_disk().read_bytes()
    assert data[40 << 20 : 48 << 20] == random.Random(1).randbytes(8 << 20)
    assert data[50 << 20 : 51 << 20] == bytes(1 << 20), "zeros of the backup replace old data"


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60 * patience()):
        while not await what():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.1)


async def test_guest_stops_without_its_backup_and_continues_with_it(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_restores, "RECONNECT_S", 1)
    await live.begin()
    await wait_for_text(live.nodes[0].console(live.instance), READY)
    await live.copy(bandwidth_mib_s=1)
    await live.server_is_killed()

    async def has_failed() -> bool:
        try:
            await live.driver.disk_moves.status(live.instance, live.token)
        except Exception as err:  # noqa: BLE001 - any error of the copy
            return "could not be copied" in str(err)
        return False

    await until(has_failed)
    # The master ends the copy; the guest needs no further block of the backup, or stops at one.
    assert not await live.driver.disk_moves.end(live.instance, live.token)
    assert not await live.begin()  # the command is repeated
    await live.beats()
    await live.copy()
    await live.in_step()
    await live.finish()
    await live.beats()
    await live.driver.stop(live.instance, 60)
    assert are_consecutive(live.beats_on_disk())
    live.check_nothing_is_left()


async def test_read_of_a_lost_backup_stops_the_guest_instead_of_failing_in_it(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_restores, "RECONNECT_S", 1)
    await live.begin()
    await wait_for_text(live.nodes[0].console(live.instance), READY)
    await live.server_is_killed()
    device = f"/machine/peripheral/{device_id('disk', DISK)}/virtio-backend"
    words = f'qemu-io -d {device} "aio_read {42 << 20} 4096"'
    ask = live.nodes[0].ask(live.instance)
    await ask("human-monitor-command", {"command-line": words})
    overlay = live.nodes[0].paths.live_restore(live.instance.uuid) / f"{DISK}.qcow2"
    assert overlay.exists()
    assert not await live.begin()
    await live.beats()


def live_device(live: Live) -> str:
    from ganeti.hypervisor.kvm.pci_slots import device_id

    return device_id("disk", live.instance.disks[0].uuid)


async def test_after_the_death_of_qemu_the_guest_starts_with_what_it_had_written(
    live: Live,
) -> None:
    await live.begin()
    await wait_for_text(live.nodes[0].console(live.instance), READY)
    await live.beats(5)
    await live.copy(bandwidth_mib_s=1)
    os.kill(live.nodes[0].record(live.instance).pid, signal.SIGKILL)

    async def is_gone() -> bool:
        return await live.driver.one_running(live.instance.uuid) is None

    await until(is_gone)
    assert not await live.begin()
    await wait_for_text(live.nodes[0].console(live.instance), r"READY hostname=\S+ boot=2 ")
    await live.copy()
    await live.in_step()
    await live.driver.disk_moves.switch(live.instance, live.token)
    os.kill(live.nodes[0].record(live.instance).pid, signal.SIGKILL)
    await until(is_gone)
    assert await live.begin(), "its own disk has everything"
    beats = live.beats_on_disk()
    assert are_consecutive(beats)
    assert set(disk_heartbeats(live.real).values()) == {1, 2}
    await live.end()
    live.check_nothing_is_left()
    assert said(live.nodes[0].console(live.instance)).count("READY") == 1
