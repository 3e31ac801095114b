"""Sources, sinks and connections: any split of the bytes arrives whole, sparse stays sparse, sizes are checked."""

import errno
import hashlib
import os
import shutil
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import HostError
from ganeti.node.carrier import ends
from ganeti.node.carrier.buffers import Digest, fill
from ganeti.node.carrier.connection import BrokenOff, Connection
from ganeti.node.carrier.ends import open_sink, open_source
from ganeti.node.carrier.frames import CHUNK, PIECE
from ganeti.node.carrier.order import EndOrder

MIB = 1024 * 1024


def copied(source: Path, sink: EndOrder, size: int) -> int:
    """Move the data from a file to a sink; return how much of it was zeros."""
    left_out = 0
    with (
        open_source(EndOrder(path=str(source)), size, {}) as data,
        open_sink(sink, dict(os.environ)) as target,
    ):
        for zeros, piece in data.pieces():
            left_out += zeros
            target.take(zeros, piece)
        data.finish()
        target.finish()
    return left_out


@pytest.mark.requirement("G12")
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([b"x", b"\0", b"end"])), max_size=5),
    st.integers(min_value=1, max_value=40 * PIECE),
)
def test_copy_has_the_bytes_and_the_holes_of_its_source(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, bytes]], size: int
) -> None:
    directory = tmp_path_factory.mktemp("copy")
    source, target = directory / "source", directory / "target"
    with source.open("wb") as file:
        for piece, data in parts:
            file.seek(piece * PIECE)
            file.write(data * 3)
        file.truncate(size)
    left_out = copied(source, EndOrder(path=str(target), makes_file=True), size)
    assert target.read_bytes() == source.read_bytes()
    # Each part lies in one piece, and what is less than a piece at the end counts as data.
    most = (len(parts) + 1) * PIECE
    assert size - left_out <= most
    assert target.stat().st_blocks * 512 <= most
    shutil.rmtree(directory)


@pytest.mark.parametrize("reads_as_zeros", [True, False])
def test_zeros_are_written_only_where_something_else_may_be(
    tmp_path: Path, *, reads_as_zeros: bool
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(4 * MIB))
    target.write_bytes(b"old" * 4 * MIB)
    before = target.read_bytes()
    copied(source, EndOrder(path=str(target), has_zeros=reads_as_zeros), 4 * MIB)
    rest = before[4 * MIB :]
    assert target.read_bytes() == (before if reads_as_zeros else bytes(4 * MIB) + rest)


@pytest.mark.requirement("G12")
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 24)), max_size=4),
    st.integers(min_value=0, max_value=2 * PIECE),
    st.booleans(),
)
def test_old_data_is_replaced_by_any_mixture_of_data_and_zeros(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[bool, int]],
    rest: int,
    can_zero: bool,
) -> None:
    directory = tmp_path_factory.mktemp("copy")
    source, target = directory / "source", directory / "target"
    data = b"".join((b"n" if filled else b"\0") * (count * PIECE) for filled, count in parts)
    data += b"r" * rest
    source.write_bytes(data)
    target.write_bytes(b"o" * (len(data) + 9))
    with pytest.MonkeyPatch.context() as patch:
        if not can_zero:
            patch.setattr(ends, "zero", lambda *_: False)
        copied(source, EndOrder(path=str(target)), len(data))
    assert target.read_bytes() == data + b"o" * 9
    shutil.rmtree(directory)


def test_long_runs_of_zeros_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore of a large, mostly empty disk writes only what is in it."""
    source, target = tmp_path / "source", tmp_path / "target"
    data = b"x" * PIECE + bytes(16 * MIB) + b"y" * PIECE
    source.write_bytes(data)
    target.write_bytes(b"o" * len(data))
    written, zeroed, real = list[int](), list[tuple[int, int]](), os.pwrite

    def pwrite(descriptor: int, part: memoryview, at: int) -> int:
        written.append(len(part))
        return real(descriptor, part, at)

    def zero(descriptor: int, at: int, length: int) -> bool:
        zeroed.append((at, length))
        return real(descriptor, bytes(length), at) == length

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(ends, "zero", zero)
    copied(source, EndOrder(path=str(target)), len(data))
    assert target.read_bytes() == data
    assert sum(written) == 2 * PIECE
    assert zeroed == [(PIECE, 16 * MIB)]


def test_failure_to_zero_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(4 * MIB))
    target.write_bytes(b"old" * 4 * MIB)

    def fail(*_: int) -> bool:
        raise OSError(errno.EIO, "the disk failed")

    monkeypatch.setattr(ends, "zero", fail)
    with pytest.raises(OSError, match="the disk failed"):
        copied(source, EndOrder(path=str(target)), 4 * MIB)


@pytest.mark.parametrize("sparse", [True, False])
def test_source_that_is_too_small_is_an_error(tmp_path: Path, *, sparse: bool) -> None:
    path = tmp_path / "disk"
    path.write_bytes(b"short")
    if sparse:
        os.truncate(path, MIB)
    with (
        open_source(EndOrder(path=str(path)), 2 * MIB, {}) as source,
        pytest.raises(HostError, match="the data ends at byte"),
    ):
        list(source.pieces())


class Split:
    """A TLS connection that hands data out in parts of given sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._left, self._sizes = memoryview(data), sizes

    def settimeout(self, timeout: float) -> None:
        """Ignore the limit: nothing waits here."""

    def recv_into(self, view: memoryview) -> int:
        size = min(len(view), self._sizes.pop(0) if self._sizes else 1, len(self._left))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


@given(st.binary(min_size=1, max_size=500), st.lists(st.integers(1, 100), max_size=20), st.data())
def test_any_split_of_the_bytes_arrives_whole(
    data: bytes, sizes: list[int], choice: st.DataObject
) -> None:
    length = choice.draw(st.integers(1, len(data)))
    for stop in (False, True):
        there = Connection(cast("ssl.SSLSocket", Split(data, list(sizes))), 1.0)
        room = memoryview(bytearray(length))
        there.fill(room)
        assert room == data[:length]
        rest = memoryview(bytearray(len(data) - length + 1))
        if stop:
            assert there.fill_to_end(rest) == len(data) - length
        else:
            with pytest.raises(BrokenOff, match="ended in the middle"):
                there.fill(rest)


def test_digest_counts_data_and_zeros() -> None:
    digest = Digest()
    digest.add(0, b"a")
    digest.add(CHUNK + 5, b"")
    assert digest.finish() == hashlib.sha256(b"a" + bytes(CHUNK + 5)).hexdigest()


def test_small_parts_fill_a_piece() -> None:
    source, target = os.pipe()
    try:
        room = memoryview(bytearray(10))
        looked: list[Any] = []

        def wait() -> bool:
            looked.append(True)
            if len(looked) < 4:
                os.write(target, b"abc")
            return len(looked) < 4

        assert fill(source, room, wait) == 9
        assert bytes(room) == b"abcabcabc\0"
    finally:
        os.close(source)
        os.close(target)
