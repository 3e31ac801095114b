"""Atomic files, and paths that stay below their directory."""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

_BLKZEROOUT = 0x127F
_CANNOT_ZERO = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOTTY, errno.EBUSY)


def sync_directory(directory: Path) -> None:
    """Make names created, renamed or removed in `directory` survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power failure; `sync_directory` does that for its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AtomicFile:
    """A file that is written in parts and replaces its path atomically, or not at all (G3, F1).

    A file that root replaces keeps its owner. Every method blocks and raises OSError; after
    `discard` nothing remains, and an old file stays.
    """

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor: int | None = os.open(self._temporary, flags, mode)
        try:
            os.fchmod(self._descriptor, mode)
            _keep_owner(path, self._descriptor)
        except BaseException:
            self.discard()
            raise

    def write(self, data: bytes) -> None:
        """Append all of `data`."""
        assert self._descriptor is not None  # noqa: S101 - neither kept nor discarded
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """Make the written data survive a power failure; the file does not have its name yet."""
        assert self._descriptor is not None  # noqa: S101 - neither kept nor discarded
        os.fsync(self._descriptor)

    def keep(self) -> None:
        """Replace `path`, synced."""
        self.sync()
        self._close()
        self._temporary.replace(self._path)
        sync_directory(self._path.parent)

    def discard(self) -> None:
        """Remove the file unless `keep` was called; idempotent."""
        self._close()
        with contextlib.suppress(FileNotFoundError):
            self._temporary.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _keep_owner(path: Path, descriptor: int) -> None:
    if os.geteuid() != 0:
        return
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if (status.st_uid, status.st_gid) != (0, 0):
            os.fchown(descriptor, status.st_uid, status.st_gid)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` atomically by `data`, synced; after any error the old file stays (G3, F1)."""
    file = AtomicFile(path, mode=mode)
    try:
        file.write(data)
        file.keep()
    except BaseException:
        file.discard()
        raise


def is_full(error: BaseException) -> bool:
    """Return whether a file system, or a quota on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def read_at_most(path: Path, limit: int) -> bytes:
    """Return the content of a file; OSError, also if it is larger."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def listed_lines(path: Path, default: str) -> list[str]:
    """Return the lines of a list without comments and empty lines; the default if there is no list; OSError."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = [default]
    return list(filter(None, (line.partition("#")[0].strip() for line in lines)))


@contextlib.contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Wait until no other process changes files of a directory under this lock, and hold it for the block; OSError.

    The lock is on the directory, because a change replaces its file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive_file(path: Path) -> Iterator[bool]:
    """Lock `path` against other processes for the block; yields False if another process has it."""
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
    """Return whether a process holds `path` by `exclusive_file` or a similar lock.

    False if the file does not exist.
    """
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


def punch_hole(descriptor: int, offset: int, length: int) -> None:
    """Make a part of a file read as zeros and use no space; OSError where the file system cannot do that."""
    keep_size, punch = 1, 2
    _fallocate(descriptor, keep_size | punch, offset, length)


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def zero(descriptor: int, offset: int, length: int) -> bool:
    """Make a part of a file or a block device read as zeros, and keep its space; the range is whole pages.

    Return False where only writing zeros does that. OSError for other failures.
    """
    zero_range = 16
    try:
        if stat.S_ISBLK(os.fstat(descriptor).st_mode):
            fcntl.ioctl(descriptor, _BLKZEROOUT, struct.pack("=QQ", offset, length))
        else:
            _fallocate(descriptor, zero_range, offset, length)
    except OSError as err:
        if err.errno in _CANNOT_ZERO:
            return False
        raise
    return True
