"""Reads and writes the images of backups, with a digest for each piece of the file.

A written image is append-only, except for its header, which comes last; so every piece has its digest while it is
written. A read piece is compared with its digest before any byte of it is used.
"""

import contextlib
import errno
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.backup_ciphers import TAG_BYTES, ImageCipher, WrongTagError
from ganeti.base.errors import HostError
from ganeti.node.carrier.pieces import PieceWriter
from ganeti.protocols.backup_encryption import NO_KEYS, BackupKeyring
from ganeti.protocols.backup_manifest import PIECE, Image, Manifest, chain_of
from ganeti.protocols.qcow2 import (
    CLUSTER,
    ENTRIES,
    REGION,
    ZERO,
    Layout,
    Table,
    closing,
    clusters,
    entry,
    new_table,
    parse_header,
    position,
    unpacked,
)

KEPT_PIECES = 2
"""Pieces of an image in memory: the data and the tables are in different ones."""


class ImageWriter:
    """Writes an image to a new file: extents in any order, each once."""

    def __init__(
        self, descriptor: int, size: int, backing: str, cipher: ImageCipher | None = None
    ) -> None:
        """With a cipher, `tags` has those of the pieces after `finish`."""
        self._size, self._backing = size, backing
        self._tables: dict[int, Table] = {}
        self._pieces = PieceWriter(
            descriptor, PIECE, digests=True, encrypt=_encryption(cipher) if cipher else None
        )
        self.tags = ""
        self._first = self._pieces.room()
        self._piece, self._number = self._first, 0
        self._filled = self._first_filled = self._end = CLUSTER

    def extent(self, offset: int, length: int) -> None:
        """Announce `length` bytes of the disk at `offset`, whole clusters, which `append` then gets."""
        at = self._end
        for number in range(self._checked(offset, length)):
            self._set(offset // CLUSTER + number, entry(at + number * CLUSTER))
        self._end += length

    def zeros(self, offset: int, length: int) -> None:
        """Let clusters read as zeros; without a backing file they do."""
        count = self._checked(offset, length)
        if self._backing:
            for number in range(count):
                self._set(offset // CLUSTER + number, ZERO)

    def append(self, data: bytes | memoryview) -> None:
        """Write data of the announced extents."""
        view = memoryview(data)
        while view:
            if self._filled == PIECE:
                self._flush()
            part = view[: PIECE - self._filled]
            self._piece[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[len(part) :]

    def _flush(self) -> None:
        """Write the piece, except for the first one, whose header comes last; begin the next one."""
        if self._number:
            self._pieces.put(self._number * PIECE, self._piece, self._filled)
        else:
            self._first_filled = self._filled
        self._number, self._piece, self._filled = self._number + 1, self._pieces.room(), 0

    def _checked(self, offset: int, length: int) -> int:
        if (
            offset % CLUSTER
            or length % CLUSTER
            or not 0 <= offset <= self._size - length
            or length <= 0
        ):
            raise HostError(
                f"{length} bytes at {offset} are not blocks of a disk of {self._size} bytes"
            )
        return length // CLUSTER

    def _set(self, cluster: int, value: int) -> None:
        table = self._tables.get(cluster // ENTRIES)
        if table is None:
            table = self._tables[cluster // ENTRIES] = new_table()
        table[cluster % ENTRIES] = value

    def finish(self) -> tuple[int, tuple[str, ...]]:
        """Write the tables and the header; return the length and the digests once the file is synced."""
        if self._number * PIECE + self._filled != self._end:
            raise HostError("the data of the image is not complete")
        parts, first = closing(self._end, self._size, self._tables, backing=self._backing)
        for part in parts:
            self._tail(part)
        self._first[:CLUSTER] = first
        if self._number:
            self._pieces.put(self._number * PIECE, self._piece, self._filled, is_last=True)
        else:
            self._first_filled = self._filled
        self._pieces.put(0, self._first, self._first_filled, is_last=not self._number)
        self._pieces.finish()
        found, tags = self._pieces.found, self._pieces.tags
        self.tags = b"".join(tags[number] for number in sorted(tags)).hex()
        return self._end, tuple(found[number] for number in sorted(found))

    def _tail(self, data: bytes) -> None:
        self._end += len(data)
        self.append(data)

    def close(self) -> None:
        """End the threads; idempotent."""
        self._pieces.close()


def _encryption(cipher: ImageCipher) -> Callable[[int, memoryview, bool], bytes]:
    return lambda number, piece, is_last: cipher.encrypt(number, piece, is_last=is_last)


@dataclass
class ImageReader:
    """An opened image, whose bytes are checked as they are read, and decrypted if there is a cipher."""

    image: Image
    descriptor: int
    kept: int = KEPT_PIECES
    cipher: ImageCipher | None = None
    layout: Layout = field(init=False)
    _pieces: dict[int, memoryview] = field(default_factory=dict, init=False)
    _directory: Table = field(init=False)

    def __post_init__(self) -> None:
        image = self.image
        if (has := os.fstat(self.descriptor).st_size) != image.length:
            raise self._wrong(f"it has {has} bytes instead of {image.length}")
        try:
            self.layout = parse_header(bytes(self.read(0, CLUSTER)), image.length)
        except HostError as err:
            raise self._wrong(err.message) from err
        if (self.layout.size, self.layout.backing) != (image.size, image.backing):
            raise self._wrong("its size or its backing file is not that of the manifest")
        length = clusters(self.layout.tables * 8, CLUSTER) * CLUSTER
        parts = b"".join(
            bytes(self.read(self.layout.tables_at + at, CLUSTER))
            for at in range(0, length, CLUSTER)
        )
        self._directory = unpacked(parts)

    def _wrong(self, why: str) -> HostError:
        text = why if why.startswith(self.image.file) else f"{self.image.file}: {why}"
        return HostError(text)

    def read(self, at: int, length: int) -> memoryview:
        """Return bytes of one piece of the file; HostError if the piece is not what was written."""
        number, begin = divmod(at, PIECE)
        return self._piece(number)[begin : begin + length]

    def _piece(self, number: int) -> memoryview:
        found = self._pieces.pop(number, None)
        if found is None:
            while len(self._pieces) >= self.kept:
                del self._pieces[next(iter(self._pieces))]
            found = self.load(number, bytearray(self._length(number)))
        self._pieces[number] = found
        return found

    def load(
        self, number: int, room: bytearray | mmap.mmap, direct: int | None = None
    ) -> memoryview:
        """Read one piece to a buffer, by another descriptor if there is one; HostError if it is not what was written.

        May run in several threads.
        """
        data = memoryview(room)[: self._length(number)]
        try:
            self._fill(data, number * PIECE, direct)
        except OSError as err:
            raise self._wrong(f"bytes from {number * PIECE}: {err.strerror}") from err
        if hashlib.sha256(data).hexdigest() != self.image.pieces[number]:
            raise self._wrong(
                f"the {len(data)} bytes from {number * PIECE} are not what was written (SHA-256)"
            )
        if self.cipher is not None:
            self._decrypt(self.cipher, number, data)
        return data

    def _decrypt(self, cipher: ImageCipher, number: int, data: memoryview) -> None:
        image = self.image
        at = number * 2 * TAG_BYTES
        tag = bytes.fromhex(image.tags[at : at + 2 * TAG_BYTES])
        try:
            cipher.decrypt(number, data, tag, is_last=number == len(image.pieces) - 1)
        except WrongTagError as err:
            raise self._wrong(
                f"the {len(data)} bytes from {number * PIECE} are not what was encrypted (AES-GCM)"
            ) from err

    def _length(self, number: int) -> int:
        return min(PIECE, self.image.length - number * PIECE)

    def _fill(self, room: memoryview, at: int, direct: int | None) -> None:
        """Read until the buffer is full or the file ends; the rest of the buffer is unchanged then."""
        while room:
            try:
                count = os.preadv(self.descriptor if direct is None else direct, [room], at)
            except OSError as err:
                # A file system may accept the flag, and refuse this alignment.
                if direct is None or err.errno != errno.EINVAL:
                    raise
                direct = None
                continue
            if not count:
                return
            room, at = room[count:], at + count

    def table(self, region: int) -> Table | None:
        """Return the table of a region of the disk; None if the image has nothing of it."""
        if region >= self.layout.tables or not (value := self._directory[region]):
            return None
        try:
            at = position(value, self.image.length)
            return unpacked(bytes(self.read(at, CLUSTER)))
        except HostError as err:
            raise self._wrong(err.message) from err

    def position(self, value: int) -> int:
        """Return the position of a table's entry in the file."""
        try:
            return position(value, self.image.length)
        except HostError as err:
            raise self._wrong(err.message) from err


@dataclass(frozen=True)
class Extent:
    """Consecutive bytes of a disk: in an image, zeros, or in none of the images (`layer` and `is_zero` unset)."""

    offset: int
    length: int
    layer: ImageReader | None = None
    at: int = 0
    is_zero: bool = False


@dataclass(frozen=True)
class Chain:
    """The images of one disk, the newest first."""

    layers: list[ImageReader]
    size: int

    def extents(self) -> Iterator[Extent]:
        """Yield the disk's extents in order; those of an image lie within one piece of its file."""
        for region in range(clusters(self.size, REGION)):
            begin = region * REGION
            length = min(REGION, self.size - begin)
            tables = self._tables(region)
            if tables:
                yield from _region(begin, clusters(length, CLUSTER), tables)
            else:
                yield Extent(begin, length)

    def read(self, offset: int, length: int) -> bytes:
        """Return any bytes of the disk; HostError if an image of them is damaged."""
        found, end = list[bytes | memoryview](), offset + length
        while offset < end:
            region, at = divmod(offset, REGION)
            number, within = divmod(at, CLUSTER)
            part = min(CLUSTER - within, end - offset)
            one = _cluster(offset - within, number, self._tables(region))
            found.append(one.layer.read(one.at + within, part) if one.layer else bytes(part))
            offset += part
        return b"".join(found)

    def status(self, offset: int, length: int, limit: int) -> list[tuple[int, bool]]:
        """Return the lengths of at most `limit` parts from `offset` on, and whether they certainly read as zeros."""
        found, end = list[tuple[int, bool]](), offset + length
        while offset < end:
            region, at = divmod(offset, REGION)
            number, within = divmod(at, CLUSTER)
            tables = self._tables(region)
            if tables:
                part = CLUSTER - within
                is_zero = _cluster(offset - within, number, tables).layer is None
            else:
                part, is_zero = REGION - at, True
            part = min(part, end - offset)
            if found and found[-1][1] == is_zero:
                found[-1] = (found[-1][0] + part, is_zero)
            elif len(found) == limit:
                break
            else:
                found.append((part, is_zero))
            offset += part
        return found

    def _tables(self, region: int) -> list[tuple[ImageReader, Table]]:
        """Return the tables of a region that the images have."""
        return [
            (layer, table) for layer in self.layers if (table := layer.table(region)) is not None
        ]


def _region(begin: int, count: int, tables: list[tuple[ImageReader, Table]]) -> Iterator[Extent]:
    """Join the clusters of one region to extents."""
    now: Extent | None = None
    for number in range(count):
        one = _cluster(begin + number * CLUSTER, number, tables)
        if now is not None and _continues(now, one):
            now = Extent(now.offset, now.length + CLUSTER, now.layer, now.at, now.is_zero)
            continue
        if now is not None:
            yield now
        now = one
    if now is not None:
        yield now


def _cluster(offset: int, number: int, tables: list[tuple[ImageReader, Table]]) -> Extent:
    for layer, table in tables:
        if value := table[number]:
            if value == ZERO:
                return Extent(offset, CLUSTER, is_zero=True)
            return Extent(offset, CLUSTER, layer, layer.position(value))
    return Extent(offset, CLUSTER)


def _continues(now: Extent, one: Extent) -> bool:
    if (now.layer, now.is_zero) != (one.layer, one.is_zero):
        return False
    return now.layer is None or (now.at + now.length == one.at and one.at % PIECE != 0)


def stored_problems(
    image: Image, descriptor: int, tell: Callable[[int, int], None] = lambda _done, _size: None
) -> list[str]:
    """Return how the bytes of an image's file differ from their digests; needs no key."""
    if (has := os.fstat(descriptor).st_size) != image.length:
        return [f"{image.file}: it has {has} bytes instead of {image.length}"]
    found, room = list[str](), memoryview(bytearray(PIECE))
    for number, digest in enumerate(image.pieces):
        at = number * PIECE
        count = os.preadv(descriptor, [room[: image.length - at]], at)
        if hashlib.sha256(room[:count]).hexdigest() != digest:
            found.append(
                f"{image.file}: the {count} bytes from {at} are not what was written (SHA-256)"
            )
        tell(at + count, image.length)
    return found


def open_image(directory: int, image: Image) -> int:
    """Open a regular file of the directory, never a link; HostError if there is none."""
    try:
        descriptor = os.open(
            image.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError as err:
        raise HostError(f"{image.file}: {err.strerror}") from err
    return descriptor


@contextlib.contextmanager
def open_chain(
    directory: int,
    point: Manifest,
    disk: str,
    known: Mapping[str, Manifest],
    *,
    keys: BackupKeyring = NO_KEYS,
    kept: int = KEPT_PIECES,
) -> Iterator[Chain]:
    """Open all images of a disk. What is open stays readable, whatever happens to the names.

    `kept` pieces of each image stay in memory. The manifests were checked with the keys.
    """
    with contextlib.ExitStack() as opened:
        layers = []
        for image in chain_of(point, disk, known):
            descriptor = open_image(directory, image)
            opened.callback(os.close, descriptor)
            cipher = keys.cipher(point.key_id, image) if point.key_id else None
            layers.append(ImageReader(image, descriptor, kept, cipher))
        yield Chain(layers, layers[0].image.size)


def remove(name: str, directory: int) -> None:
    """Remove a file of the directory, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def new_image(directory: int, name: str) -> int:
    """Create a file of the directory instead of the rest of an earlier attempt."""
    remove(name, directory)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=directory)


def open_directory(path: Path) -> int:
    """Open the directory of one instance's backups, never a link."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
