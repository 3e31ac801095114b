"""The frames and the greeting of a stream: whatever is cut or changed on the way is an error, never silent loss."""

import json
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import HostError
from ganeti.node.carrier.frames import (
    ABORT,
    CHUNK,
    FRAME,
    KEY_BYTES,
    PACKED,
    PIECE,
    ZEROS,
    FrameReader,
    FrameWriter,
    Piece,
    inflated,
    split_zeros,
)
from ganeti.node.carrier.greeting import (
    Greeting,
    answer_line,
    check_form,
    check_greeting,
    greeting_line,
    read_answer,
)

KEY = bytes(range(KEY_BYTES))
LIMIT = 1 << 31
Given = bytes | int
"""Data, or a count of zeros."""
PIECES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=300),
        st.binary(min_size=1, max_size=4).map(lambda unit: unit * 100),
        st.integers(min_value=1, max_value=3 * PIECE),
    ),
    max_size=6,
)
LEVELS = st.sampled_from([0, 1, 9])


def sent(pieces: list[Given], *, key: bytes = KEY, level: int = 0, end: bool = True) -> bytearray:
    """Return a stream of data and zeros as it goes over the wire."""
    made = bytearray()

    def write(*parts: Piece) -> None:
        for part in parts:
            made.extend(part)

    frames = FrameWriter(write, key, level)
    for piece in pieces:
        if isinstance(piece, int):
            frames.zeros(piece)
        else:
            frames.data(piece)
    if end:
        frames.end()
    else:
        frames.abort("the disk is gone")
    return made


def read(
    stream: bytes | bytearray, limit: int = LIMIT, key: bytes = KEY
) -> Iterator[tuple[int, bytes]]:
    """Yield what a reader makes of a stream."""
    left = memoryview(stream)

    def take(room: memoryview) -> None:
        nonlocal left
        if len(left) < len(room):
            raise HostError("the connection ended in the middle of the data")
        room[:] = left[: len(room)]
        left = left[len(room) :]

    frames = FrameReader(take, key, limit)
    for zeros, data in frames.pieces():
        yield zeros, bytes(data)
    assert frames.seal


def received(stream: bytes | bytearray, limit: int = LIMIT, key: bytes = KEY) -> bytes:
    return b"".join(bytes(zeros) + data for zeros, data in read(stream, limit, key))


def whole(pieces: list[Given]) -> bytes:
    return b"".join(bytes(one) if isinstance(one, int) else one for one in pieces)


@given(PIECES, LEVELS, st.sampled_from([KEY, b""]))
def test_reader_returns_what_was_written(pieces: list[Given], level: int, key: bytes) -> None:
    assert received(sent(pieces, level=level, key=key), key=key) == whole(pieces)


@given(PIECES, LEVELS)
def test_zeros_stay_zeros_and_cost_nothing(pieces: list[Given], level: int) -> None:
    stream = sent(pieces, level=level)
    zeros = sum(one for one in pieces if isinstance(one, int))
    assert sum(count for count, _data in read(stream)) == zeros
    data = sum(len(one) for one in pieces if not isinstance(one, int))
    assert len(stream) <= data + FRAME.size * (len(pieces) + 1) + 16


@pytest.mark.requirement("A61", "G14", "F32")
@given(PIECES, LEVELS, st.data())
def test_cut_stream_is_an_error(pieces: list[Given], level: int, choice: st.DataObject) -> None:
    stream = sent(pieces, level=level)
    cut = choice.draw(st.integers(min_value=0, max_value=len(stream) - 1))
    with pytest.raises(HostError, match="ended in the middle"):
        received(stream[:cut])


@pytest.mark.requirement("A61", "G14")
@given(PIECES, LEVELS, st.data())
def test_changed_byte_is_an_error(pieces: list[Given], level: int, choice: st.DataObject) -> None:
    stream = sent(pieces, level=level)
    at = choice.draw(st.integers(min_value=0, max_value=len(stream) - 1))
    stream[at] ^= choice.draw(st.integers(min_value=1, max_value=255))
    with pytest.raises(HostError):
        received(stream)


@given(PIECES, st.data())
def test_missing_or_repeated_frame_is_an_error(pieces: list[Given], choice: st.DataObject) -> None:
    if not pieces:
        return
    at = choice.draw(st.integers(min_value=0, max_value=len(pieces) - 1))
    stream = sent(pieces)
    begin, end = len(sent(pieces[:at])), len(sent(pieces[: at + 1]))
    tail = len(sent([]))
    frame = stream[begin - tail : end - tail]
    without = stream[: begin - tail] + stream[end - tail :]
    twice = stream[: end - tail] + frame + stream[end - tail :]
    for changed in (without, twice):
        with pytest.raises(HostError):
            received(changed)


@given(PIECES)
def test_abort_names_the_reason(pieces: list[Given]) -> None:
    with pytest.raises(HostError, match="the sender stopped: the disk is gone"):
        received(sent(pieces, end=False))


@given(st.binary(max_size=200))
def test_any_other_bytes_are_an_error(stream: bytes) -> None:
    with pytest.raises(HostError):
        received(stream)


@pytest.mark.requirement("A61")
def test_more_than_the_limit_is_refused_before_it_is_read() -> None:
    for stream in (sent([bytes(100)]), sent([50, b"1" * 50]), sent([1 << 31])):
        with pytest.raises(HostError, match="more than the 99 bytes"):
            received(stream, limit=99)
    with pytest.raises(HostError, match="more than the 99 bytes"):
        received(sent([b"a" * 100], level=1), limit=99)
    kinds = (FRAME.pack(1, CHUNK + 1), FRAME.pack(9, 1), FRAME.pack(ZEROS, 0))
    for frame in (*kinds, FRAME.pack(PACKED, CHUNK + 1), FRAME.pack(ABORT, 5000)):
        with pytest.raises(HostError, match="a frame of kind"):
            received(frame)


@pytest.mark.requirement("A52")
def test_compressed_frame_expands_to_one_chunk_at_most() -> None:
    bomb = zlib.compress(bytes(CHUNK + 1))
    with pytest.raises(HostError, match="holds more than"):
        inflated(bomb, CHUNK)
    with pytest.raises(HostError, match="damaged"):
        inflated(b"four", CHUNK)
    with pytest.raises(HostError, match="is incomplete"):
        inflated(zlib.compress(b"data")[:-1], CHUNK)
    with pytest.raises(HostError, match="is incomplete"):
        inflated(zlib.compress(b"data") + b"x", CHUNK)


@given(st.lists(st.sampled_from([b"\0" * PIECE, b"x" * PIECE, b"\0" * 9 + b"1", bytes(10)])))
def test_split_zeros_keeps_every_byte(parts: list[bytes]) -> None:
    data = b"".join(parts)
    found = list(split_zeros(data))
    assert b"".join(bytes(zeros) + bytes(part) for zeros, part in found) == data
    assert all(zeros % PIECE == 0 and bool(zeros) != bool(part) for zeros, part in found)


def test_split_zeros_finds_whole_pieces() -> None:
    nearly = b"\0" * (PIECE - 2) + b"1\0"
    data = nearly + bytes(2 * PIECE) + b"x" * PIECE + bytes(PIECE) + bytes(10)
    found = [(zeros, bytes(part)) for zeros, part in split_zeros(data)]
    assert found == [
        (0, nearly),
        (2 * PIECE, b""),
        (0, b"x" * PIECE),
        (PIECE, b""),
        (0, bytes(10)),
    ]


# --- the greeting and the answer ---


@pytest.mark.requirement("A61", "A43")
def test_greeting_needs_the_token() -> None:
    said = Greeting("raw", "none", KEY)
    assert check_greeting(greeting_line("token", said), "token", has_digest=False) == said
    keyless = Greeting("raw", "none", b"")
    assert check_greeting(greeting_line("token", keyless), "token", has_digest=True) == keyless
    with pytest.raises(HostError, match="not name a key"):
        check_greeting(greeting_line("token", keyless), "token", has_digest=False)
    good = json.loads(greeting_line("token", said))
    for line, text in (
        (b"GET / HTTP/1.1\r\n", "cannot be read"),
        (b"[]\n", "not an object"),
        (json.dumps({**good, "magic": "ganeti-stream-0"}).encode(), "did not send a Ganeti stream"),
        (json.dumps({**good, "token": "other"}).encode(), "does not know the token"),
        (json.dumps({**good, "key": "xyz"}).encode(), "not name a key"),
        (json.dumps({**good, "key": KEY.hex()[2:]}).encode(), "not name a key"),
    ):
        with pytest.raises(HostError, match=text):
            check_greeting(line, "token", has_digest=True)


@given(st.binary(max_size=200))
def test_any_other_greeting_is_an_error(line: bytes) -> None:
    with pytest.raises(HostError):
        check_greeting(line, "token", has_digest=True)


@pytest.mark.parametrize(
    ("theirs", "here", "fits"),
    [
        (("raw", "none"), ("raw", "none"), True),
        (("raw", "gzip"), ("raw", "gzip"), True),
        (("raw", "frames"), ("raw", "gzip"), True),
        (("dump", "gzip"), ("raw", "none"), True),
        (("raw", "gzip"), ("raw", "none"), False),
        (("script", "none"), ("raw", "none"), False),
        (("script", "frames"), ("raw", "gzip"), False),
    ],
)
def test_both_ends_must_read_the_data_alike(
    theirs: tuple[str, str], here: tuple[str, str], fits: bool
) -> None:
    greeting = Greeting(*theirs, KEY)
    if fits:
        check_form(greeting, *here)
        return
    with pytest.raises(HostError, match="has a different format"):
        check_form(greeting, *here)


@given(st.integers(min_value=0, max_value=3), st.data())
def test_answer_is_the_line_after_those_that_say_wait(count: int, choice: st.DataObject) -> None:
    stream = b'{"wait": true}\n' * count + answer_line(seal="abc")
    left = memoryview(stream)

    def take(length: int) -> bytes:
        nonlocal left
        found, left = bytes(left[:length]), left[length:]
        return found

    assert read_answer(take) == {"seal": "abc"}
    left = memoryview(stream)[: choice.draw(st.integers(0, len(stream) - 1))]
    with pytest.raises(HostError, match="before the peer had sent"):
        read_answer(take)
