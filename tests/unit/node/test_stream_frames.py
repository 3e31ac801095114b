"""The frames of a stream: whatever is cut or changed on the way is found, at every byte."""

import json
import os

import pytest

from ganeti.base.errors import HostError
from ganeti.node.stream_frames import (
    CHUNK,
    FRAME,
    KEY_BYTES,
    PIECE,
    ZEROS,
    Digest,
    FrameReader,
    FrameWriter,
    Greeting,
    Piece,
    check_greeting,
    fill,
    greeting,
    split_zeros,
)

KEY = bytes(range(KEY_BYTES))
LIMIT = 4 * CHUNK


def sent(*pieces: bytes | int, key: bytes = KEY) -> bytearray:
    """A stream of data and zeros, as it goes over the wire."""
    made = bytearray()

    def write(*parts: Piece) -> None:
        for part in parts:
            made.extend(part)

    frames = FrameWriter(write, key)
    for piece in pieces:
        if isinstance(piece, int):
            frames.zeros(piece)
        else:
            frames.data(piece)
    assert frames.length == sum(one if isinstance(one, int) else len(one) for one in pieces)
    frames.end()
    return made


def received(stream: bytes | bytearray, limit: int = LIMIT, key: bytes = KEY) -> bytes:
    """What a reader makes of it."""
    left = memoryview(stream)

    def take(room: memoryview) -> None:
        nonlocal left
        if len(left) < len(room):
            raise HostError("the connection ended in the middle of the data")
        room[:] = left[: len(room)]
        left = left[len(room) :]

    frames = FrameReader(take, key, limit)
    found = b"".join(bytes(zeros) + bytes(data) for zeros, data in frames.pieces())
    assert frames.length == len(found)
    assert frames.seal
    return found


def test_what_is_sent_is_received() -> None:
    data = os.urandom(CHUNK)
    assert received(sent(data, 3 * PIECE, b"end")) == data + bytes(3 * PIECE) + b"end"
    assert received(sent()) == b""
    assert received(sent(data, 100, key=b""), key=b"") == data + bytes(100)


@pytest.mark.requirement("A61", "G14")
def test_a_bit_that_flips_anywhere_is_found() -> None:
    whole = sent(b"some data", 100, b"and more")
    for at in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(HostError):
            received(changed)


@pytest.mark.requirement("A61", "G14", "F32")
def test_a_stream_that_ends_before_its_end_is_not_whole() -> None:
    whole = sent(b"some data", 100, b"and more")
    for end in range(len(whole)):
        with pytest.raises(HostError, match="ended in the middle"):
            received(whole[:end])


@pytest.mark.requirement("A61")
def test_more_than_is_possible_is_refused_before_it_is_taken() -> None:
    for stream in (sent(bytes(100)), sent(50, b"1" * 50), sent(1 << 31)):
        with pytest.raises(HostError, match="more than the 99 bytes"):
            received(stream, limit=99)
    for frame in (FRAME.pack(1, CHUNK + 1), FRAME.pack(9, 1), FRAME.pack(ZEROS, 0)):
        with pytest.raises(HostError, match="a frame of kind"):
            received(frame)


@pytest.mark.requirement("A61", "A43")
def test_only_who_knows_the_token_is_heard() -> None:
    said = Greeting("raw", "none", KEY)
    assert check_greeting(greeting("token", said), "token", has_digest=False) == said
    keyless = Greeting("raw", "none", b"")
    assert check_greeting(greeting("token", keyless), "token", has_digest=True) == keyless
    with pytest.raises(HostError, match="no key"):
        check_greeting(greeting("token", keyless), "token", has_digest=False)
    good = json.loads(greeting("token", said))
    for line, text in (
        (b"GET / HTTP/1.1\r\n", "something else"),
        (b"[]\n", "something else"),
        (json.dumps({**good, "magic": "ganeti-stream-0"}).encode(), "something else"),
        (json.dumps({**good, "token": "other"}).encode(), "does not know the token"),
        (json.dumps({**good, "key": "xyz"}).encode(), "no key"),
        (json.dumps({**good, "key": KEY.hex()[2:]}).encode(), "no key"),
    ):
        with pytest.raises(HostError, match=text):
            check_greeting(line, "token", has_digest=True)


def test_whole_pieces_of_zeros_are_told_from_data() -> None:
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


def test_a_digest_is_that_of_the_data_and_its_zeros() -> None:
    parts, whole = Digest(), Digest()
    parts.add(b"a")
    parts.add_zeros(CHUNK + 5)
    whole.add(b"a" + bytes(CHUNK + 5))
    assert parts.finish() == whole.finish()


def test_what_comes_in_small_parts_fills_a_piece() -> None:
    source, target = os.pipe()
    try:
        room = memoryview(bytearray(10))
        looked = []

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
