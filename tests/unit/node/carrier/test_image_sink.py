"""A stream that fills a disk in an image: sound for QEMU, and repeatable after any interruption."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, StorageError
from ganeti.node.carrier.frames import split_zeros
from ganeti.node.carrier.image_sink import DiskImageSink
from ganeti.protocols.qcow2 import CLUSTER
from ganeti.storage.image_files import write_empty_image
from tests.support.qemu_images import qemu_io, ran, raw_of

pytestmark = pytest.mark.requirement("G12")

MIB = 1 << 20
SIZE = 8 * MIB


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image full of data."""
    path = tmp_path / "disk"
    with path.open("wb") as file:
        write_empty_image(file.fileno(), SIZE)
    qemu_io(path, f"write -P 9 0 {SIZE}")
    return path


@contextmanager
def opened(image: Path) -> Iterator[DiskImageSink]:
    with image.open("r+b") as file, closing(DiskImageSink(file.fileno(), str(image))) as sink:
        yield sink


def fill(image: Path, pieces: Sequence[tuple[int, bytes]], *, finish: bool = True) -> None:
    with opened(image) as sink:
        for zeros, data in pieces:
            sink.take(zeros, data)
        if finish:
            sink.finish()


def joined(pieces: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(bytes(zeros) + data for zeros, data in pieces).ljust(SIZE, b"\0")


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [(SIZE, b"")],
        [(0, b"x")],
        [(SIZE - 1, b"x")],
        [(0, b"x" * SIZE)],
        [(5, b"a"), (CLUSTER, b"b"), (3 * CLUSTER - 7, b"c" * (CLUSTER + 9))],
        [(CLUSTER, b"a" * CLUSTER), (1, b""), (2, b""), (CLUSTER, b"b" * 3), (70, b"")],
    ],
)
def test_image_is_sound_and_has_the_data(image: Path, pieces: list[tuple[int, bytes]]) -> None:
    fill(image, pieces)
    assert raw_of(image) == joined(pieces)
    assert image.stat().st_size <= len(joined(pieces)) + 8 * CLUSTER


@pytest.mark.parametrize("seed", range(5))
def test_any_pieces_become_the_disk(image: Path, seed: int) -> None:
    order = random.Random(seed)
    disk = bytearray(SIZE)
    for _ in range(30):
        at, length = order.randrange(SIZE), order.choice([1, 100, 4096, CLUSTER, 200_000])
        disk[at : at + length] = order.randbytes(len(disk[at : at + length]))
    at = 0
    with opened(image) as sink:
        while at < SIZE:
            part = disk[at : at + order.choice([1000, CLUSTER, 262_144])]
            for zeros, data in split_zeros(memoryview(part)):
                sink.take(zeros, data)
            at += len(part)
        sink.finish()
    assert raw_of(image) == disk
    qemu_io(image, f"write -P 7 0 {SIZE}")
    assert raw_of(image) == b"\7" * SIZE  # QEMU uses the space of the first tables again


def test_space_of_the_former_data_is_free_before_the_first_byte(image: Path) -> None:
    with opened(image):
        assert image.stat().st_blocks * 512 < MIB


def test_unfinished_image_is_empty_and_can_be_filled_again(image: Path) -> None:
    fill(image, [(0, b"a" * SIZE)], finish=False)
    assert raw_of(image) == bytes(SIZE)
    fill(image, [(0, b"b" * SIZE)])
    assert raw_of(image) == b"b" * SIZE


def test_larger_data_is_refused(image: Path) -> None:
    with pytest.raises(HostError, match="longer than the disk, which has 8388608 bytes"):
        fill(image, [(0, b"a" * SIZE), (0, b"b")])


def test_foreign_image_stays_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    ran("qemu-img", "create", "-q", "-f", "qcow2", tmp_path / "other", "8M")
    ran("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", tmp_path / "other", path)
    before = path.read_bytes()
    with path.open("r+b") as file, pytest.raises(StorageError, match="backing file"):
        DiskImageSink(file.fileno(), str(path))
    assert path.read_bytes() == before
