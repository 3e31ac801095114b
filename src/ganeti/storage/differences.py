"""Makes one block device or file equal to another by writing only what differs."""

import os
from collections.abc import Callable

from ganeti.base.errors import StorageError
from ganeti.rpc.meters import report
from ganeti.storage.wipe import Stopped

PIECE = 4 * 1024 * 1024
BLOCK = 64 * 1024
"""Bytes that are compared and written together."""


def copy_differences(
    source: int, target: int, size: int, is_stopped: Callable[[], bool] = lambda: False
) -> int:
    """Give `target` the first `size` bytes of `source`, durably; return the bytes that differed. Blocks.

    Repeatable: after an interruption the next call writes the rest.
    """
    written = 0
    for start in range(0, size, PIECE):
        if is_stopped():
            raise Stopped
        report(start, size)
        length = min(PIECE, size - start)
        wanted, present = _read(source, start, length), _read(target, start, length)
        if wanted == present:
            continue
        for at in range(0, length, BLOCK):
            block = wanted[at : at + BLOCK]
            if block != present[at : at + BLOCK]:
                _write(target, start + at, block)
                written += len(block)
    os.fsync(target)
    return written


def _read(descriptor: int, start: int, length: int) -> bytes:
    pieces = []
    while length:
        piece = os.pread(descriptor, length, start)
        if not piece:
            raise StorageError(f"the data ends at byte {start}")
        pieces.append(piece)
        start, length = start + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write(descriptor: int, start: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(descriptor, rest, start)
        start, rest = start + count, rest[count:]
