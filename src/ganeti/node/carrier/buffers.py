"""Input and output in pieces: pipes, and a digest computed in parallel to the thread that moves the data."""

import fcntl
import hashlib
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from ganeti.node.carrier.frames import AHEAD, CHUNK, Piece, Write, as_data


class Digest:
    """SHA-256 of a stream, computed in a thread of its own."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting: queue.Queue[Piece | None] = queue.Queue(AHEAD)
        self._thread = threading.Thread(target=self._work, name="digest", daemon=True)
        self._thread.start()

    def add(self, zeros: int, data: Piece) -> None:
        """Add a piece, which must not change before AHEAD + 1 more were added."""
        for part in as_data(zeros, data):
            self._waiting.put(part)

    def finish(self) -> str:
        """Return the digest of everything; nothing can be added afterwards."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        return self._hash.hexdigest()

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            self._hash.update(data)


def fill(descriptor: int, view: memoryview, wait: Callable[[], bool]) -> int:
    """Read as much as fits, or everything before the end; return the number of bytes.

    `wait` returns when there is more to read, or False if nothing will come.
    """
    filled = 0
    while filled < len(view) and wait():
        count = os.readv(descriptor, [view[filled:]])
        if not count:
            break
        filled += count
    return filled


def writer(descriptor: int) -> Write:
    """Return a function that writes all of its pieces to a descriptor."""

    def write(*parts: Piece) -> None:
        views = [memoryview(part) for part in parts]
        while views:
            written = os.writev(descriptor, views)
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]

    return write


def widen(descriptor: int) -> None:
    """Enlarge a pipe to hold a whole piece."""
    with suppress(OSError):  # the user may have reached the limit of pages for pipes
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK)
