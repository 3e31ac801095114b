"""The receiving end of a stream between nodes. Its listening socket is the program's standard input."""

import contextlib
import json
import time
from pathlib import Path

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import write_atomically
from ganeti.model.compression import COMPRESSIONS, NONE
from ganeti.node.carrier.callers import standard_input
from ganeti.node.carrier.connection import Connection, accept
from ganeti.node.carrier.ends import Sink, open_sink
from ganeti.node.carrier.flow import (
    Count,
    Result,
    as_bytes,
    own_environment,
    read_all,
    text_of,
)
from ganeti.node.carrier.frames import CHUNK, Pieces, split_zeros
from ganeti.node.carrier.greeting import IN_FRAMES, RAW, WAIT, Greeting, answer_line
from ganeti.node.carrier.order import StreamOrder
from ganeti.node.carrier.packing import piped
from ganeti.node.carrier.progress import ProgressFile
from ganeti.node.carrier.wires import WIRES

HOLD_LOOK_S, HOLD_SAY_S = 0.2, 20.0
"""Interval at which a held answer is checked, and the sender asked to wait."""


class Receiver:
    """Receives the data of an order."""

    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._file, self._wire = order, file, WIRES[order.wire]

    def run(self) -> Result:
        """Wait for the sender, write and sync its data, then answer it."""
        order = self._order
        there, theirs = accept(
            standard_input(),
            order.tls,
            wait_s=order.wait_s,
            greet=lambda said: self._wire.greeted(said, order),
            length=self._wire.greeting_bytes(order),
            silence_s=order.silence_s,
        )
        with contextlib.closing(there):
            try:
                result, seal = self._receive(there, theirs)
            except (GanetiError, OSError, ValueError) as err:
                assert order.sink is not None  # noqa: S101 - a receiver has one
                self._tell(there, error=text_of(order.sink.path, err))
                raise
            if order.hold:
                self._hold(there, result)
            self._tell(there, **{self._wire.answer: seal})
        return result

    def _hold(self, there: Connection, result: Result) -> None:
        """Record that all is synced, and wait until the master has stored the result."""
        received, commit = self._file.with_suffix(".received"), self._file.with_suffix(".commit")
        write_atomically(received, json.dumps(result).encode())
        said = time.monotonic()
        while not commit.exists():
            if time.monotonic() - said > HOLD_SAY_S:
                said = time.monotonic()
                there.tell(WAIT)
            time.sleep(HOLD_LOOK_S)

    @staticmethod
    def _tell(there: Connection, **answer: str) -> None:
        """Answer the sender; upstream's sender has disconnected by then, or does not listen."""
        with contextlib.suppress(HostError):
            there.tell(answer_line(**answer))

    def _receive(self, there: Connection, theirs: Greeting) -> tuple[Result, str]:
        """Return the received data's count and seal."""
        order = self._order
        name = NONE if theirs.pack == IN_FRAMES else order.compress
        unpacker = COMPRESSIONS[name]
        limit = order.limit if unpacker is None else 2 * order.limit + CHUNK
        reader = self._wire.reader(there, theirs, order, limit)
        count = Count(ProgressFile(self._file, order.total), counts_digest=bool(order.sha256))
        assert order.sink is not None  # noqa: S101 - a receiver has one
        with open_sink(order.sink, own_environment()) as sink:
            if unpacker is None:
                self._write(reader.pieces(), sink, count)
            else:
                with piped(unpacker.unpack, as_bytes(reader.pieces())) as unpacked:
                    parts = (piece for room in read_all(unpacked) for piece in split_zeros(room))
                    self._write(parts, sink, count)
            self._check_whole(theirs, count)
            sink.finish()
        return count.result(), reader.seal

    def _write(self, pieces: Pieces, sink: Sink, count: Count) -> None:
        limit = self._order.limit
        for zeros, data in pieces:
            # A single compressed stream may be a decompression bomb: the limit counts its output
            # (A52).
            if count.length + zeros + len(data) > limit:
                raise HostError(f"more than the {limit} bytes that the disk allows were sent")
            sink.take(zeros, data)
            count.add(zeros, data)

    def _check_whole(self, theirs: Greeting, count: Count) -> None:
        """Raise HostError unless the length of a disk and the digest are right."""
        order = self._order
        assert order.sink is not None  # noqa: S101 - a receiver has one
        is_raw = theirs.form == order.form == RAW or order.wire != "frames"
        if is_raw and not order.sink.argv and count.length != order.size:
            raise HostError(
                f"{count.length} bytes were sent for a disk of {order.size}: the data is "
                "truncated, or a script of another OS made it"
            )
        if count.digest() != order.sha256:
            raise HostError(
                "the data does not match the export: its digest differs from the description; "
                "the dump is damaged, use another export"
            )
