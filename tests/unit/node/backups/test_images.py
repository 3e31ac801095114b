"""Writing and reading an image: past the page cache where that is possible, and never a silent failure."""

import errno
import fcntl
import hashlib
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.node.backups import ahead
from ganeti.node.backups.ahead import SMALL, Wanted, content, read_ahead, wanted
from ganeti.node.backups.images import (
    Chain,
    ImageReader,
    ImageWriter,
    new_image,
    open_directory,
    open_image,
)
from ganeti.node.carrier.frames import AHEAD
from ganeti.node.carrier.pieces import PieceWriter
from ganeti.protocols.backup_manifest import PIECE, Image
from ganeti.protocols.qcow2 import CLUSTER

SIZE = 5 * PIECE


def written(directory: Path) -> tuple[bytes, Sequence[str], bytes]:
    """Write an image; return the file, the digests of its pieces, and the data."""
    data = os.urandom(SIZE - 3 * CLUSTER)
    place = open_directory(directory)
    descriptor = new_image(place, "image")
    writer = ImageWriter(descriptor, SIZE, "")
    try:
        writer.extent(0, len(data))
        for at in range(0, len(data), 300_000):
            writer.append(data[at : at + 300_000])
        length, digests = writer.finish()
    finally:
        writer.close()
        os.close(descriptor)
        os.close(place)
    found = (directory / "image").read_bytes()
    assert len(found) == length
    return found, digests, data


def check(directory: Path) -> None:
    found, digests, data = written(directory)
    assert found[CLUSTER : CLUSTER + len(data)] == data
    pieces = [found[at : at + PIECE] for at in range(0, len(found), PIECE)]
    assert [hashlib.sha256(piece).hexdigest() for piece in pieces] == list(digests)


def test_image_has_the_data_and_its_digests(tmp_path: Path) -> None:
    check(tmp_path)


def test_file_system_without_direct_writes_gets_the_same_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    check(tmp_path)


def test_file_system_that_refuses_the_alignment_gets_the_same_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def pwrite(descriptor: int, data: memoryview, at: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "alignment")
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    check(tmp_path)


@pytest.mark.parametrize("failing", [0, 1, 4])
def test_failed_write_of_any_piece_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    real = os.pwrite

    def pwrite(descriptor: int, data: memoryview, at: int) -> int:
        if at == failing * PIECE:
            raise OSError(errno.ENOSPC, "full")
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="full"):
        written(tmp_path)


def with_image(directory: Path) -> tuple[ImageReader, bytes]:
    """Write an image; return its reader, and the data."""
    found, digests, data = written(directory)
    image = Image(
        disk="d", size=SIZE, file="image", backing="", length=len(found), pieces=tuple(digests)
    )
    place = open_directory(directory)
    reader = ImageReader(image, open_image(place, image))
    os.close(place)
    return reader, data


def read_by(reader: ImageReader) -> bytes:
    """Return the data of an image as a restore reads it."""
    extents = Chain([reader], SIZE).extents()
    return b"".join(
        bytes(found.result())
        for _, found in read_ahead(wanted(extents), [reader], content)
        if found is not None
    )


@pytest.mark.parametrize("small", [0, SMALL], ids=["direct", "cached"])
def test_pieces_are_read_ahead_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(ahead, "SMALL", small)
    reader, data = with_image(tmp_path)
    assert read_by(reader) == data
    os.close(reader.descriptor)


def test_direct_reads_that_are_refused_go_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "SMALL", 0)
    reader, data = with_image(tmp_path)
    real = os.preadv

    def preadv(descriptor: int, rooms: Sequence[memoryview], at: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "alignment")
        return real(descriptor, rooms, at)

    monkeypatch.setattr(os, "preadv", preadv)
    assert read_by(reader) == data
    os.close(reader.descriptor)


@pytest.mark.parametrize("small", [0, SMALL], ids=["direct", "cached"])
@pytest.mark.parametrize("damaged", [1, 4])
def test_damaged_piece_is_an_error_before_any_of_its_bytes_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int, small: int
) -> None:
    monkeypatch.setattr(ahead, "SMALL", small)
    reader, data = with_image(tmp_path)
    with (tmp_path / "image").open("r+b") as file:
        file.seek(damaged * PIECE + 12_345)
        file.write(b"damage")
    found = bytearray()

    def read() -> None:
        for _, one in read_ahead(wanted(Chain([reader], SIZE).extents()), [reader], content):
            if one is not None:
                found.extend(one.result())

    with pytest.raises(HostError, match=f"from {damaged * PIECE} are not what was written"):
        read()
    assert found == data[: len(found)]
    os.close(reader.descriptor)


def test_piece_is_unchanged_until_later_digests_are_computed(tmp_path: Path) -> None:
    """Buffers are used again, but not before as many pieces as a digest may be late."""
    reader, _ = with_image(tmp_path)
    order = [number % 6 for number in range(36)]
    whole = memoryview((tmp_path / "image").read_bytes())
    seen = deque[tuple[int, memoryview]]()
    parts = (Wanted(number, reader, number) for number in order)
    for number, found in read_ahead(parts, [reader], lambda _, piece: piece):
        assert found is not None
        seen.append((number, found.result()))
        if len(seen) > AHEAD + 2:
            seen.popleft()
        assert all(bytes(data[:64]) == whole[at * PIECE :][:64] for at, data in seen)
    os.close(reader.descriptor)


@pytest.mark.parametrize("crossed", [0, 1, 4095, 4096, PIECE - 1, PIECE + 5])
def test_pieces_of_any_position_and_length_are_written(tmp_path: Path, crossed: int) -> None:
    path, data = tmp_path / "disk", os.urandom(PIECE + 9000)
    with path.open("w+b") as file:
        writer = PieceWriter(file.fileno(), PIECE)
        for at, end in ((0, crossed), (crossed, len(data))):
            for begin in range(at, end, PIECE):
                part = data[begin : min(end, begin + PIECE)]
                room = writer.room()
                room[: len(part)] = part
                writer.put(begin, room, len(part))
        writer.finish()
    assert path.read_bytes() == data
