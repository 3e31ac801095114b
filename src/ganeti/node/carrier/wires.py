"""The protocols between two ends: frames, upstream's, and that of the previous version."""

import secrets
from typing import Protocol

from ganeti.node.carrier.connection import Connection
from ganeti.node.carrier.former import FormerWire
from ganeti.node.carrier.frames import KEY_BYTES, FrameReader, FrameWriter, Reader, Writer
from ganeti.node.carrier.greeting import (
    IN_FRAMES,
    Greeting,
    check_form,
    check_greeting,
    greeting_line,
    read_answer,
)
from ganeti.node.carrier.order import StreamOrder
from ganeti.node.carrier.upstream import UpstreamWire


class Wire(Protocol):
    """A protocol. Failures raise HostError."""

    answer: str
    """The word before the seal in the receiver's answer."""

    def greet(self, there: Connection, order: StreamOrder) -> Writer:
        """Send the greeting; return the writer of the data."""
        ...

    def answered(self, there: Connection) -> dict[str, object]:
        """Return the receiver's answer once it has everything."""
        ...

    def greeting_bytes(self, order: StreamOrder) -> int:
        """Return the length of a greeting; 0: a line."""
        ...

    def greeted(self, said: bytes, order: StreamOrder) -> Greeting:
        """Return the greeting of this transfer's sender; HostError for any other caller."""
        ...

    def reader(self, there: Connection, theirs: Greeting, order: StreamOrder, limit: int) -> Reader:
        """Return the reader of the data; HostError if it has a different format."""
        ...


class FramesWire:
    """A greeting, frames, and an answer."""

    answer = "seal"

    def greet(self, there: Connection, order: StreamOrder) -> Writer:
        key = secrets.token_bytes(KEY_BYTES) if order.sealed else b""
        pack = IN_FRAMES if order.level else order.compress
        there.write(greeting_line(order.token, Greeting(order.form, pack, key)))
        return FrameWriter(there.write, key, order.level)

    def answered(self, there: Connection) -> dict[str, object]:
        return read_answer(there.read)

    def greeting_bytes(self, order: StreamOrder) -> int:
        del order
        return 0

    def greeted(self, said: bytes, order: StreamOrder) -> Greeting:
        return check_greeting(said, order.token, has_digest=bool(order.sha256))

    def reader(self, there: Connection, theirs: Greeting, order: StreamOrder, limit: int) -> Reader:
        check_form(theirs, order.form, order.compress)
        return FrameReader(there.fill, theirs.key, limit)


WIRES: dict[str, Wire] = {
    "frames": FramesWire(),
    "upstream": UpstreamWire(),
    "former": FormerWire(),
}
