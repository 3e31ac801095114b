"""Writing an image: past the page cache where that is possible, and never a silent failure."""

import errno
import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.node.backups.images import ImageWriter, new_image, open_directory
from ganeti.protocols.backup_manifest import PIECE
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
    real = fcntl.fcntl

    def refuse(descriptor: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes")
        return int(real(descriptor, command, value))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
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
