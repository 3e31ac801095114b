"""A real guest on disks in the format qcow2: it starts, grows, hotplugs and migrates, and no format is probed."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.node.backups.ends import ChangesSource, open_changes
from ganeti.node.carrier.greeting import RAW
from ganeti.node.carrier.order import ChangesOrder, EndOrder, StreamOrder
from ganeti.node.carrier.within import copy
from ganeti.storage.file import FileDisk
from ganeti.storage.image_files import empty_image, write_empty_image
from tests.support.backup_store import BackupStore
from tests.support.kvm_nodes import Node, boot, migrate
from tests.support.qemu_images import check, convert
from tests.support.tiny_guest import are_consecutive, disk_heartbeats, install, tiny_instance

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("G11"),
]

ROOT = "/srv/ganeti/shared-file-storage"
MIB = 1 << 20


def image_disk(node: Node, name: str, size: int) -> tuple[DiskSpec, FileDisk]:
    node.paths.etc.mkdir(parents=True, exist_ok=True)
    node.paths.file_storage_paths.write_text("/files\n")
    spec = DiskSpec(
        uuid=str(uuid4()),
        index=1,
        size=size,
        template="file",
        logical_id=("loop", f"/files/web1/{name}", "qcow2"),
        params={"format": "qcow2"},
    )
    (node.paths.root / "files").mkdir(exist_ok=True)
    return spec, FileDisk(node.paths, spec)


async def test_guest_on_an_image_starts_grows_and_migrates(
    nodes: list[Node], guest: Path, disk: Path, tmp_path: Path
) -> None:
    source, target = nodes
    instance = tiny_instance(guest, template="sharedfile")
    install(guest, disk, instance.name)
    image = tmp_path / "image"
    convert(disk, image, "raw", "qcow2")
    first = replace(instance.disks[0], params={"format": "qcow2"})
    instance = replace(instance, disks=(first,))
    await boot(source, instance, image)
    await source.beats(instance)

    second, device = image_disk(source, "second", 3)
    await device.create(3)
    await source.driver.hotplug.add_disk(instance, second, device.image)
    with pytest.raises(StorageError, match="a program uses the image"):
        await device.grow(9)
    assert await device.size_mib() == 3
    both = replace(instance, disks=(first, second))
    await source.driver.hotplug.resize_disk(both, replace(second, size=9))
    await device.grow(9)
    assert await device.size_mib() == 9
    await source.driver.hotplug.remove_disk(both, second)
    await device.grow(11)
    await device.remove()

    await migrate(source, target, instance, image)
    await target.beats(instance)
    await target.driver.stop(instance, 0)
    check(image)
    convert(image, disk, "qcow2", "raw")
    assert are_consecutive(sorted(disk_heartbeats(disk)))


def carry(source: EndOrder, sink: EndOrder, work: Path) -> None:
    """Copy a disk as the carrier does."""
    order = StreamOrder(source=source, sink=sink, size=64 * MIB, form=RAW)
    copy(order, work / "order", source, sink)


def beats_in(data: Path) -> list[int]:
    beats = sorted(disk_heartbeats(data))
    assert are_consecutive(beats)
    return beats


async def booted(node: Node, guest: Path, disk: Path, image: Path) -> InstanceSpec:
    """A guest that writes to a disk in an image."""
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    convert(disk, image, "raw", "qcow2")
    first = replace(instance.disks[0], params={"format": "qcow2"})
    instance = replace(instance, disks=(first,))
    await boot(node, instance, image)
    await node.beats(instance)
    return instance


async def test_writing_guest_on_an_image_is_backed_up(
    node: Node, guest: Path, disk: Path, tmp_path: Path
) -> None:
    instance = await booted(node, guest, disk, tmp_path / "image")
    store, moments = BackupStore(tmp_path / "backups", tmp_path), node.driver.moments
    base, last = "", 0
    for bitmap in ("b1", "b2"):
        moment = await moments.begin(instance, base=base, bitmap=bitmap, limit_s=60)
        assert moment.has_changes == bool(base)
        await node.beats(instance)  # it overwrites what the backup has yet to read
        wanted = ChangesOrder(export=instance.disks[0].uuid, bitmap=base)
        with open_changes(wanted, str(moment.socket), 64 * MIB) as changes:
            assert isinstance(changes, ChangesSource)
            point = await asyncio.to_thread(store.save_changes, changes, 64 * MIB, full=not base)
        await moments.end(instance, base=base, bitmap=bitmap, keep=True)
        disk.write_bytes(store.read(point, 64 * MIB))
        assert beats_in(disk)[-1] > last
        base, last = bitmap, beats_in(disk)[-1]
    await node.driver.stop(instance, 0)


async def test_writing_guest_on_an_image_is_cloned_to_an_image(
    node: Node, guest: Path, disk: Path, tmp_path: Path
) -> None:
    image, clone = tmp_path / "image", tmp_path / "clone"
    instance = await booted(node, guest, disk, image)
    moment = await node.driver.moments.begin(instance, base="", bitmap="clone", limit_s=60)
    await node.beats(instance)
    with clone.open("wb") as file:
        write_empty_image(file.fileno(), 64 * MIB)
    whole = ChangesOrder(export=instance.disks[0].uuid, whole=True, spare=str(tmp_path))
    shown = EndOrder(path=str(moment.socket), changes=whole)
    into = EndOrder(path=str(clone), is_image=True)
    await asyncio.to_thread(carry, shown, into, tmp_path)
    await node.driver.moments.end(instance, base="", bitmap="clone", keep=False)

    itself, raw = EndOrder(path=str(image), is_image=True), EndOrder(path=str(disk))
    for ends in ((itself, raw), (raw, itself)):
        with pytest.raises(StorageError, match="a program uses the image"):
            carry(*ends, tmp_path)
    await node.driver.stop(instance, 0)
    carry(itself, raw, tmp_path)
    beats_in(disk)

    check(clone)
    await boot(node, instance, clone)
    await node.beats(instance)
    await node.driver.stop(instance, 0)
    carry(into, raw, tmp_path)
    beats_in(disk)


async def test_header_of_an_image_in_a_raw_disk_is_data_of_the_guest(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    second = disk.with_name("second")
    second.write_bytes(empty_image(9 * MIB)[0].ljust(2 * MIB, b"\0"))
    extra = replace(instance.disks[0], uuid=str(uuid4()), index=1, size=2)
    instance = replace(instance, disks=(*instance.disks, extra))
    await node.driver.start(instance, [str(disk), str(second)])
    sizes = {
        one["inserted"]["image"]["virtual-size"]: one["inserted"]["drv"]
        for one in await node.ask(instance)("query-block")
        if "inserted" in one
    }
    assert sizes == {64 * MIB: "raw", 2 * MIB: "raw"}
    await node.driver.stop(instance, 0)
