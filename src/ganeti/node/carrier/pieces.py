"""Writes a file or a device in large pieces, several at once, in threads of its own.

The pieces pass by the page cache where the file system allows that: what is written is not read soon, and copying it
there costs more of the processor than digests and encryption.
"""

import errno
import hashlib
import mmap
import os
import queue
import threading
from collections.abc import Callable

BLOCK = 4096
"""Positions and lengths that are a multiple of it may pass by the page cache."""
SYNC_EVERY = 64 << 20
"""Bytes in the page cache that are not yet synced; otherwise the final sync would take long."""
WRITE_BYTES = 4 << 20
"""Data that a Collector writes at once."""
_AHEAD, _WRITERS = 4, 3


def reopened_direct(descriptor: int, mode: int) -> int | None:
    """Return another descriptor of the same file that passes by the page cache; None if the file system refuses it."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", mode | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None


class PieceWriter:
    """Writes buffers of `size` bytes, and computes their digests if requested."""

    def __init__(
        self,
        descriptor: int,
        size: int,
        *,
        digests: bool = False,
        encrypt: Callable[[int, memoryview, bool], bytes] | None = None,
    ) -> None:
        """`encrypt` gets the number of a piece, its buffer, and whether it is the last one; it returns a tag."""
        self._descriptor, self._size = descriptor, size
        self._encrypt = encrypt
        self.tags: dict[int, bytes] = {}
        """The tags of the pieces by their positions, once `finish` has returned."""
        self._direct = reopened_direct(descriptor, os.O_WRONLY)
        self._refused = False
        self._failure: OSError | None = None
        self._digests = digests
        self.found: dict[int, str] = {}
        """The SHA-256 of the pieces by their positions, once `finish` has returned."""
        self._unsynced = 0
        self._free = queue.SimpleQueue[mmap.mmap]()
        self._unused = _AHEAD + _WRITERS
        self._waiting = queue.SimpleQueue[tuple[int, mmap.mmap, int, bool] | None]()
        self._threads = [
            threading.Thread(target=self._work, name="pieces", daemon=True) for _ in range(_WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def room(self) -> mmap.mmap:
        """Return a buffer, aligned to a page; wait until one is free. OSError if a write failed."""
        self._check()
        if self._unused and self._free.empty():
            self._unused -= 1
            return mmap.mmap(-1, self._size)
        room = self._free.get()
        self._check()
        return room

    def put(self, at: int, room: mmap.mmap, length: int, *, is_last: bool = False) -> None:
        """Write the first `length` bytes of a buffer of `room`, which is then free again."""
        self._check()
        self._waiting.put((at, room, length, is_last))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Return when everything is written and synced; OSError if anything was not."""
        self._end()
        self._check()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """End the threads; idempotent."""
        self._end()

    def _end(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None

    def _work(self) -> None:
        while (one := self._waiting.get()) is not None:
            at, room, length, is_last = one
            if self._failure is None:
                with memoryview(room)[:length] as piece:
                    try:
                        if self._encrypt is not None:
                            self.tags[at] = self._encrypt(at // self._size, piece, is_last)
                        self._write(piece, at)
                    except OSError as err:
                        self._failure = err
                    if self._digests:
                        self.found[at] = hashlib.sha256(piece).hexdigest()
            self._free.put(room)

    def _write(self, data: memoryview, at: int) -> None:
        view = data
        while view:
            count = self._write_direct(view, at) or self._write_cached(view, at)
            view, at = view[count:], at + count

    def _write_direct(self, view: memoryview, at: int) -> int:
        """Return the number of written bytes; 0 if they cannot pass by the page cache."""
        if self._direct is None or self._refused or at % BLOCK or len(view) % BLOCK:
            return 0
        try:
            return os.pwrite(self._direct, view, at)
        except OSError as err:
            # A file system may accept the flag, and refuse this alignment.
            if err.errno != errno.EINVAL:
                raise
            self._refused = True
            return 0

    def _write_cached(self, view: memoryview, at: int) -> int:
        count = os.pwrite(self._descriptor, view, at)
        self._unsynced += count  # an inexact count of several threads is good enough
        if self._unsynced >= SYNC_EVERY:
            self._unsynced = 0
            os.fdatasync(self._descriptor)
        return count


class Collector:
    """Collects consecutive data to large pieces, which a PieceWriter writes."""

    def __init__(self, descriptor: int, offset: int = 0) -> None:
        """Write from `offset` on."""
        self._offset = offset
        self._writer = PieceWriter(descriptor, WRITE_BYTES)
        self._room: mmap.mmap | None = None
        self._filled = 0

    @property
    def offset(self) -> int:
        """Return the position of the next data."""
        return self._offset + self._filled

    def add(self, data: bytes | memoryview) -> None:
        """Take data, which may change afterwards."""
        view = memoryview(data)
        while view:
            if self._room is None:
                self._room = self._writer.room()
            part = view[: WRITE_BYTES - self._filled]
            self._room[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == WRITE_BYTES:
                self.flush()

    def flush(self) -> None:
        """Let the collected data be written."""
        if self._room is not None:
            self._writer.put(self._offset, self._room, self._filled)
            self._offset += self._filled
            self._room, self._filled = None, 0

    def skip(self, count: int) -> None:
        """Let the next data follow after so many bytes, which are not written."""
        self.flush()
        self._offset += count

    def finish(self) -> None:
        """Return when everything is written and synced."""
        self.flush()
        self._writer.finish()

    def close(self) -> None:
        """End the threads; idempotent."""
        self._writer.close()
