"""DRBD's metadata on its volume, and the mark with its disk's UUID. Blocks.

A volume may reuse the space of another disk's metadata. So metadata without our mark is not trusted: it is recreated,
as that of a copy without data, which is then filled from the other node.
"""

import os
from pathlib import Path

from ganeti.base.errors import StorageError
from ganeti.storage.drbd.status import SUPERBLOCK_SIZE, Superblock, parse_superblock

MARK_SIZE = 4096
"""At the end of the volume, after all that DRBD uses: see `ganeti.layouts.mirrors.metadata_mib`."""
CLEARED = 1 << 20
_WORD = b"ganeti disk "


def read_superblock(path: str) -> Superblock | None:
    """Return the metadata, if it is not in use; None if there is none."""
    return parse_superblock(_read(path, 0, SUPERBLOCK_SIZE))


def is_marked(path: str, disk: str) -> bool:
    """Return whether the metadata was completed for this disk."""
    return _read(path, -MARK_SIZE, MARK_SIZE) == _mark(disk)


def clear(path: str) -> None:
    """Erase the former content: first the mark, then the first part that DRBD reads."""
    _write(path, -MARK_SIZE, bytes(MARK_SIZE))
    _write(path, 0, bytes(CLEARED))


def set_mark(path: str, disk: str) -> None:
    """Mark the metadata as complete."""
    _write(path, -MARK_SIZE, _mark(disk))


def _mark(disk: str) -> bytes:
    return (_WORD + disk.encode()).ljust(MARK_SIZE, b"\0")


def _read(path: str, at: int, size: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Another descriptor, or the kernel itself, may have written since the last read.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(descriptor, size, _offset(descriptor, at))
        finally:
            os.close(descriptor)
    except OSError as err:
        raise StorageError(f"the metadata on {path} cannot be read: {err.strerror}") from err


def _write(path: str, at: int, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            start, view = _offset(descriptor, at), memoryview(data)
            while view:
                done = os.pwrite(descriptor, view, start)
                start, view = start + done, view[done:]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as err:
        raise StorageError(f"the metadata on {path} cannot be written: {err.strerror}") from err


def _offset(descriptor: int, at: int) -> int:
    return at if at >= 0 else max(0, os.lseek(descriptor, 0, os.SEEK_END) + at)


def read_text(path: Path) -> str:
    """Read a file of the kernel; StorageError if DRBD is not loaded."""
    try:
        return path.read_text()
    except OSError as err:
        raise StorageError(
            f"{path} cannot be read ({err.strerror}): load the module with"
            " 'modprobe drbd usermode_helper=/bin/true'"
        ) from err
