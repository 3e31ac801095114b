"""Reads and locks the images of disks (`image_files.py`) while no guest uses them.

The tables of an image are read here instead of by QEMU: their content is the guest's, and the worst that wrong tables
can do to this reader is an error. It reads only the one file, so it needs no confinement, no socket and no mount.
"""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator

from ganeti.base.errors import HostError, StorageError
from ganeti.protocols.qcow2 import (
    CLUSTER,
    REGION,
    Table,
    clusters,
    data_position,
    parse_tables,
    table_position,
    unpacked,
)
from ganeti.storage.image_files import image_size

_HEADER = 4096
_FLOCK = struct.Struct("@hhqqi0q")
_QEMU_LOCKS, _QEMU_LOCKS_COUNT = 100, 200
"""QEMU locks bytes from 100 on for what it does with an image, and from 200 on for what no other program may do."""
_WRITES, _NO_WRITES = 101, 201
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks."""


def lock_image(descriptor: int, path: str, *, writes: bool) -> None:
    """Keep QEMU from an image until the descriptor is closed, from writing only if this program reads.

    `path` is for messages. StorageError if a program uses it. A file system without locks has none for QEMU either.
    """
    try:
        if writes:
            _lock(descriptor, fcntl.F_WRLCK, _QEMU_LOCKS, _QEMU_LOCKS_COUNT)
        else:
            _lock(descriptor, fcntl.F_RDLCK, _NO_WRITES, 1)
            wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WRITES, 1, 0)
            found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted)
            if _FLOCK.unpack(found)[0] != fcntl.F_UNLCK:
                raise BlockingIOError(errno.EAGAIN, "is locked")
    except OSError as err:
        if err.errno in (errno.EAGAIN, errno.EACCES):
            raise StorageError(f"{path}: a program uses the image; stop the guest") from err
        if err.errno not in _NO_LOCKS:
            raise


def _lock(descriptor: int, kind: int, begin: int, count: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, begin, count, 0))


class ImageReader:
    """The data of the disk in an image. Every method raises HostError if the image is damaged."""

    def __init__(self, descriptor: int, size: int, path: str) -> None:
        """Read the first `size` bytes of the disk; HostError if the file is not a safe image of that size.

        `path` is for messages.
        """
        self._descriptor, self._size, self._path = descriptor, size, path
        self._length = os.fstat(descriptor).st_size
        with self._named():
            if (has := image_size(descriptor)) < size:
                raise HostError(f"the disk in the image has {has} bytes instead of {size}")
            at, count = parse_tables(os.pread(descriptor, _HEADER, 0))
            needed = clusters(size, REGION)
            if count < needed:
                raise HostError("its tables do not fit its size")
            self._directory = unpacked(self._exactly(at, needed * 8))
        self._region = -1
        self._now: Table | None = None

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the image in an error."""
        try:
            yield
        except HostError as err:
            raise HostError(f"{self._path}: {err.message}") from err

    def spans(self) -> Iterator[tuple[int, int, bool]]:
        """Yield offset and length of consecutive parts, and whether they certainly read as zeros."""
        with self._named():
            yield from self._spans()

    def _spans(self) -> Iterator[tuple[int, int, bool]]:
        begin, offset, was_zero = 0, 0, True
        while offset < self._size:
            is_empty = self._table(offset // REGION) is None
            is_zero = is_empty or self._position(offset) is None
            if is_zero != was_zero:
                if offset > begin:
                    yield begin, offset - begin, was_zero
                begin, was_zero = offset, is_zero
            offset += REGION if is_empty else CLUSTER
        yield begin, self._size - begin, was_zero

    def read(self, offset: int, room: memoryview) -> None:
        """Fill the buffer with the bytes of the disk at `offset`."""
        with self._named():
            while room:
                at, length = self._run(offset, len(room))
                if at is None:
                    room[:length] = bytes(length)
                else:
                    self._fill(at, room[:length])
                room, offset = room[length:], offset + length

    def _run(self, offset: int, limit: int) -> tuple[int | None, int]:
        """Return the position of the bytes at an offset, None for zeros, and how many follow each other there."""
        at, length = self._position(offset), CLUSTER - offset % CLUSTER
        while length < limit:
            following = None if at is None else at + length
            if self._position(offset + length) != following:
                break
            length += CLUSTER
        return at, min(length, limit)

    def _position(self, offset: int) -> int | None:
        """Return the position in the file of the byte of the disk at an offset; None if it is a zero."""
        table = self._table(offset // REGION)
        if table is None:
            return None
        at = data_position(table[offset % REGION // CLUSTER], self._length)
        return None if at is None else at + offset % CLUSTER

    def _table(self, region: int) -> Table | None:
        """Return the table of a region of the disk; the last one is kept."""
        if region != self._region:
            at = table_position(self._directory[region], self._length)
            self._now = None if at is None else unpacked(self._exactly(at, CLUSTER))
            self._region = region
        return self._now

    def _exactly(self, at: int, length: int) -> bytes:
        found = os.pread(self._descriptor, length, at)
        if len(found) != length:
            raise HostError("an entry of its tables leads outside of it")
        return found

    def _fill(self, at: int, room: memoryview) -> None:
        """Read from the file; what its last cluster lacks reads as zeros."""
        while room:
            count = os.preadv(self._descriptor, [room], at)
            if not count:
                room[:] = bytes(len(room))
                return
            room, at = room[count:], at + count
