"""A snapshot as a stream of bytes, the same for every back end.

A line of JSON (format, position), then each row with lengths before its parts, then a mark and
the digest of all before it. What is cut short or changed is refused as a whole.
"""

import hashlib
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterator

from ganeti.base.errors import StoreError
from ganeti.store.interface import ByteSink, Position, Row

_MAGIC = "ganeti-state"
_FORMAT = 1
_ROW = struct.Struct(">BHII")  # mark, bytes of kind, key and value
_ROW_MARK, _END_MARK = 1, 0
_DIGEST_BYTES = 32
_LONGEST_HEADER = 4096
_CHUNK_BYTES = 1 << 20


async def write_backup(snapshot: AsyncIterator[Position | Row], sink: ByteSink) -> Position:
    """Stream what `Store.load` gives; the position of the backup."""
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
            chunk += encode_header(item)
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


def encode_header(position: Position) -> bytes:
    """The first line of the stream."""
    fields = {"magic": _MAGIC, "format": _FORMAT, "position": position.as_int()}
    return json.dumps(fields).encode() + b"\n"


def encode_row(row: Row) -> bytes:
    """One row, with its mark and lengths."""
    kind, key = row.kind.encode(), row.key.encode()
    return _ROW.pack(_ROW_MARK, len(kind), len(key), len(row.value)) + kind + key + row.value


def read_backup(read: Callable[[int], bytes]) -> Iterator[Position | Row]:
    """The position and the rows of a backup, from a file's `read`.

    StoreError where the stream is damaged; it may come after some rows, so nothing of them
    counts before the iteration has ended.
    """
    source = _Source(read)
    yield _decode_header(source.line())
    while source.exactly(1)[0] == _ROW_MARK:
        kind_bytes, key_bytes, value_bytes = struct.unpack(">HII", source.exactly(_ROW.size - 1))
        kind, key = source.exactly(kind_bytes), source.exactly(key_bytes)
        value = source.exactly(value_bytes)
        try:
            yield Row(kind.decode(), key.decode(), value)
        except UnicodeDecodeError:
            raise StoreError("the backup is damaged: a name is not valid text") from None
    wanted = source.digest.digest()
    if source.exactly(_DIGEST_BYTES) != wanted or read(1):
        raise StoreError("the backup is damaged: its digest does not match")


def _decode_header(line: bytes) -> Position:
    try:
        fields = json.loads(line)
        if fields["magic"] != _MAGIC or fields["format"] != _FORMAT:
            raise StoreError(f"format {fields['format']} of the backup is not known")
        return Position.from_int(int(fields["position"]))
    except (ValueError, KeyError, TypeError):
        raise StoreError("this is no backup of a state store") from None


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
                raise StoreError("this is no backup of a state store")
            collected += self.exactly(1)
        return bytes(collected)
