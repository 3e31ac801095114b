"""Copies that write only what differs."""

import os
import random
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.storage.differences import BLOCK, PIECE, copy_differences
from ganeti.storage.wipe import Stopped

SIZE = 2 * PIECE + 3 * BLOCK + 512


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Path, Path]:
    data = random.Random(7).randbytes(SIZE)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    target.write_bytes(data)
    return source, target


def copied(source: Path, target: Path, *, stop_after: int = 99) -> int:
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > stop_after

    with source.open("rb") as reading, target.open("r+b") as writing:
        return copy_differences(reading.fileno(), writing.fileno(), SIZE, is_stopped)


def change(path: Path, *places: int) -> None:
    with path.open("r+b") as changing:
        for place in places:
            old = os.pread(changing.fileno(), 1, place)
            os.pwrite(changing.fileno(), bytes([old[0] ^ 1]), place)


@pytest.mark.parametrize(
    ("places", "blocks"),
    [((), 0), ((0,), 1), ((BLOCK - 1, BLOCK), 2), ((PIECE, PIECE + 1), 1), ((PIECE * 2 - 1,), 1)],
)
def test_only_differing_blocks_are_written(
    ends: tuple[Path, Path], places: tuple[int, ...], blocks: int
) -> None:
    source, target = ends
    change(target, *places)
    assert copied(source, target) == blocks * BLOCK
    assert target.read_bytes() == source.read_bytes()
    assert copied(source, target) == 0


def test_the_last_block_may_be_short(ends: tuple[Path, Path]) -> None:
    source, target = ends
    change(target, SIZE - 1)
    assert copied(source, target) == 512
    assert target.read_bytes() == source.read_bytes()


def test_an_interrupted_copy_is_completed_by_the_next(ends: tuple[Path, Path]) -> None:
    source, target = ends
    change(target, 0, PIECE, SIZE - 1)
    with pytest.raises(Stopped):
        copied(source, target, stop_after=1)
    assert copied(source, target) == BLOCK + 512
    assert target.read_bytes() == source.read_bytes()


def test_a_shorter_source_is_an_error(ends: tuple[Path, Path]) -> None:
    source, target = ends
    os.truncate(source, PIECE)
    with pytest.raises(StorageError, match=f"the data ends at byte {PIECE}"):
        copied(source, target)
