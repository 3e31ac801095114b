"""Preallocation of a file's space, so that a full disk fails here and not inside a guest."""

import ctypes
import errno
import os
from collections.abc import Callable

_FALLOC_FL_KEEP_SIZE = 1
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Preallocate = Callable[[int, int], None]
"""Reserves this number of bytes for an open file."""


def preallocate(descriptor: int, size: int) -> None:
    """Reserve `size` bytes, which read as zeros, without changing the file's length.

    Does nothing if the file system does not support it: the file is then sparse.

    Calls the kernel directly: `os.posix_fallocate` changes the length, and writes every block itself if the file system
    does not support it.
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
