"""Taking the space of a file at once, so that a full disk shows here and not inside a guest."""

import ctypes
import errno
import os
from collections.abc import Callable

_FALLOC_FL_KEEP_SIZE = 1
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Preallocate = Callable[[int, int], None]
"""Reserves so many bytes for an open file."""


def preallocate(descriptor: int, size: int) -> None:
    """Reserve `size` bytes, which read as zeros, without changing the file's length.

    Does nothing where the file system cannot do it: the file is then sparse.

    Calls the kernel directly: `os.posix_fallocate` changes the length, and would write every
    block by hand where the file system cannot do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or libc.fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    while fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, 0, size):
        code = ctypes.get_errno()
        if code in _CANNOT:
            return
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
