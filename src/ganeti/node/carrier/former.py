"""The protocol by which the previous version copies disks between nodes.

This module and `node/former_copies.py` are removed in the next release.

sender -> receiver   token and size, one line of JSON
sender -> receiver   frames: offset, length, kind; raw or compressed data; zeros may be left out
sender -> receiver   a last frame with the SHA-256 of all data and where it belongs
receiver -> sender   one line of JSON: that digest, once everything is synced; or an error
"""

import hashlib
import hmac
import struct

from ganeti.base.errors import HostError
from ganeti.model import wire
from ganeti.node.carrier.connection import Connection
from ganeti.node.carrier.frames import Fill, Piece, Pieces, Reader, Write, Writer, as_data, inflated
from ganeti.node.carrier.greeting import RAW, Greeting, check_token, object_of, read_answer
from ganeti.node.carrier.order import StreamOrder

LIMIT = 1024 * 1024
FRAME = struct.Struct(">QIB")
POSITION = struct.Struct(">QI")
END, PLAIN, DEFLATED = 0, 1, 2
DIGEST_LENGTH = 64


class FormerWire:
    """A token, positioned frames, and an answer."""

    answer = "sha256"

    def greet(self, there: Connection, order: StreamOrder) -> Writer:
        there.write(wire.encode({"token": order.token, "size": order.size}) + b"\n")
        has_zeros = order.source is not None and order.source.has_zeros
        return PositionedWriter(there.write, leaves_out_zeros=has_zeros)

    def answered(self, there: Connection) -> dict[str, object]:
        return read_answer(there.read)

    def greeting_bytes(self, order: StreamOrder) -> int:
        del order
        return 0

    def greeted(self, said: bytes, order: StreamOrder) -> Greeting:
        found = object_of(said)
        check_token(found, order.token)
        if found.get("size") != order.size:
            size = found.get("size")
            raise HostError(
                f"the sender's disk has {size!r:.40} bytes, but this disk has {order.size}"
            )
        return Greeting(RAW, "none", b"")

    def reader(self, there: Connection, theirs: Greeting, order: StreamOrder, limit: int) -> Reader:
        del theirs, limit
        return PositionedReader(there.fill, order.size)


class _Positioned:
    def __init__(self) -> None:
        self._digest, self._offset = hashlib.sha256(), 0

    def _add(self, data: Piece) -> None:
        self._digest.update(POSITION.pack(self._offset, len(data)))
        self._digest.update(data)
        self._offset += len(data)


class PositionedWriter(_Positioned):
    """Sends data with its position."""

    def __init__(self, write: Write, *, leaves_out_zeros: bool) -> None:
        super().__init__()
        self._write, self._leaves_out_zeros = write, leaves_out_zeros

    def data(self, data: Piece) -> None:
        self._write(FRAME.pack(self._offset, len(data), PLAIN), data)
        self._add(data)

    def zeros(self, count: int) -> None:
        if self._leaves_out_zeros:
            self._offset += count
            return
        for part in as_data(count, b""):
            self.data(part)

    def end(self) -> str:
        digest = self._digest.hexdigest()
        self._write(FRAME.pack(0, len(digest), END) + digest.encode())
        return digest

    def abort(self, reason: str) -> None:
        """Send nothing: the receiver detects the truncation."""


class PositionedReader(_Positioned):
    """Reads data with its position; omitted ranges count as zeros."""

    def __init__(self, fill: Fill, size: int) -> None:
        super().__init__()
        self._fill, self._size = fill, size
        self.seal = ""

    def pieces(self) -> Pieces:
        """Yield all pieces up to the end, and compare the digest; HostError for any fault."""
        while True:
            offset, length, kind = FRAME.unpack(self._read(FRAME.size))
            if kind == END:
                self._finish(self._read(min(length, DIGEST_LENGTH)))
                yield self._size - self._offset, b""
                return
            if kind not in (PLAIN, DEFLATED) or not 0 < length <= LIMIT:
                raise HostError(f"the sender sent a frame of kind {kind} with {length} bytes")
            data = self._read(length)
            if kind == DEFLATED:
                data = inflated(data, LIMIT)
            if not self._offset <= offset <= self._size - len(data):
                raise HostError("the sender sent data out of order, or beyond the end of the disk")
            yield offset - self._offset, b""
            self._offset = offset
            self._add(data)
            yield 0, data

    def _read(self, length: int) -> bytes:
        room = memoryview(bytearray(length))
        self._fill(room)
        return bytes(room)

    def _finish(self, claimed: bytes) -> None:
        self.seal = self._digest.hexdigest()
        if not hmac.compare_digest(claimed, self.seal.encode()):
            raise HostError("the data arrived damaged: its digest does not match")
