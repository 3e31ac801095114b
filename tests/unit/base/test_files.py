"""Files take their place as a whole, and in an order that survives a power cut."""

import os
from pathlib import Path

import pytest

from ganeti.base.files import AtomicFile, read_at_most, write_atomically


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
