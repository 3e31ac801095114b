"""What every way of a stream does with its pieces: count them, pace them, and say what went wrong."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ganeti.base.errors import GanetiError
from ganeti.base.files import is_full
from ganeti.node.carrier.buffers import Digest, fill
from ganeti.node.carrier.frames import Piece, Pieces, as_data, buffers
from ganeti.node.carrier.progress import ProgressFile

BURST_S = 1.0
"""Data that a limit of the rate allowed so long ago, but that was not sent then, may follow at once."""
Result = dict[str, Any]


def text_of(path: str, err: Exception) -> str:
    """Return the text of an error, with the path that has no space."""
    if is_full(err):
        return f"{os.strerror(errno.ENOSPC)} for {path}; free some space, or choose another node"
    return err.message if isinstance(err, GanetiError) else str(err)


def own_environment() -> dict[str, str]:
    """Return the environment of the script."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class Count:
    """Counts data, computes the digest if requested, and records the position."""

    def __init__(self, progress: ProgressFile, *, counts_digest: bool = False) -> None:
        self._progress = progress
        self.position: Callable[[int], int] = int
        """Turns the length of the data into the progress."""
        self._digest = Digest() if counts_digest else None
        self._begun = time.monotonic()
        self.length = 0

    def add(self, zeros: int, data: Piece) -> None:
        """Count a piece; see `Digest.add`."""
        self.length += zeros + len(data)
        if self._digest is not None:
            self._digest.add(zeros, data)
        self._progress.at(self.position(self.length))

    def counted(self, pieces: Pieces) -> Pieces:
        """Yield pieces unchanged; each counts once the next one is requested."""
        for zeros, data in pieces:
            yield zeros, data
            self.add(zeros, data)

    def digest(self) -> str:
        """Return the SHA-256, or '' if it was not requested; nothing can be added afterwards."""
        return "" if self._digest is None else self._digest.finish()

    def result(self) -> Result:
        """Return the result once all data is at its destination."""
        seconds = time.monotonic() - self._begun
        return {"data_bytes": self.length, "sha256": self.digest(), "seconds": seconds}


def paced(
    pieces: Pieces,
    rate: int,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Pieces:
    """Yield pieces unchanged, no more than `rate` bytes of data a second (0: any); zeros cost nothing."""
    due = now()
    for zeros, data in pieces:
        length = len(data)
        yield zeros, data
        if rate:
            due = max(due, now() - BURST_S) + length / rate
            if (early_s := due - now()) > 0:
                sleep(early_s)


def as_bytes(pieces: Pieces) -> Iterator[Piece]:
    """Yield pieces as bytes, with their zeros."""
    for zeros, data in pieces:
        yield from as_data(zeros, data)


def read_all(descriptor: int) -> Iterator[memoryview]:
    """Yield what a program writes, until its end."""
    for room in buffers():
        # Full buffers, otherwise zeros would not be detected in their pieces.
        if not (count := fill(descriptor, room, lambda: True)):
            return
        yield room[:count]
