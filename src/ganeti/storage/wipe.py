"""Filling of new space of a block device with zeros, through a checked descriptor."""

import asyncio
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from typing import TypeVar

from ganeti.rpc.meters import report

T = TypeVar("T")

PIECE = 64 * 1024 * 1024
"""Bytes between two checks for cancellation."""
_BLKZEROOUT = 0x127F
_BLKGETSIZE64 = 0x80081272
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)
_ZEROS_AT_ONCE = 4 * 1024 * 1024


class Stopped(Exception):
    """The work was cancelled between two pieces."""


def device_size(descriptor: int) -> int:
    """Return the bytes of an open block device."""
    answer = fcntl.ioctl(descriptor, _BLKGETSIZE64, bytes(8))
    return int(struct.unpack("Q", answer)[0])


def wipe(
    descriptor: int, start: int, end: int, is_stopped: Callable[[], bool] = lambda: False
) -> None:
    """Make the bytes from `start` to `end` read as zeros, also after a power cut; blocks.

    The kernel does it if it can, without moving the zeros through memory.
    """
    position = start
    while position < end:
        if is_stopped():
            raise Stopped
        report(position - start, end - start)
        length = min(PIECE, end - position)
        try:
            fcntl.ioctl(descriptor, _BLKZEROOUT, struct.pack("QQ", position, length))
        except OSError as err:
            if err.errno not in _CANNOT:
                raise
            _write_zeros(descriptor, position, length)
        position += length
    os.fsync(descriptor)


def _write_zeros(descriptor: int, position: int, length: int) -> None:
    zeros = memoryview(bytes(min(_ZEROS_AT_ONCE, length)))
    end = position + length
    while position < end:
        position += os.pwrite(descriptor, zeros[: end - position], position)


async def in_stoppable_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Run blocking work in a thread; a cancellation waits until it has stopped, so that no write follows."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop.is_set))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        raise
