"""Calls about disks, on real files."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.node import storage
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_GROW,
    BLOCKDEV_INFO,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN,
    DiskArgs,
    DiskInfo,
    GrowDiskArgs,
    OpenDiskArgs,
)
from ganeti.storage.assemble import device

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
    assert "no driver keeps disks" in (await ask(handlers, template="nosuch")).problem


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


async def test_a_disk_grows_and_is_made_usable_and_given_up(
    handlers: Handlers, paths: Paths
) -> None:
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
