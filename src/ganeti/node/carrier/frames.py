"""The frames of a stream: data, a count of zeros, a seal at the end, or the sender's reason to stop. Pure.

    kind  length       then
    DATA  1 to CHUNK   so many bytes
    ZEROS a number     nothing: so many zeros are meant
    END   SEAL_BYTES   the seal of all frames before: their Poly1305 by the key of the greeting
    PACKED 1 to CHUNK  so many bytes, which zlib makes at most CHUNK bytes of data of
    ABORT a number     the reason, in UTF-8

TLS below authenticates the peer. So the seal detects faults on either side of TLS, and
distinguishes a truncated stream from a whole one.
"""

import hmac
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ganeti.base.deferred import Deferred
from ganeti.base.errors import HostError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import poly1305
else:
    poly1305 = Deferred("cryptography.hazmat.primitives.poly1305")

FRAME = struct.Struct(">BI")
DATA, ZEROS, END, PACKED, ABORT = 1, 2, 3, 4, 5
KEY_BYTES, SEAL_BYTES = 32, 16
CHUNK = 256 * 1024
"""The most data in a frame. All pieces in transit in a program fit into a processor's own cache."""
PIECE = 64 * 1024
"""Size of the pieces in which zeros are detected."""
AHEAD = 4
"""Maximum number of pieces that wait for their digest."""
REASON_LIMIT = 4096

ZERO_CHUNK = bytes(CHUNK)

Piece = bytes | memoryview
Pieces = Iterator[tuple[int, Piece]]
"""`(count of zeros, b"")` or `(0, data)`, in order."""
Fill = Callable[[memoryview], None]
"""Fills the whole buffer; HostError if the data ends before."""
Write = Callable[..., None]
"""Writes all of the pieces that it is passed."""


class Writer(Protocol):
    """Sends data by one of the protocols of `wires.py`."""

    def data(self, data: Piece) -> None: ...

    def zeros(self, count: int) -> None: ...

    def end(self) -> str:
        """Send the end; return the seal, which the receiver repeats when it has everything."""
        ...

    def abort(self, reason: str) -> None:
        """Send the reason why no more data comes, if the protocol allows that."""
        ...


class Reader(Protocol):
    """Receives data by one of the protocols of `wires.py`."""

    seal: str
    """The answer to the sender, once all pieces were read."""

    def pieces(self) -> Pieces:
        """Yield all pieces; HostError unless the data is complete and undamaged."""
        ...


def buffers() -> Iterator[memoryview]:
    """Yield a buffer for each piece; a buffer is reused once its digest is computed."""
    return itertools.cycle([memoryview(bytearray(CHUNK)) for _ in range(AHEAD + 3)])


def split_zeros(data: Piece) -> Pieces:
    """Yield data as pieces; only whole PIECEs of zeros count as zeros."""
    view, begin, zeros = memoryview(data), 0, 0
    for at in range(0, len(view), PIECE):
        if _is_zeros(view, at):
            if at > begin:
                yield 0, view[begin:at]
            zeros += PIECE
            begin = at + PIECE
        elif zeros:
            yield zeros, b""
            zeros = 0
    if zeros:
        yield zeros, b""
    if begin < len(view):
        yield 0, view[begin:]


def _is_zeros(view: memoryview, at: int) -> bool:
    """Return whether a whole PIECE of zeros begins there.

    For most other data one byte is enough to decide.
    """
    last = at + PIECE - 1
    if last >= len(view) or view[at] or view[last]:
        return False
    return bytes(view[at : last + 1]) == ZERO_CHUNK[:PIECE]


def as_data(zeros: int, data: Piece) -> Iterator[Piece]:
    """Yield a piece as bytes, with its zeros."""
    while zeros > 0:
        part = min(zeros, CHUNK)
        yield memoryview(ZERO_CHUNK)[:part]
        zeros -= part
    if data:
        yield data


def inflated(payload: Piece, limit: int) -> bytes:
    """Return decompressed data; HostError if it is damaged, incomplete, or longer than `limit`."""
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(payload, limit)
    except zlib.error as err:
        raise HostError(f"a compressed frame is damaged: {err}") from err
    if not reader.eof or reader.unused_data:
        raise HostError(f"a compressed frame holds more than {limit} bytes, or is incomplete")
    return data


class _Seal:
    """Poly1305 of all frames, much cheaper than a digest. Without a key there is no seal."""

    def __init__(self, key: bytes) -> None:
        self._made = poly1305.Poly1305(key) if key else None

    def add(self, *parts: Piece) -> None:
        if self._made is not None:
            for part in parts:
                self._made.update(part)

    def finish(self) -> bytes:
        return bytes(SEAL_BYTES) if self._made is None else self._made.finalize()


class FrameWriter:
    """Sends frames and computes their seal.

    A `level` above 0 compresses a frame of data if that makes it smaller.
    """

    def __init__(self, write: Write, key: bytes, level: int = 0) -> None:
        self._write, self._level = write, level
        self._seal = _Seal(key)

    def data(self, data: Piece) -> None:
        if self._level and len(packed := zlib.compress(data, self._level)) < len(data):
            self._frame(PACKED, packed)
        else:
            self._frame(DATA, data)

    def _frame(self, kind: int, payload: Piece) -> None:
        header = FRAME.pack(kind, len(payload))
        self._seal.add(header, payload)
        self._write(header, payload)

    def zeros(self, count: int) -> None:
        while count > 0:
            part = min(count, 1 << 30)
            header = FRAME.pack(ZEROS, part)
            self._seal.add(header)
            self._write(header)
            count -= part

    def end(self) -> str:
        seal = self._seal.finish()
        self._write(FRAME.pack(END, len(seal)) + seal)
        return seal.hex()

    def abort(self, reason: str) -> None:
        text = (reason or "no reason was given").encode()[:REASON_LIMIT]
        self._write(FRAME.pack(ABORT, len(text)) + text)


class FrameReader:
    """Reads frames. The `limit` counts data and zeros."""

    def __init__(self, fill: Fill, key: bytes, limit: int) -> None:
        self._fill, self._limit, self._length = fill, limit, 0
        self._seal = _Seal(key)
        self.seal = ""

    def pieces(self) -> Pieces:
        """Yield all pieces up to the end, and compare the seal; HostError for any fault."""
        rooms, header = buffers(), memoryview(bytearray(FRAME.size))
        while True:
            self._fill(header)
            kind, length = FRAME.unpack(header)
            if kind == END and length == SEAL_BYTES:
                self._finish()
                return
            if kind == ABORT and 0 < length <= REASON_LIMIT:
                raise HostError(f"the sender stopped: {self._reason(length)}")
            if (
                not length
                or kind not in (DATA, ZEROS, PACKED)
                or (kind != ZEROS and length > CHUNK)
            ):
                raise HostError(f"the sender sent a frame of kind {kind} with {length} bytes")
            self._seal.add(header)
            if kind == ZEROS:
                self._count(length)
                yield length, b""
                continue
            if kind == DATA:
                self._count(length)  # before it waits for the frame
            room = next(rooms)[:length]
            self._fill(room)
            self._seal.add(room)
            data: Piece = room
            if kind == PACKED:
                data = inflated(room, CHUNK)
                self._count(len(data))
            yield 0, data

    def _count(self, length: int) -> None:
        self._length += length
        if self._length > self._limit:
            raise HostError(f"more than the {self._limit} bytes that the disk allows were sent")

    def _finish(self) -> None:
        claimed = memoryview(bytearray(SEAL_BYTES))
        self._fill(claimed)
        seal = self._seal.finish()
        if not hmac.compare_digest(claimed, seal):
            raise HostError("the data arrived damaged: its seal does not match")
        self.seal = seal.hex()

    def _reason(self, length: int) -> str:
        text = memoryview(bytearray(length))
        self._fill(text)
        return bytes(text).decode(errors="replace")
