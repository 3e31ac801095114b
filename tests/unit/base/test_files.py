"""Files take their place as a whole, and in an order that survives a power cut."""

import errno
import os
from pathlib import Path

import pytest

from ganeti.base import files
from ganeti.base.files import AtomicFile, read_at_most, write_atomically, zero


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and renamed from now on, in order, by name."""
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def renamed(source: str | Path, target: str | Path) -> None:
        events.append(f"rename {Path(source).name} {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    return events


@pytest.mark.requirement("G3", "F1")
def test_the_content_is_synced_before_the_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded(monkeypatch)
    path = tmp_path / "register"
    write_atomically(path, b"new")
    (content, rename, name) = events
    temporary = content.removeprefix("sync ")
    assert temporary.startswith(".register.")
    assert rename == f"rename {temporary} register"
    assert name == f"sync {tmp_path.name}"
    assert path.read_bytes() == b"new"


@pytest.mark.requirement("G3", "F1")
def test_discarded_file_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "register"
    path.write_bytes(b"old")
    file = AtomicFile(path)
    file.write(b"new")
    file.discard()
    assert [one.name for one in tmp_path.iterdir()] == ["register"]
    assert path.read_bytes() == b"old"


def test_no_more_is_read_of_a_file_than_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_at_most(path, 5) == b"12345"
    with pytest.raises(OSError, match="File too large"):
        read_at_most(path, 4)
    with pytest.raises(OSError, match="File too large"):
        read_at_most(Path("/dev/zero"), 4)


def test_zeroed_part_of_a_file_reads_as_zeros_and_keeps_its_space(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(b"x" * (1 << 20))
    with path.open("r+b") as file:
        before = os.fstat(file.fileno()).st_blocks
        done = zero(file.fileno(), 8192, 65536)
        found = path.read_bytes()
        assert os.fstat(file.fileno()).st_blocks >= before - 16
    zeros = bytes(65536) if done else b"x" * 65536  # not every file system can do that
    assert found == b"x" * 8192 + zeros + b"x" * ((1 << 20) - 8192 - 65536)


def test_failure_of_the_disk_to_zero_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: int) -> None:
        raise OSError(errno.EIO, "the disk failed")

    monkeypatch.setattr(files, "_fallocate", fail)
    with (tmp_path / "disk").open("w+b") as file, pytest.raises(OSError, match="the disk failed"):
        zero(file.fileno(), 0, 4096)
