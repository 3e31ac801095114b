"""The data of disks in images: the same bytes that QEMU reads, and no other file or program."""

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, StorageError
from ganeti.protocols.qcow2 import CLUSTER, REGION
from ganeti.storage.image_data import ImageReader, lock_image
from ganeti.storage.image_files import write_empty_image
from tests.support.qemu_images import in_use, qemu_io, ran, raw_of

pytestmark = pytest.mark.requirement("G12")

MIB = 1 << 20


def written(image: Path, *commands: str, size: int = 8 * MIB, options: str = "") -> Path:
    """Let QEMU make an image and write to it."""
    extra = ["-o", options] if options else []
    ran("qemu-img", "create", "-q", "-f", "qcow2", *extra, image, str(size))
    qemu_io(image, *commands)
    return image


@contextmanager
def opened(image: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(image, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(image: Path, size: int) -> bytes:
    """Return the bytes of the disk by its spans; parts that do not read as zeros are read at once."""
    found, room = bytearray(), bytearray(size)
    with opened(image) as descriptor:
        reader = ImageReader(descriptor, size, str(image))
        for offset, length, is_zero in reader.spans():
            assert offset == len(found)
            assert length > 0
            part = memoryview(room)[:length]
            part[:] = b"\xff" * length
            if is_zero:
                part[:] = bytes(length)
            else:
                reader.read(offset, part)
            found += part
    return bytes(found)


COMMANDS = (
    "write -P 1 0 64k",
    "write -P 2 3M 1M",
    "write -P 3 1000 3000",  # within a cluster
    "write -P 4 2M 65537",
    "write -z 3M 128k",  # zeros above data
    "write -z 5M 64k",
    "discard 3500k 200k",
    "write -P 5 7M 1M",
)


@pytest.mark.parametrize("options", ["", "compat=0.10", "lazy_refcounts=on"])
def test_reader_finds_what_qemu_has_written(tmp_path: Path, options: str) -> None:
    image = written(tmp_path / "disk", *COMMANDS, options=options)
    assert read(image, 8 * MIB) == raw_of(image)


def test_reader_finds_scattered_data_of_a_grown_image(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    with image.open("wb") as file:
        write_empty_image(file.fileno(), 3 * MIB)
    qemu_io(image, "write -P 1 2M 1M")
    size = 2 * REGION + 3 * MIB
    ran("qemu-img", "resize", "-q", "-f", "qcow2", image, str(size))
    order = random.Random(7)
    offsets = [at * CLUSTER + 100 for at in order.sample(range(size // CLUSTER), 60)]
    qemu_io(image, *(f"write -P {1 + at % 200} {at} 4k" for at in offsets))
    with opened(image) as descriptor:
        reader = ImageReader(descriptor, size, str(image))
        parts = list(reader.spans())
        assert sum(length for _, length, _ in parts) == size
        assert all(before[2] != after[2] for before, after in pairwise(parts))
        room = bytearray(2 * CLUSTER)
        for at in offsets:
            begin = max(0, min(at - 5000, size - len(room)))
            reader.read(begin, memoryview(room))
            assert room[at - begin : at - begin + 4096] == bytes([1 + at % 200]) * 4096


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("cluster_size=4k", "its clusters have 4096 bytes instead of 65536"),
        ("extended_l2=on", "its clusters are divided"),
    ],
)
def test_image_of_another_form_is_refused(tmp_path: Path, options: str, why: str) -> None:
    image = written(tmp_path / "disk", *COMMANDS[:1], options=options)
    with pytest.raises(HostError, match=why):
        read(image, 8 * MIB)


def test_compressed_cluster_is_refused(tmp_path: Path) -> None:
    image = written(tmp_path / "disk", "write -c -P 1 0 64k")
    with pytest.raises(HostError, match="disk: it has compressed clusters"):
        read(image, 8 * MIB)


def test_image_with_another_file_or_size_is_refused(tmp_path: Path) -> None:
    other = written(tmp_path / "other")
    above = tmp_path / "above"
    ran("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", other, above)
    with pytest.raises(HostError, match=r"above: .*backing file"):
        read(above, 8 * MIB)
    with pytest.raises(HostError, match="has 8388608 bytes instead of 9437184"):
        read(other, 9 * MIB)


@pytest.mark.parametrize("value", [1 << 40, (1 << 63) | (1 << 56), 0x200, (1 << 63) | (1 << 50)])
@pytest.mark.parametrize("is_cluster", [False, True])
def test_hostile_entries_are_errors(tmp_path: Path, value: int, *, is_cluster: bool) -> None:
    image = written(tmp_path / "disk", "write -P 1 0 64k")
    with image.open("r+b") as file:
        (directory,) = struct.unpack(">Q", os.pread(file.fileno(), 8, 40))
        (table,) = struct.unpack(">Q", os.pread(file.fileno(), 8, directory))
        at = table & ~(1 << 63) if is_cluster else directory
        os.pwrite(file.fileno(), struct.pack(">Q", value), at)
    with pytest.raises(HostError, match="disk: an entry of its tables"):
        read(image, 8 * MIB)


@pytest.mark.parametrize(("at", "value"), [(40, 1 << 40), (40, 4096), (40, 0)])
def test_tables_outside_of_the_image_are_errors(tmp_path: Path, at: int, value: int) -> None:
    image = written(tmp_path / "disk")
    with image.open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack(">Q", value), at)
    with pytest.raises(HostError, match="tables"):
        read(image, 8 * MIB)


@pytest.mark.parametrize("writes", [False, True])
def test_image_in_use_is_refused_and_a_locked_one_is_not_opened_by_qemu(
    tmp_path: Path, *, writes: bool
) -> None:
    image = written(tmp_path / "disk")
    with (
        in_use(image),
        opened(image, os.O_RDWR) as descriptor,
        pytest.raises(StorageError, match="disk: a program uses the image"),
    ):
        lock_image(descriptor, str(image), writes=writes)
    with opened(image, os.O_RDWR) as descriptor:
        lock_image(descriptor, str(image), writes=writes)
        with opened(image, os.O_RDWR) as other:
            if writes:
                with pytest.raises(StorageError):
                    lock_image(other, str(image), writes=False)
            else:
                lock_image(other, str(image), writes=False)
                with pytest.raises(StorageError):
                    lock_image(other, str(image), writes=True)
        with pytest.raises(subprocess.CalledProcessError):
            qemu_io(image, "write 0 64k")
    qemu_io(image, "write 0 64k")


def test_lock_that_cannot_be_taken_is_an_error(tmp_path: Path) -> None:
    """Only a file system without locks is excused; a descriptor that may not write is a fault of the program."""
    path = tmp_path / "disk"
    path.touch()
    with path.open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        lock_image(file.fileno(), str(path), writes=True)
