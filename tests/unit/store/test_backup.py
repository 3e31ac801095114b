"""A backup is read back whole, or refused."""

import asyncio
import io
from collections.abc import AsyncIterator

import pytest

from ganeti.base.errors import StoreError
from ganeti.store.backup import BackupHeader, read_backup, write_backup
from ganeti.store.interface import Position, Row
from tests.unit.store.conformance import MemorySink

ITEMS: list[Position | Row] = [
    Position(3, 14),
    Row("config", "cluster", b"{}"),
    Row("job", "empty", b""),
    Row("job", "é", bytes(range(256))),
]


async def stream(items: list[Position | Row]) -> AsyncIterator[Position | Row]:
    for item in items:
        yield item


def backup(items: list[Position | Row]) -> bytes:
    sink = MemorySink()
    asyncio.run(write_backup(stream(items), sink, "cluster-1"))
    return bytes(sink.data)


def restored(data: bytes) -> list[Position | Row]:
    header, *rows = read_backup(io.BytesIO(data).read)
    assert isinstance(header, BackupHeader)
    assert header.cluster_uuid == "cluster-1"
    return [header.position, *(row for row in rows if isinstance(row, Row))]


def test_a_backup_is_read_back_as_it_was() -> None:
    assert restored(backup(ITEMS)) == ITEMS
    assert restored(backup(ITEMS[:1])) == ITEMS[:1]


def test_a_large_backup_is_written_in_chunks() -> None:
    rows: list[Position | Row] = [Row("k", str(number), bytes(400_000)) for number in range(9)]
    assert restored(backup([Position(1, 1), *rows])) == [Position(1, 1), *rows]


@pytest.mark.requirement("G3")
def test_every_cut_and_every_changed_byte_is_refused() -> None:
    data = backup(ITEMS)
    for length in range(len(data)):
        with pytest.raises(StoreError):
            restored(data[:length])
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 0x40
        with pytest.raises(StoreError):
            restored(bytes(changed))
    with pytest.raises(StoreError):
        restored(data + b"more")


def test_something_else_is_no_backup() -> None:
    for data in (b"", b"{}\n", b"[1]\n", b"x" * 100_000, b'{"magic": "ganeti-state"}\n'):
        with pytest.raises(StoreError):
            restored(data)


def test_a_snapshot_without_a_position_is_refused() -> None:
    with pytest.raises(StoreError, match="no position"):
        backup([])
