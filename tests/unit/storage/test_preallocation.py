"""Reserving space, on a real small file system where mounting is allowed."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.storage.file import MIB, FileDisk
from ganeti.storage.preallocation import preallocate

ROOT = "/srv/ganeti/file-storage"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """An allowed directory of a node, on a file system of 4 MiB."""
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    directory = paths.below(ROOT)
    directory.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "test", str(directory)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_space_is_reserved_without_changing_the_length(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        preallocate(file.fileno(), 3 * MIB)
        status = os.fstat(file.fileno())
    assert status.st_size == 0
    assert status.st_blocks * 512 >= 3 * MIB


def test_more_than_there_is_is_an_error(small: Path) -> None:
    with (small / "file").open("wb") as file:
        with pytest.raises(OSError, match="No space left") as caught:
            preallocate(file.fileno(), 8 * MIB)
        assert caught.value.errno == errno.ENOSPC


async def test_a_disk_that_does_not_fit_leaves_nothing_and_the_next_one_works(
    small: Path, tmp_path: Path
) -> None:
    def disk(number: int) -> FileDisk:
        path = f"{ROOT}/web{number}/disk0"
        spec = DiskSpec(
            uuid=f"d{number}", index=0, size=3, template="file", logical_id=("loop", path)
        )
        return FileDisk(Paths(tmp_path), spec)

    await disk(1).create(3)
    with pytest.raises(StorageError, match="no space left: 3 MiB are needed, 1 MiB are free"):
        await disk(2).create(3)
    assert [one.name for one in small.iterdir()] == ["web1"]
    await disk(1).remove()
    await disk(2).create(3)
