"""Disks that are devices of somebody else: template `blockdev`."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.block_device import MIB, AdoptedDevice

PATH = "/dev/disk/by-id/wwn-1"
SPEC = DiskSpec(
    uuid="11111111-0000-4000-8000-000000000000",
    index=0,
    size=8,
    template="blockdev",
    logical_id=("manual", PATH),
)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is taken for a block device."""
    path = tmp_path / PATH.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(8 * MIB))
    monkeypatch.setattr(stat, "S_ISBLK", lambda _mode: True)
    return path


def disk(root: Path, **fields: Any) -> AdoptedDevice:
    return AdoptedDevice(
        Paths(), replace(SPEC, **fields), root=root, size_of=lambda fd: os.fstat(fd).st_size
    )


async def test_it_is_used_as_it_is_and_never_removed(device: Path, tmp_path: Path) -> None:
    mine = disk(tmp_path)
    assert await mine.adoptable_mib(PATH) == 8
    await mine.adopt(PATH)
    await mine.create(8)
    await mine.open(DiskRole.PRIMARY)
    await mine.check_identity()
    assert mine.path == str(device)
    assert await mine.size_mib() == 8
    await mine.close()
    await mine.give_back(PATH)
    await mine.remove()
    assert device.read_bytes() == bytes(8 * MIB)


async def test_it_grows_where_it_is_kept(device: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"has 8 MiB but needs 16 MiB; grow the device"):
        await disk(tmp_path).grow(16)
    with device.open("r+b") as data:
        data.truncate(16 * MIB)
    await disk(tmp_path).grow(16)


async def test_one_that_is_gone_or_too_small_is_not_used(device: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has 8 MiB instead of 9 MiB"):
        await disk(tmp_path, size=9).open(DiskRole.PRIMARY)
    device.unlink()
    assert await disk(tmp_path).size_mib() is None
    with pytest.raises(StorageError, match="No such file"):
        await disk(tmp_path).create(8)


@pytest.mark.requirement("A48", "G24")
@pytest.mark.parametrize(
    "path", ["/dev/sda", "/dev/disk/../sda", "dev/disk/x", "/etc/passwd", "/dev/disk/a\nb", ""]
)
def test_only_names_that_stay_with_devices_are_taken(path: str) -> None:
    with pytest.raises(StorageError):
        AdoptedDevice(Paths(), replace(SPEC, logical_id=("manual", path)))


@pytest.mark.requirement("A48")
async def test_a_file_or_another_device_is_not_adopted(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="is /dev/disk/by-id/wwn-1, not"):
        await disk(tmp_path).adopt("/dev/disk/by-id/wwn-2")
    monkeypatch.undo()
    with pytest.raises(StorageError, match="is not a block device"):
        await disk(tmp_path).adopt(PATH)
