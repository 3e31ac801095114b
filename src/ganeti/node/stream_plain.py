"""How the data of a disk travels to and from upstream Ganeti: a magic word, the data, and the end of the connection.

Upstream's end is a `socat`, which answers nothing. So a sender here knows that all was read there, and not that it was
kept; and a receiver here tells what was cut off from what is whole only by the end of TLS, and by the size of a disk.
The master decides by the other end's certificate which of the two ways is used.
"""

import hmac
from collections.abc import Callable, Iterator
from itertools import chain

from ganeti.base.errors import HostError
from ganeti.node.stream_frames import CHUNK, Greeting, Piece, Write, buffers, split_zeros

_ZEROS = bytes(CHUNK)


def first_words(token: str) -> bytes:
    """Return what a sender says before the data."""
    return b"M=" + token.encode()


def check_first_words(said: bytes, token: str, expected: Greeting) -> Greeting:
    """Return `expected` if a sender knows the magic word of this disk; else HostError."""
    if not hmac.compare_digest(said, first_words(token)):
        raise HostError("the sender does not know the magic word of this disk")
    return expected


class PlainWriter:
    """Sends data as it is, in place of `FrameWriter`."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def data(self, data: Piece) -> None:
        self._write(data)

    def zeros(self, count: int) -> None:
        while count > 0:
            part = min(count, CHUNK)
            self._write(memoryview(_ZEROS)[:part])
            count -= part

    def end(self) -> str:
        """Return no seal: there is none."""
        return ""


class PlainReader:
    """Reads data until the connection ends, in place of `FrameReader`."""

    seal = ""

    def __init__(self, fill: Callable[[memoryview], int], limit: int) -> None:
        self._fill, self._limit = fill, limit

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Yield pieces as `split_zeros` does; HostError if there are more bytes than possible, or it was cut off."""
        return chain.from_iterable(split_zeros(room) for room in self._rooms())

    def _rooms(self) -> Iterator[memoryview]:
        length = 0
        for room in buffers():
            count = self._fill(room)
            length += count
            if length > self._limit:
                raise HostError(f"more than the {self._limit} bytes that are possible were sent")
            if not count:
                return
            yield room[:count]
