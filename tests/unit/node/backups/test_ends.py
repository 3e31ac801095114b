"""Reading a disk ahead of the changes that are found in it: in order, with its errors, and without leftover threads."""

import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.node.backups.ends import (
    DATA,
    PART,
    RECORD,
    SAME,
    ZEROS,
    ChangesSource,
    FileReader,
    Span,
    WholeSource,
)
from ganeti.node.carrier.frames import AHEAD, CHUNK
from ganeti.protocols.qcow2 import CLUSTER

PARTS = 14
PER_PART = PART // CLUSTER


class Disk:
    """Each part has its number as content; one of them may fail."""

    def __init__(self, failing: int = -1) -> None:
        self.failing, self.read_by = failing, set[str]()

    def spans(self) -> Iterator[Span]:
        yield 0, PARTS * PART, False
        yield PARTS * PART, 4 * CLUSTER, True

    def read(self, offset: int, room: memoryview) -> None:
        self.read_by.add(threading.current_thread().name)
        if offset // PART == self.failing:
            raise HostError("the disk failed")
        room[:] = bytes([offset // PART + 1]) * len(room)


@pytest.mark.parametrize(
    "at", [0, 4096, CLUSTER - 4096, CLUSTER, 5 * CLUSTER + 4096, 8 * CLUSTER - 4096]
)
def test_data_anywhere_in_a_sparse_file_is_found(tmp_path: Path, at: int) -> None:
    """A block may begin with a hole, and with the file."""
    size = 8 * CLUSTER
    with (tmp_path / "disk").open("w+b") as file:
        file.truncate(size)
        file.seek(at)
        file.write(b"x" * 4096)
        file.flush()
        spans = list(itertools.islice(FileReader(file.fileno(), size).spans(), size // CLUSTER + 1))
    begin = at - at % CLUSTER
    assert [one for one in spans if not one[2]] == [(begin, CLUSTER, False)]
    assert sum(length for _, length, _ in spans) == size


def threads() -> set[str]:
    return {one.name for one in threading.enumerate()}


def test_disk_is_read_ahead_in_order_and_stays_unchanged_for_late_digests() -> None:
    before, late = threads(), deque[tuple[int, memoryview]]()
    disk = Disk()
    for number, (zeros, data) in enumerate(WholeSource(disk, "").pieces()):
        if zeros:
            assert (number, zeros) == (PARTS * PART // CHUNK, 4 * CLUSTER)
            continue
        late.append((number * CHUNK // PART, memoryview(data)))
        if len(late) > AHEAD + 2:
            late.popleft()
        assert all(one[0] == one[-1] == at + 1 for at, one in late)
    assert len(disk.read_by) == 1
    assert threading.current_thread().name not in disk.read_by
    assert threads() == before


@pytest.mark.parametrize("failing", [0, 1, PARTS - 1])
def test_failed_read_is_an_error_after_all_parts_before_it(failing: int) -> None:
    before, found = threads(), list[int]()

    def read() -> None:
        found.extend(data[0] - 1 for _, data in WholeSource(Disk(failing), "").pieces())

    with pytest.raises(HostError, match="the disk failed"):
        read()
    assert found == [number // (PART // CHUNK) for number in range(failing * PART // CHUNK)]
    assert threads() == before


def test_reader_that_stops_early_leaves_no_threads() -> None:
    before = threads()
    pieces = WholeSource(Disk(), "").pieces()
    next(pieces)
    assert threads() > before
    del pieces
    assert threads() == before


@pytest.mark.parametrize("changed", [(), (0,), (3, 4, 5), (7, 9, PARTS * PER_PART - 1)])
def test_only_blocks_with_other_sums_are_sent(tmp_path: Path, changed: tuple[int, ...]) -> None:
    blocks = [bytes([number // PER_PART + 1]) * CLUSTER for number in range(PARTS * PER_PART)]
    sums = [hashlib.sha256(block).digest() for block in [*blocks, *[bytes(CLUSTER)] * 4]]
    for number in changed:
        sums[number] = bytes(32)
    sums[PARTS * PER_PART + 1] = bytes(32)  # zeros now
    known = tmp_path / "sums"
    known.write_bytes(b"".join(sums))
    with known.open("rb") as file:
        source = ChangesSource(Disk(), file.fileno())
        data = b"".join(bytes(piece) for _, piece in source.pieces())
        source.finish()
    sent, zeros, at = list[int](), list[int](), 0
    while at < len(data):
        kind, offset, length = RECORD.unpack_from(data, at)
        at += RECORD.size
        numbers = range(offset // CLUSTER, (offset + length) // CLUSTER)
        if kind == DATA:
            sent += numbers
            assert data[at : at + length] == b"".join(blocks[number] for number in numbers)
            at += length
        elif kind == ZEROS:
            zeros += numbers
        else:
            assert kind == SAME
    assert sent == list(changed)
    assert zeros == [PARTS * PER_PART + 1]
