"""The protocol of disk data with upstream Ganeti: a magic word, the data, and the end of the connection.

Upstream's end is a `socat`, which answers nothing. So a sender here knows that the peer has read
all data, but not that it stored the data. A receiver here detects truncated data only by the end of
TLS and the size of a disk. The master chooses the protocol by the peer's certificate.
"""

import hmac
from collections.abc import Callable

from ganeti.base.errors import HostError
from ganeti.node.carrier.connection import Connection
from ganeti.node.carrier.frames import (
    Piece,
    Pieces,
    Reader,
    Write,
    Writer,
    as_data,
    buffers,
    split_zeros,
)
from ganeti.node.carrier.greeting import Greeting
from ganeti.node.carrier.order import StreamOrder


def magic_word(token: str) -> bytes:
    """Return the sender's first bytes."""
    return b"M=" + token.encode()


class UpstreamWire:
    """A magic word and the data."""

    answer = "seal"

    def greet(self, there: Connection, order: StreamOrder) -> Writer:
        # Upstream's end of TLS sends a message that is not an answer, so nothing is read meanwhile.
        there.tell(magic_word(order.token))
        return PlainWriter(there.tell)

    def answered(self, there: Connection) -> dict[str, object]:
        """Return an empty seal once the receiver has read everything."""
        there.finish()
        return {self.answer: ""}

    def greeting_bytes(self, order: StreamOrder) -> int:
        return len(magic_word(order.token))

    def greeted(self, said: bytes, order: StreamOrder) -> Greeting:
        if not hmac.compare_digest(said, magic_word(order.token)):
            raise HostError("the sender does not know this disk's magic word")
        return Greeting(order.form, order.compress, b"")

    def reader(self, there: Connection, theirs: Greeting, order: StreamOrder, limit: int) -> Reader:
        del theirs, order
        return PlainReader(there.fill_to_end, limit)


class PlainWriter:
    """Sends data unchanged."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def data(self, data: Piece) -> None:
        self._write(data)

    def zeros(self, count: int) -> None:
        for part in as_data(count, b""):
            self._write(part)

    def end(self) -> str:
        """Return '': this protocol has no seal."""
        return ""

    def abort(self, reason: str) -> None:
        """Send nothing: the receiver detects the truncation."""


class PlainReader:
    """Reads data until the connection ends."""

    seal = ""

    def __init__(self, fill: Callable[[memoryview], int], limit: int) -> None:
        self._fill, self._limit = fill, limit

    def pieces(self) -> Pieces:
        """Yield pieces like `split_zeros`; HostError for too many bytes or a truncated stream."""
        length = 0
        for room in buffers():
            count = self._fill(room)
            length += count
            if length > self._limit:
                raise HostError(f"more than the {self._limit} bytes that the disk allows were sent")
            if not count:
                return
            yield from split_zeros(room[:count])
