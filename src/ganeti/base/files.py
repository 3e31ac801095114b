"""Files that are whole or not there, and paths that stay where they belong."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make names created, renamed or removed in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data` as a whole, synced; on any error the old file stays (G3, F1)."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


@contextlib.contextmanager
def exclusive_file(path: Path) -> Iterator[bool]:
    """Hold `path` against other processes for as long as the block runs; yields False if one has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds `path` by `exclusive_file` or its like; False if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
