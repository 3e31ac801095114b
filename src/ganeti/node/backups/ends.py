"""Sources and sinks of streams for backups: changed blocks of a disk, the images of a backup, sums of its blocks.

The changes are a sequence of records, each a header and the data of whole blocks:

    DATA   offset  length    the bytes
    ZEROS  offset  length    nothing: the blocks read as zeros
    SAME   offset  length    nothing: the blocks are unchanged, and the sender is alive

The sums are the SHA-256 of each block of 64 KiB of a disk, one after the other.
"""

import contextlib
import hashlib
import itertools
import os
import stat
import struct
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from ganeti.base.errors import HostError
from ganeti.node.backups.ahead import content, read_ahead, wanted
from ganeti.node.backups.directory import NEW, opened
from ganeti.node.backups.images import Chain, Extent, ImageWriter, new_image, open_chain
from ganeti.node.backups.nbd import ALLOCATION, NbdReader, dirty_context
from ganeti.node.carrier.frames import AHEAD, CHUNK, Piece, Pieces, as_data, split_zeros
from ganeti.node.carrier.order import ChangesOrder, ImageOrder, PointOrder
from ganeti.protocols.backup_encryption import NO_KEYS, BackupKeyring
from ganeti.protocols.backup_manifest import Image
from ganeti.protocols.qcow2 import CLUSTER
from ganeti.storage.image_data import ImageReader, lock_image

RECORD = struct.Struct(">BQQ")
DATA, ZEROS, SAME = 1, 2, 3
TELL_EVERY = 64 << 20
SUM_BYTES = 32
SPARE, LOOK_EVERY_S = 0.05, 1.0
PART = 1 << 20
"""Bytes that are read from a disk at once."""
_PARTS_AHEAD, _DIGESTING = 2, 2
_ZERO_SUM = hashlib.sha256(bytes(CLUSTER)).digest()
Span = tuple[int, int, bool]
"""Offset, length, and whether all of it certainly reads as zeros."""


class DiskReader(Protocol):
    """A disk, or a moment of one."""

    def spans(self) -> Iterator[Span]:
        """Yield the parts of the disk that may have changed, in order."""
        ...

    def read(self, offset: int, room: memoryview) -> None:
        """Fill the buffer; HostError if the disk ends before."""
        ...


class FileReader:
    """A disk in a file or a device."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size = descriptor, size
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)

    def spans(self) -> Iterator[Span]:
        offset = 0
        while offset < self._size:
            data = self._seek(offset, os.SEEK_DATA)
            begin = data - data % CLUSTER
            if begin > offset:
                yield offset, begin - offset, True
                offset = begin
            if offset < self._size:
                # The block may begin with a hole, so the end is searched from the data on.
                end = self._seek(data, os.SEEK_HOLE) if self._is_file else self._size
                end = min(self._size, -(-end // CLUSTER) * CLUSTER)
                yield offset, end - offset, False
                offset = end

    def _seek(self, offset: int, what: int) -> int:
        """Return the next data or hole; devices have no holes."""
        if not self._is_file:
            return offset
        try:
            return min(self._size, os.lseek(self._descriptor, offset, what))
        except OSError:
            return self._size

    def read(self, offset: int, room: memoryview) -> None:
        while room:
            count = os.preadv(self._descriptor, [room], offset)
            if not count:
                raise HostError(f"the disk ends at byte {offset} instead of {self._size}")
            room, offset = room[count:], offset + count


class SpareSpace:
    """The space in which QEMU keeps the old blocks of a moment; '': the source is not a moment."""

    def __init__(self, directory: str) -> None:
        self._directory, self._looked = directory, 0.0

    def check(self) -> None:
        """Raise HostError before these blocks fill the node's file system."""
        now = time.monotonic()
        if self._directory and now - self._looked > LOOK_EVERY_S:
            self._looked = now
            space = os.statvfs(self._directory)
            if space.f_bavail < space.f_blocks * SPARE:
                raise HostError(
                    f"the guest overwrites more than fits into {self._directory}: less than {SPARE:.0%} of it is free"
                )


@dataclass(frozen=True)
class _Part:
    """Consecutive bytes of a disk; `data` is unset if all of them certainly read as zeros."""

    offset: int
    length: int
    data: memoryview | None = None
    sums: "Future[bytes] | None" = None
    """The sums of its blocks, if they were requested."""


def _read_ahead(disk: DiskReader, *, sums: bool) -> Generator[_Part, None, None]:
    """Yield the parts of a disk, which a thread reads some parts ahead; other threads compute the sums.

    Data stays unchanged until AHEAD + 2 more parts were yielded.
    """
    reader, workers = ThreadPoolExecutor(1, "reader"), ThreadPoolExecutor(_DIGESTING, "sums")
    rooms = itertools.cycle([memoryview(bytearray(PART)) for _ in range(AHEAD + 3 + _PARTS_AHEAD)])

    def parts() -> Iterator[_Part]:
        for offset, length, is_zero in disk.spans():
            step = TELL_EVERY if is_zero else PART
            for at in range(offset, offset + length, step):
                part = min(step, offset + length - at)
                if is_zero:
                    yield _Part(at, part)
                    continue
                room = next(rooms)[:part]
                disk.read(at, room)
                yield _Part(at, part, room, workers.submit(_block_sums, room) if sums else None)

    found = parts()
    waiting = deque(reader.submit(next, found, None) for _ in range(_PARTS_AHEAD))
    try:
        while (one := waiting.popleft().result()) is not None:
            waiting.append(reader.submit(next, found, None))
            yield one
    finally:
        for pool in (reader, workers):
            pool.shutdown(cancel_futures=True)


class WholeSource:
    """All of a disk as it was at one moment."""

    def __init__(self, disk: DiskReader, spare: str = "") -> None:
        self._disk, self._spare = disk, SpareSpace(spare)

    def position(self, length: int) -> int:
        return length

    def pieces(self) -> Pieces:
        with contextlib.closing(_read_ahead(self._disk, sums=False)) as parts:
            for one in parts:
                if one.data is None:
                    yield one.length, b""
                else:
                    for at in range(0, one.length, CHUNK):
                        yield from split_zeros(one.data[at : at + CHUNK])
                self._spare.check()

    def finish(self) -> None:
        """Everything was read, otherwise an error was raised."""


class ChangesSource:
    """The blocks of a disk that differ from those with given sums, or all that are not zero."""

    def __init__(
        self, disk: DiskReader, sums: int | None, *, all_changed: bool = False, spare: str = ""
    ) -> None:
        """With `all_changed`, the parts that the disk reports have changed, and zeros in them count."""
        self._disk, self._sums, self._spare = disk, sums, SpareSpace(spare)
        self._keeps_zeros = sums is not None or all_changed
        self._examined = self._told = 0

    def position(self, length: int) -> int:
        """Return how much of the disk was examined."""
        del length
        return self._examined

    def pieces(self) -> Pieces:
        with contextlib.closing(_read_ahead(self._disk, sums=self._sums is not None)) as parts:
            for one in parts:
                yield from self._zeros(one) if one.data is None else self._data(one, one.data)
                self._examined = one.offset + one.length
                self._spare.check()
                if self._examined - self._told >= TELL_EVERY:
                    yield 0, RECORD.pack(SAME, self._told, self._examined - self._told)
                    self._told = self._examined

    def _zeros(self, one: _Part) -> Pieces:
        """Yield the blocks that were not zeros before."""
        if self._sums is None:
            return
        known = _sums_at(self._sums, one.offset, one.length)
        if known == _ZERO_SUM * (one.length // CLUSTER):
            return
        for at in range(0, one.length, CLUSTER):
            if _sum_of(known, at) != _ZERO_SUM:
                yield 0, RECORD.pack(ZEROS, one.offset + at, CLUSTER)

    def _data(self, one: _Part, room: memoryview) -> Pieces:
        """Yield the blocks that have changed, as runs."""
        known = sums = b""
        if self._sums is not None and one.sums is not None:
            known, sums = _sums_at(self._sums, one.offset, one.length), one.sums.result()
            if known == sums:
                return
        for zeros, data in _changed(room, known, sums):
            begin, length = data
            if zeros:
                if self._keeps_zeros:
                    yield 0, RECORD.pack(ZEROS, one.offset + begin, length)
            else:
                yield 0, RECORD.pack(DATA, one.offset + begin, length)
                for at in range(begin, begin + length, CHUNK):
                    yield 0, room[at : min(at + CHUNK, begin + length)]

    def finish(self) -> None:
        """Everything was read, otherwise an error was raised."""


def _block_sums(room: memoryview) -> bytes:
    """Return the SHA-256 of each block."""
    sums = bytearray()
    for zeros, data in split_zeros(room):
        sums += _ZERO_SUM * (zeros // CLUSTER)
        for at in range(0, len(data), CLUSTER):
            sums += hashlib.sha256(data[at : at + CLUSTER]).digest()
    return bytes(sums)


def _changed(room: memoryview, known: bytes, sums: bytes) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Yield the runs of changed blocks: whether they are zeros, begin and length. Without `known`, all have changed."""
    at = 0
    for zeros, data in split_zeros(room):
        length = zeros or len(data)
        begin: int | None = None
        for block in range(at, at + length, CLUSTER):
            changed = not known or _sum_of(known, block) != _sum_of(sums, block)
            if changed and begin is None:
                begin = block
            elif not changed and begin is not None:
                yield bool(zeros), (begin, block - begin)
                begin = None
        at += length
        if begin is not None:
            yield bool(zeros), (begin, at - begin)


def _sums_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return the sums of blocks; blocks behind the end of a smaller disk were zeros."""
    wanted = length // CLUSTER * SUM_BYTES
    found = os.pread(descriptor, wanted, offset // CLUSTER * SUM_BYTES)
    return found + _ZERO_SUM * ((wanted - len(found)) // SUM_BYTES)


def _sum_of(known: bytes, at: int) -> bytes:
    begin = at // CLUSTER * SUM_BYTES
    return known[begin : begin + SUM_BYTES]


class PointSource:
    """A disk of a backup, from all its images, and zeros up to `size`; or the sums of its blocks."""

    def __init__(self, chain: Chain, size: int, *, sums: bool) -> None:
        self._chain, self._size, self._sums = chain, size, sums

    def position(self, length: int) -> int:
        return length

    def pieces(self) -> Pieces:
        return self._sum_pieces() if self._sums else self._data_pieces()

    def _data_pieces(self) -> Pieces:
        done = 0
        for one, found in read_ahead(wanted(self._chain.extents()), self._chain.layers, content):
            done += one.length
            if found is None:
                yield from _zeros(one.length)
                continue
            data = found.result()
            for at in range(0, one.length, CHUNK):
                yield from split_zeros(data[at : at + CHUNK])
        yield from _zeros(self._size - done)

    def _sum_pieces(self) -> Pieces:
        sums = bytearray()
        for one, found in read_ahead(wanted(self._chain.extents()), self._chain.layers, _sums_of):
            if found is None:
                sums += _ZERO_SUM * (one.length // CLUSTER)
            else:
                sums += found.result()
            while len(sums) >= CHUNK:
                yield 0, bytes(sums[:CHUNK])
                del sums[:CHUNK]
        if sums:
            yield 0, bytes(sums)

    def finish(self) -> None:
        """Everything was read, otherwise an error was raised."""


def _sums_of(one: Extent, piece: memoryview) -> bytes:
    data = content(one, piece)
    return b"".join(
        hashlib.sha256(data[at : at + CLUSTER]).digest() for at in range(0, one.length, CLUSTER)
    )


def _zeros(length: int) -> Pieces:
    while length > 0:
        part = min(length, TELL_EVERY)
        yield part, b""
        length -= part


class ImageSink:
    """A new image of a backup, made of changes."""

    def __init__(self, order: ImageOrder, keys: BackupKeyring = NO_KEYS) -> None:
        self._order = order
        new = keys.new_cipher(order.file)
        cipher, self._key = new or (None, "")
        self._rest = bytearray()
        self._due = 0
        with opened(order.directory) as directory:
            self._descriptor = new_image(directory.descriptor, order.file + NEW)
        self._writer = ImageWriter(self._descriptor, order.size, order.backing, cipher)

    def take(self, zeros: int, data: Piece) -> None:
        for part in as_data(zeros, data):
            view = memoryview(part)
            while view:
                view = self._data(view) if self._due else self._header(view)

    def _data(self, view: memoryview) -> memoryview:
        part = view[: self._due]
        self._writer.append(part)
        self._due -= len(part)
        return view[len(part) :]

    def _header(self, view: memoryview) -> memoryview:
        wanted = RECORD.size - len(self._rest)
        self._rest += view[:wanted]
        if len(self._rest) == RECORD.size:
            kind, offset, length = RECORD.unpack(self._rest)
            self._rest.clear()
            if kind == DATA:
                self._writer.extent(offset, length)
                self._due = length
            elif kind == ZEROS:
                self._writer.zeros(offset, length)
            elif kind != SAME:
                raise HostError(f"{kind} is not a kind of change")
        return view[wanted:]

    def finish(self) -> None:
        if self._due or self._rest:
            raise HostError("the changes end in the middle of a block")
        order = self._order
        length, pieces = self._writer.finish()
        image = Image(
            disk=order.disk,
            size=order.size,
            file=order.file,
            backing=order.backing,
            length=length,
            pieces=pieces,
            key=self._key,
            tags=self._writer.tags,
        )
        with opened(order.directory) as directory:
            directory.write_part(image)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
        os.close(self._descriptor)


@contextlib.contextmanager
def open_changes(
    order: ChangesOrder, path: str, size: int, *, is_image: bool = False
) -> Iterator[ChangesSource | WholeSource]:
    """Open a disk, which may be an image, and the sums of its former blocks."""
    with contextlib.ExitStack() as files:
        sums = files.enter_context(_opened(order.sums)) if order.sums else None
        if not order.export:
            descriptor = files.enter_context(_opened(path))
            disk = _image(descriptor, size, path) if is_image else FileReader(descriptor, size)
            yield ChangesSource(disk, sums)
            return
        context = dirty_context(order.bitmap) if order.bitmap else ALLOCATION
        reader = NbdReader(path, order.export, context, size, forgets=True)
        files.callback(reader.close)
        if order.whole:
            yield WholeSource(reader, order.spare)
            return
        yield ChangesSource(reader, sums, all_changed=bool(order.bitmap), spare=order.spare)


@contextlib.contextmanager
def open_image(path: str, size: int) -> Iterator[WholeSource]:
    """Open all of a disk in an image."""
    with _opened(path) as descriptor:
        yield WholeSource(_image(descriptor, size, path))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _image(descriptor: int, size: int, path: str) -> DiskReader:
    lock_image(descriptor, path, writes=False)
    return ImageReader(descriptor, size, path)


@contextlib.contextmanager
def open_point(
    order: PointOrder, size: int, keys: BackupKeyring = NO_KEYS
) -> Iterator[PointSource]:
    """Open all images of a disk in a backup."""
    with opened(order.directory, keys) as directory:
        contents = directory.contents()
        point = contents.find(order.point)
        with open_chain(
            directory.descriptor, point, order.disk, contents.points, keys=keys
        ) as chain:
            if chain.size > size and not order.sums:
                raise HostError(f"the disk in the backup has {chain.size} bytes, more than {size}")
            yield PointSource(chain, size, sums=order.sums)
