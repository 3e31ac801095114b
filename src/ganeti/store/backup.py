"""A snapshot as a stream of bytes, the same for every back end.

The stream is a line of JSON (format, cluster, position), each row with the lengths of its parts, in
the order of kind and key, then a mark and the digest of everything before. A reader refuses a
truncated or changed stream as a whole, and no length in a file makes it allocate much memory.
"""

import hashlib
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ganeti.base.errors import StoreError
from ganeti.store.interface import (
    MAX_EPOCH,
    MAX_SERIAL,
    MAX_TRANSACTION_BYTES,
    ByteSink,
    Position,
    Row,
)

_MAGIC = "ganeti-state"
_FORMAT = 1
_ROW = struct.Struct(">BHII")  # mark, bytes of kind, key and value
_ROW_MARK, _END_MARK = 1, 0
_DIGEST_BYTES = 32
_LONGEST_HEADER = 4096
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupHeader:
    """The header of a backup."""

    cluster_uuid: str
    position: Position


async def write_backup(
    snapshot: AsyncIterator[Position | Row], sink: ByteSink, cluster_uuid: str
) -> Position:
    """Stream the content of `StateBackend.load`; return the position of the backup."""
    digest = hashlib.sha256()
    position: Position | None = None
    chunk = bytearray()

    async def flush() -> None:
        digest.update(chunk)
        await sink.write(bytes(chunk))
        chunk.clear()

    async for item in snapshot:
        if isinstance(item, Position):
            position = item
            chunk += encode_header(BackupHeader(cluster_uuid, item))
            continue
        chunk += encode_row(item)
        if len(chunk) >= _CHUNK_BYTES:
            await flush()
    if position is None:
        raise StoreError("the snapshot has no position")
    chunk.append(_END_MARK)
    await flush()
    await sink.write(digest.digest())
    return position


def encode_header(header: BackupHeader) -> bytes:
    """Return the first line of the stream."""
    fields = {
        "magic": _MAGIC,
        "format": _FORMAT,
        "cluster_uuid": header.cluster_uuid,
        "position": header.position.as_int(),
    }
    return json.dumps(fields).encode() + b"\n"


def encode_row(row: Row) -> bytes:
    """Return one row with its mark and lengths."""
    kind, key = row.kind.encode(), row.key.encode()
    return _ROW.pack(_ROW_MARK, len(kind), len(key), len(row.value)) + kind + key + row.value


def read_backup(read: Callable[[int], bytes]) -> Iterator[BackupHeader | Row]:
    """Return the header and the rows of a backup, read with a file's `read`.

    StoreError if the stream is damaged. It may come after some rows, so use none of them before the
    iteration has ended.
    """
    source = _Source(read)
    yield _decode_header(source.line())
    before: tuple[bytes, bytes] | None = None
    while (mark := source.exactly(1)[0]) == _ROW_MARK:
        row, name = _read_row(source)
        if before is not None and name <= before:
            raise StoreError("the backup is damaged: its rows are not in order")
        before = name
        yield row
    wanted = source.digest.digest()
    if mark != _END_MARK or source.exactly(_DIGEST_BYTES) != wanted or read(1):
        raise StoreError("the backup is damaged: its digest does not match")


def _read_row(source: "_Source") -> tuple[Row, tuple[bytes, bytes]]:
    kind_bytes, key_bytes, value_bytes = struct.unpack(">HII", source.exactly(_ROW.size - 1))
    if kind_bytes + key_bytes + value_bytes > MAX_TRANSACTION_BYTES:
        raise StoreError("the backup is damaged: a row is larger than any that can be written")
    kind, key = source.exactly(kind_bytes), source.exactly(key_bytes)
    value = source.exactly(value_bytes)
    try:
        return Row(kind.decode(), key.decode(), value), (kind, key)
    except UnicodeDecodeError:
        raise StoreError("the backup is damaged: a name is not valid text") from None


class _Header(msgspec.Struct):
    magic: Literal["ganeti-state"]
    format: int
    cluster_uuid: str
    position: Annotated[int, msgspec.Meta(ge=0, le=(MAX_EPOCH << 32) + MAX_SERIAL)]


def _decode_header(line: bytes) -> BackupHeader:
    try:
        found = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StoreError("the file is not a backup of a state store") from None
    if found.format != _FORMAT:
        raise StoreError(
            f"format {found.format} of the backup is not known: it may come from a newer release"
        )
    return BackupHeader(found.cluster_uuid, Position.from_int(found.position))


class _Source:
    """Reads exact amounts and digests them."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self.digest = hashlib.sha256()

    def exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing:
            part = self._read(min(missing, _CHUNK_BYTES))
            if not part:
                raise StoreError("the backup is cut short")
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        self.digest.update(data)
        return data

    def line(self) -> bytes:
        collected = bytearray()
        while not collected.endswith(b"\n"):
            if len(collected) > _LONGEST_HEADER:
                raise StoreError("the file is not a backup of a state store")
            collected += self.exactly(1)
        return bytes(collected)
