"""Calls about disks, on real files."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import EXTERNAL
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.node import storage
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ADOPTABLE,
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_GROW,
    BLOCKDEV_INFO,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SETINFO,
    BLOCKDEV_SHUTDOWN,
    AdoptDiskArgs,
    DiskArgs,
    DiskInfo,
    GrowDiskArgs,
    OpenDiskArgs,
    OtherDisk,
)
from ganeti.storage.assemble import device
from ganeti.storage.interface import BlockDevice

ROOT = "/srv/ganeti/file-storage"
DISK = DiskSpec(
    uuid="d", index=0, size=1, template="file", logical_id=("loop", f"{ROOT}/web1/disk0")
)
ARGS = DiskArgs(instance_name="web1", disk=DISK)
CALL = Call(key="1/0/1")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    paths.below(ROOT).mkdir(parents=True)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    return paths


@pytest.fixture
def handlers(paths: Paths) -> Handlers:
    return storage.handlers(partial(device, paths), InstanceLocks())


async def ask(handlers: Handlers, **changes: Any) -> DiskInfo:
    disk = msgspec.structs.replace(DISK, **changes)
    info = await handlers[BLOCKDEV_INFO.name](DiskArgs(instance_name="web1", disk=disk), CALL)
    assert isinstance(info, DiskInfo)
    return info


async def test_a_disk_is_made_seen_and_removed(handlers: Handlers, paths: Paths) -> None:
    path = str(paths.below(f"{ROOT}/web1/disk0"))
    assert await ask(handlers) == DiskInfo(exists=False, path=path)
    there = DiskInfo(exists=True, path=path, size=1)
    assert await handlers[BLOCKDEV_CREATE.name](ARGS, CALL) == there
    assert await ask(handlers) == there
    await handlers[BLOCKDEV_REMOVE.name](ARGS, CALL)
    assert not (await ask(handlers)).exists
    await handlers[BLOCKDEV_REMOVE.name](ARGS, CALL)


async def test_what_is_wrong_with_a_disk_is_a_finding(handlers: Handlers) -> None:
    await handlers[BLOCKDEV_CREATE.name](ARGS, CALL)
    assert (await ask(handlers, size=2)).problem == "has 1 MiB instead of 2 MiB"
    outside = await ask(handlers, logical_id=("loop", "/etc/passwd"))
    assert not outside.exists
    assert "not below a directory that this node allows" in outside.problem
    assert "no driver supports the template" in (await ask(handlers, template="nosuch")).problem


@pytest.mark.requirement("F37", "A41")
@pytest.mark.parametrize("procedure", [BLOCKDEV_CREATE.name, BLOCKDEV_REMOVE.name])
async def test_the_master_cannot_reach_files_outside_the_allowed_directories(
    handlers: Handlers, tmp_path: Path, procedure: str
) -> None:
    victim = tmp_path / "etc" / "ganeti" / "file-storage-paths"
    disk = msgspec.structs.replace(DISK, logical_id=("loop", "/etc/ganeti/file-storage-paths"))
    with pytest.raises(StorageError, match="not below"):
        await handlers[procedure](DiskArgs(instance_name="web1", disk=disk), CALL)
    assert victim.exists()


async def test_making_and_removing_one_disk_at_once_ends_in_one_of_the_two(
    handlers: Handlers,
) -> None:
    names = (BLOCKDEV_CREATE.name, BLOCKDEV_REMOVE.name) * 3
    await asyncio.gather(*(handlers[name](ARGS, CALL) for name in names))
    assert not (await ask(handlers)).exists


async def test_disk_grows_and_is_opened_and_closed(handlers: Handlers, paths: Paths) -> None:
    path = str(paths.below(f"{ROOT}/web1/disk0"))
    await handlers[BLOCKDEV_CREATE.name](ARGS, CALL)
    grow = GrowDiskArgs(instance_name="web1", disk=DISK, size=3)
    for _ in range(2):
        grown = await handlers[BLOCKDEV_GROW.name](grow, CALL)
        assert grown == DiskInfo(exists=True, path=path, size=3)
    assert Path(path).stat().st_size == 3 * 1024 * 1024
    usable = OpenDiskArgs(instance_name="web1", disk=DISK)
    assert (await handlers[BLOCKDEV_ASSEMBLE.name](usable, CALL)).path == path
    await handlers[BLOCKDEV_SHUTDOWN.name](ARGS, CALL)
    await handlers[BLOCKDEV_REMOVE.name](ARGS, CALL)
    with pytest.raises(StorageError):
        await handlers[BLOCKDEV_ASSEMBLE.name](usable, CALL)
    with pytest.raises(StorageError):
        await handlers[BLOCKDEV_GROW.name](grow, CALL)


class Shelf(BlockDevice):
    """A disk whose storage reports success; `does_it` says whether it did anything."""

    template = EXTERNAL
    path = "/dev/shelf"

    def __init__(self, *, does_it: bool, present: int | None = None) -> None:
        self.does_it, self.present = does_it, present
        self.info = ""
        self.labels = self

    async def create(self, size_mib: int) -> None:
        self.present = size_mib if self.does_it else self.present

    async def grow(self, size_mib: int) -> None:
        await self.create(size_mib)

    async def size_mib(self) -> int | None:
        return self.present

    async def set_info(self, text: str) -> None:
        self.info = text

    async def remove(self) -> None: ...

    async def open(self, role: DiskRole) -> None: ...

    async def close(self) -> None: ...

    async def check_identity(self) -> None: ...


@pytest.mark.requirement("G12")
@pytest.mark.parametrize("present", [None, 0])
async def test_a_storage_that_did_nothing_has_not_made_the_disk(present: int | None) -> None:
    lying = Shelf(does_it=False, present=present)
    handlers = storage.handlers(lambda _name, _disk: lying, InstanceLocks())
    with pytest.raises(StorageError, match="although the storage reported success"):
        await handlers[BLOCKDEV_CREATE.name](ARGS, CALL)
    assert lying.info == ""


async def test_a_storage_that_did_nothing_has_not_grown_the_disk() -> None:
    lying = Shelf(does_it=False, present=1)
    handlers = storage.handlers(lambda _name, _disk: lying, InstanceLocks())
    grow = GrowDiskArgs(instance_name="web1", disk=DISK, size=3)
    with pytest.raises(StorageError, match=r"1 MiB instead of 3 MiB.*repair-disk-sizes"):
        await handlers[BLOCKDEV_GROW.name](grow, CALL)


async def test_the_storage_notes_whose_disk_it_is() -> None:
    shelf = Shelf(does_it=True)
    handlers = storage.handlers(lambda _name, _disk: shelf, InstanceLocks())
    await handlers[BLOCKDEV_CREATE.name](ARGS, CALL)
    assert shelf.info == "originstname+web1"
    await handlers[BLOCKDEV_SETINFO.name](DiskArgs(instance_name="web2", disk=DISK), CALL)
    assert shelf.info == "originstname+web2"


class Found(Shelf):
    """A device that is there already, under the name that a link has."""

    def __init__(self, path: Path) -> None:
        super().__init__(does_it=True, present=1)
        self.adoption = self
        self.path = str(path)

    def source_path(self, source: str) -> str:
        return source

    async def adoptable_mib(self, source: str) -> int:
        del source
        return 1

    async def adopt(self, source: str) -> None: ...

    async def give_back(self, source: str) -> None: ...


@pytest.mark.requirement("A48", "G12")
@pytest.mark.parametrize("is_layer", [False, True])
async def test_a_disk_of_another_instance_is_not_adopted_under_another_name(
    tmp_path: Path, *, is_layer: bool
) -> None:
    taken, free, link = (tmp_path / name for name in ("taken", "free", "link"))
    taken.touch()
    free.touch()
    link.symlink_to("taken")

    def driver(_name: str, disk: DiskSpec) -> BlockDevice:
        if disk.template == "nosuch":
            raise StorageError("no driver keeps it")
        return Found(tmp_path / str(disk.logical_id[1]))

    handlers = storage.handlers(driver, InstanceLocks())
    theirs = msgspec.structs.replace(DISK, logical_id=("loop", "taken"))
    if is_layer:
        theirs = msgspec.structs.replace(DISK, template="nosuch", children=(theirs,))
    in_use = [OtherDisk(owner="disk 0 of instance web9", disk=theirs)]
    args = AdoptDiskArgs(instance_name="web1", disk=DISK, source=str(free), in_use=in_use)
    assert (await handlers[BLOCKDEV_ADOPTABLE.name](args, CALL)).size == 1
    for source in (link, taken):
        other = msgspec.structs.replace(args, source=str(source))
        with pytest.raises(StorageError, match="taken is disk 0 of instance web9"):
            await handlers[BLOCKDEV_ADOPTABLE.name](other, CALL)
