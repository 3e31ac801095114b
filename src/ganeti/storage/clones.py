"""Files that share their blocks until one of them is written (reflinks of XFS and btrfs)."""

import errno
import fcntl
import os
from collections.abc import Callable

from ganeti.base.errors import StorageError

_FICLONE = 0x40049409
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EISDIR)

Clone = Callable[[int, int], None]
"""Gives the first open file the content of the second; OSError."""


class NoClones(StorageError):
    """The file system cannot share blocks between files."""

    def __init__(self) -> None:
        super().__init__("its file system does not share blocks between files; XFS and btrfs do")


def clone(target: int, source: int) -> None:
    """Give a file the content of another one of the same file system, without copying it."""
    fcntl.ioctl(target, _FICLONE, source)


def cloned(clone: Clone, target: int, source: int) -> None:
    """Do the same, durably; NoClones where it is not possible."""
    try:
        clone(target, source)
    except OSError as err:
        if err.errno in _CANNOT:
            raise NoClones from err
        raise
    os.fsync(target)


def unnamed(directory: int, mode: int) -> int:
    """Open a new file without a name, which vanishes unless it gets one; NoClones where it is not possible."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as err:
        if err.errno in _CANNOT:
            raise NoClones from err
        raise
