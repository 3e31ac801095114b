"""A real guest that writes while it is backed up: each backup has exactly the bytes of its moment."""

import asyncio
import os
import random
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HostError
from ganeti.hypervisor.abilities import Moment
from ganeti.hypervisor.kvm.command_line import node_name
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.backups import ends
from ganeti.node.backups.ends import ChangesSource, open_changes
from ganeti.node.carrier.order import ChangesOrder
from ganeti.rpc.procedures.migration import MigrationEnd
from tests.support.backup_store import BackupStore
from tests.support.kvm_nodes import Node, accept, boot, migrate, send
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    install,
    make_disk,
    tiny_instance,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("G11"),
]

BLOCK = 64 * 1024


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    return BackupStore(tmp_path / "backups", tmp_path)


async def write(node: Node, instance: InstanceSpec, offset: int, length: int, pattern: int) -> None:
    """Let the guest's own device write, as the guest would."""
    path = f"/machine/peripheral/{device_id('disk', instance.disks[0].uuid)}/virtio-backend"
    words = f'qemu-io -d {path} "write -P {pattern} {offset} {length}"'
    await node.ask(instance)("human-monitor-command", {"command-line": words})


async def begin(node: Node, instance: InstanceSpec, base: str, bitmap: str) -> Moment:
    return await node.driver.moments.begin(instance, base=base, bitmap=bitmap, limit_s=60)


async def end(
    node: Node, instance: InstanceSpec, base: str, bitmap: str, *, keep: bool = True
) -> None:
    await node.driver.moments.end(instance, base=base, bitmap=bitmap, keep=keep)


def order(instance: InstanceSpec, moment: Moment, bitmap: str, **fields: Any) -> ChangesOrder:
    return ChangesOrder(
        export=instance.disks[0].uuid, bitmap=bitmap if moment.has_changes else "", **fields
    )


async def save(
    store: BackupStore, instance: InstanceSpec, moment: Moment, disk: Path, bitmap: str
) -> str:
    """Make a backup of the moment, in which the disk has the bytes that the store expects."""

    def work() -> str:
        wanted = order(instance, moment, bitmap)
        with open_changes(wanted, str(moment.socket), disk.stat().st_size) as changes:
            assert isinstance(changes, ChangesSource)
            return store.save_changes(changes, disk.stat().st_size, full=not moment.has_changes)

    return await asyncio.to_thread(work)


async def bitmaps(node: Node, instance: InstanceSpec) -> dict[str, bool]:
    for one in await node.ask(instance)("query-named-block-nodes", {"flat": True}):
        if one["node-name"] == node_name("disk", instance.disks[0]):
            return {bitmap["name"]: bitmap["recording"] for bitmap in one.get("dirty-bitmaps", ())}
    return {}


async def check_clean(node: Node, instance: InstanceSpec) -> None:
    """Nothing of a moment is left in QEMU."""
    ask = node.ask(instance)
    names = {one["node-name"] for one in await ask("query-named-block-nodes", {"flat": True})}
    assert not [one for one in names if one.startswith(("view", "before", "old"))]
    assert await ask("query-block-exports") == []
    assert await ask("query-fdsets") == []
    assert not node.files(instance).moment.exists()


def check_images(store: BackupStore) -> None:
    for image in store.path.glob("*.qcow2"):
        subprocess.run(["qemu-img", "check", "-q", str(image)], check=True)


async def test_backups_of_a_writing_guest_have_the_bytes_of_their_moments(
    node: Node, guest: Path, disk: Path, store: BackupStore
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    base, lengths, points = "", [], []
    for number in range(4):
        bitmap = f"b{number}"
        moment = await begin(node, instance, base, bitmap)
        assert moment.has_changes == bool(number)
        await node.beats(instance)  # it overwrites what the backup has yet to read
        await write(node, instance, 4 << 20, 8 * BLOCK, 0x60 + number)
        points.append(await save(store, instance, moment, disk, base))
        await end(node, instance, base, bitmap)
        await check_clean(node, instance)
        base = bitmap
        await node.beats(instance)
    assert await bitmaps(node, instance) == {"b3": True}
    for number, point in enumerate(points):
        content = store.read(point, disk.stat().st_size)
        copy = store.work / "copy"
        copy.write_bytes(content)
        beats = sorted(disk_heartbeats(copy))
        assert are_consecutive(beats)
        lengths.append(beats[-1])
        if number:
            assert (
                content[4 << 20 : (4 << 20) + 8 * BLOCK] == bytes([0x60 + number - 1]) * 8 * BLOCK
            )
    assert lengths == sorted(set(lengths)), "the guest went on after each"
    sizes = [one.stat().st_size for one in sorted(store.path.glob("*.qcow2"))]
    assert max(sizes) < 20 * BLOCK, "only what was written is there"
    await asyncio.to_thread(check_images, store)
    await node.driver.stop(instance, 0)


async def test_clone_of_a_writing_guest_has_the_bytes_of_one_moment_and_boots(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    moment = await begin(node, instance, "", "clone-1")
    shown = await asyncio.to_thread(disk_heartbeats, disk)
    await node.beats(instance)  # it overwrites what is yet to be read
    clone, size = disk.with_name("clone"), disk.stat().st_size

    def copy() -> None:
        wanted = ChangesOrder(export=instance.disks[0].uuid, whole=True, spare=str(disk.parent))
        with (
            open_changes(wanted, str(moment.socket), size) as source,
            clone.open("xb") as file,
        ):
            for zeros, data in source.pieces():
                file.seek(zeros, os.SEEK_CUR)
                file.write(data)
            source.finish()
            file.truncate(size)

    await asyncio.to_thread(copy)
    await end(node, instance, "", "clone-1", keep=False)
    await check_clean(node, instance)
    assert await bitmaps(node, instance) == {}
    beats = sorted(disk_heartbeats(clone))
    assert are_consecutive(beats)
    assert max(shown, default=0) <= beats[-1] < max(disk_heartbeats(disk))
    await node.beats(instance)
    await node.driver.stop(instance, 0)
    clone.rename(disk)
    await boot(node, instance, disk)
    await node.beats(instance)
    await node.driver.stop(instance, 0)


async def kept(node: Node, instance: InstanceSpec) -> int:
    """Return the bytes of old content that QEMU keeps for the moment."""
    for one in await node.ask(instance)("query-named-block-nodes", {"flat": True}):
        if one["node-name"] == node_name("old", instance.disks[0]):
            return int(one["image"]["actual-size"])
    raise AssertionError("there is no temporary file")


async def test_old_content_is_kept_only_of_what_the_backup_has_yet_to_read(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    await node.driver.start(instance, [str(disk)], paused=True)
    begin_at, length = 8 << 20, 24 << 20
    await write(node, instance, begin_at, length, 0x61)
    moment = await begin(node, instance, "", "b1")
    await write(node, instance, begin_at, 4 * BLOCK, 0x62)
    assert await kept(node, instance) >= 4 * BLOCK
    with open_changes(
        order(instance, moment, ""), str(moment.socket), disk.stat().st_size
    ) as changes:
        pieces = changes.pieces()
        content = b""
        while len(content) < 16 << 20:
            _, piece = await asyncio.to_thread(next, pieces)
            content += piece if len(piece) >= BLOCK else b""  # the others are headers
        assert await kept(node, instance) < BLOCK, "the space was given back"
        await write(node, instance, begin_at, 4 * BLOCK, 0x63)
        assert await kept(node, instance) < BLOCK
        await write(node, instance, begin_at + length - 4 * BLOCK, 4 * BLOCK, 0x64)
        assert await kept(node, instance) >= 4 * BLOCK
        for _, piece in pieces:
            content += piece if len(piece) >= BLOCK else b""
    assert content == b"\x61" * length
    await end(node, instance, "", "b1")
    await node.driver.stop(instance, 0)


async def test_failed_backup_loses_no_change(
    node: Node, guest: Path, disk: Path, store: BackupStore
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    moment = await begin(node, instance, "", "b0")
    await save(store, instance, moment, disk, "")
    await end(node, instance, "", "b0")
    await write(node, instance, 1 << 20, BLOCK, 0x41)
    await begin(node, instance, "b0", "b1")
    await write(node, instance, 2 << 20, BLOCK, 0x42)
    await end(node, instance, "b0", "b1", keep=False)
    await end(node, instance, "b0", "b1", keep=False)
    assert await bitmaps(node, instance) == {"b0": True}
    moment = await begin(node, instance, "b0", "b2")
    await node.ask(instance)("stop")
    point = await save(store, instance, moment, disk, "b0")
    await end(node, instance, "b0", "b2")
    content = store.read(point, disk.stat().st_size)
    assert content[1 << 20 : (1 << 20) + BLOCK] == b"A" * BLOCK
    assert content[2 << 20 : (2 << 20) + BLOCK] == b"B" * BLOCK
    await node.driver.stop(instance, 0)


@pytest.mark.parametrize("copies_disks", [False, True])
async def test_bitmap_moves_with_its_guest(
    nodes: list[Node], guest: Path, disk: Path, store: BackupStore, *, copies_disks: bool
) -> None:
    here, there = nodes
    instance = tiny_instance(guest, migration_bandwidth=256)
    install(guest, disk, instance.name)
    await boot(here, instance, disk)
    moment = await begin(here, instance, "", "b0")
    await save(store, instance, moment, disk, "")
    await end(here, instance, "", "b0")
    await write(here, instance, 40 << 20, BLOCK, 0x41)
    if copies_disks:
        new = make_disk(disk.with_name("copy"))
        await migrate(here, there, instance, new, copies_disks=True)
    else:
        new = disk
        await migrate(here, there, instance, disk)
    assert await bitmaps(there, instance) == {"b0": True}
    await write(there, instance, 50 << 20, BLOCK, 0x42)
    moment = await begin(there, instance, "b0", "b1")
    assert moment.has_changes
    point = await save(store, instance, moment, new, "b0")
    await there.ask(instance)("stop")
    await end(there, instance, "b0", "b1")
    content = store.read(point, new.stat().st_size)
    assert content[40 << 20 : (40 << 20) + BLOCK] == b"A" * BLOCK
    assert content[50 << 20 : (50 << 20) + BLOCK] == b"B" * BLOCK
    image = next(store.path.glob(f"{point}.*.qcow2"))
    assert image.stat().st_size < 20 * BLOCK, "only what was written is there"
    await there.driver.stop(instance, 0)


@dataclass
class Saves:
    """Backups of a guest, each with the next one's bitmap, and a write that comes after its moment."""

    store: BackupStore
    instance: InstanceSpec
    bitmap_of: dict[str, str] = field(default_factory=dict)
    by_bitmap: int = 0

    @property
    def base(self) -> str:
        """The bitmap of the changes since the last backup that is there."""
        return next((self.bitmap_of[one] for one in reversed(self.store.names())), "")

    async def save(self, node: Node, disk: Path, at: int) -> None:
        base, bitmap, content = self.base, f"b{self.store.made}", disk.read_bytes()
        moment = await begin(node, self.instance, base, bitmap)
        self.by_bitmap += moment.has_changes
        await write(node, self.instance, at, BLOCK, 0xFF)
        point = await save(self.store, self.instance, moment, disk, base)
        await end(node, self.instance, base, bitmap)
        self.store.expected[point], self.bitmap_of[point] = content, bitmap

    async def fail(self, node: Node, at: int) -> None:
        base = self.base
        await begin(node, self.instance, base, "failed")
        await write(node, self.instance, at, BLOCK, 0xFE)
        await end(node, self.instance, base, "failed", keep=False)


async def disturb(how: str, here: Node, there: Node, instance: InstanceSpec, disk: Path) -> None:
    """Start a guest again, after its QEMU died or not; or take it back after all of it was sent."""
    if how == "back":
        info = await here.driver.migration_info(instance)
        result = await send(here, instance, await accept(there, instance, disk, info))
        assert result.status == "completed"
        await there.driver.finish_migration(instance, MigrationEnd.END_TARGET)
        await here.driver.finish_migration(instance, MigrationEnd.RESUME_SOURCE)
        return
    if how == "die":
        os.kill(here.record(instance).pid, signal.SIGKILL)
    await here.driver.stop(instance, 0)
    await here.driver.start(instance, [str(disk)])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(8))
async def test_random_history_of_a_guest_gives_every_kept_backup_back(
    nodes: list[Node], guest: Path, disk: Path, store: BackupStore, seed: int
) -> None:
    """Writes, backups, failed ones, moves with and without the disk or taken back, restarts, deaths of QEMU, prunes."""
    rng = random.Random(seed)
    here, there = nodes
    # Without a system it writes nothing itself.
    instance = tiny_instance(guest, migration_bandwidth=256, kernel_path="")
    saves = Saves(store, instance)

    def somewhere() -> int:
        return rng.randrange(disk.stat().st_size // BLOCK) * BLOCK

    await here.driver.start(instance, [str(disk)])
    for number in range(24):
        for _ in range(rng.randrange(4)):
            await write(here, instance, somewhere(), BLOCK, rng.randrange(256))
        match rng.choice(
            ("save", "save", "save", "fail", "move", "back", "copy", "restart", "die", "prune")
        ):
            case "save":
                await saves.save(here, disk, somewhere())
            case "fail":
                await saves.fail(here, somewhere())
            case "move":
                await migrate(here, there, instance, disk)
                here, there = there, here
            case "copy":
                old, disk = disk, make_disk(disk.with_name(f"copy{number}"))
                await migrate(here, there, instance, disk, copies_disks=True)
                here, there = there, here
                old.unlink()
            case "restart" | "die" | "back" as how:
                await disturb(how, here, there, instance, disk)
            case "prune":
                victims = [one for one in store.names() if rng.random() < 0.4]
                await asyncio.to_thread(store.prune, *victims)
    await asyncio.to_thread(store.verify)
    assert store.made > saves.by_bitmap > 0
    await here.driver.stop(instance, 0)


async def test_unknown_bitmap_means_that_all_is_compared(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    assert not (await begin(node, instance, "never", "b0")).has_changes
    await end(node, instance, "never", "b0")
    assert await bitmaps(node, instance) == {"b0": True}
    await node.driver.stop(instance, 0)
    await end(node, instance, "never", "b0")


async def test_guest_writes_on_if_old_blocks_cannot_be_kept(
    node: Node, guest: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup fails and says why; the guest gets no error."""
    monkeypatch.setattr(ends, "SPARE", 2.0)  # no file system has so much free space
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    moment = await begin(node, instance, "", "b1")
    wanted = order(instance, moment, "", spare=str(disk.parent))
    with (
        open_changes(wanted, str(moment.socket), disk.stat().st_size) as changes,
        pytest.raises(HostError, match="overwrites more than fits"),
    ):
        await asyncio.to_thread(lambda: list(changes.pieces()))
    await end(node, instance, "", "b1", keep=False)
    await node.beats(instance)
    assert await node.state(instance) == "running"
    assert await bitmaps(node, instance) == {}
    await node.driver.stop(instance, 0)
