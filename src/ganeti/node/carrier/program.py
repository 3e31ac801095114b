"""The program that moves one disk's data: `python -m ganeti.node.carrier.program ORDER`.

It runs as a task of the node (`tasks.py`), so it outlives the node daemon. The standard input of a
receiver is its listening socket. If a script runs, its environment is the program's, without the
variables of Python. Every started program keeps the task's lock open, so leftover processes are
found.
"""

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import is_full, write_atomically
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.model.compression import COMPRESSIONS, NONE
from ganeti.node.backups.throttle import step_back
from ganeti.node.carrier.buffers import Digest, fill
from ganeti.node.carrier.callers import standard_input
from ganeti.node.carrier.connection import (
    LAST_WORDS_S,
    SILENCE_S,
    BrokenOff,
    Connection,
    accept,
    connect,
)
from ganeti.node.carrier.ends import (
    ProgramFailed,
    Sink,
    Source,
    open_sink,
    open_source,
    share_blocks,
)
from ganeti.node.carrier.frames import CHUNK, Piece, Pieces, Writer, as_data, buffers, split_zeros
from ganeti.node.carrier.greeting import IN_FRAMES, RAW, WAIT, Greeting, answer_line, read_answer
from ganeti.node.carrier.order import EndOrder, StreamOrder
from ganeti.node.carrier.packing import piped
from ganeti.node.carrier.progress import ProgressFile
from ganeti.node.carrier.wires import WIRES

HOLD_LOOK_S, HOLD_SAY_S = 0.2, 20.0
"""Interval at which a held answer is checked, and the sender asked to wait."""
BURST_S = 1.0
"""Data that a limit of the rate allowed so long ago, but that was not sent then, may follow at once."""
Result = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Carry one order out; return the exit status.

    A file beside the order has the reason of a failure.
    """
    file, path = Path(argv[0]), ""
    try:
        order = wire.decode(file.read_bytes(), StreamOrder, what=str(file))
        path = (order.sink or order.source or EndOrder()).path
        result = _carry_out(order, file)
    except (GanetiError, OSError, ValueError) as err:
        text = _text(path, err)
        say(text, file=sys.stderr)
        write_atomically(file.with_suffix(".error"), text.encode())
        return 1
    write_atomically(file.with_suffix(".result"), json.dumps(result).encode())
    return 0


def _carry_out(order: StreamOrder, file: Path) -> Result:
    if _makes_backup(order):
        step_back()
    if order.source is None:
        return _Receiver(order, file).run()
    if order.sink is None:
        return _Sender(order, file).run()
    return _copy(order, file, order.source, order.sink)


def _makes_backup(order: StreamOrder) -> bool:
    """Return whether the disk of a running guest is read, or the image of a backup is written."""
    changes = order.source.changes if order.source else None
    return bool((changes and changes.export) or (order.sink and order.sink.image))


def _text(path: str, err: Exception) -> str:
    """Return the text of an error, with the path that has no space."""
    if is_full(err):
        return f"{os.strerror(errno.ENOSPC)} for {path}; free some space, or choose another node"
    return err.message if isinstance(err, GanetiError) else str(err)


def own_environment() -> dict[str, str]:
    """Return the environment of the script."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class Count:
    """Counts data, computes the digest if requested, and records the position."""

    def __init__(self, progress: ProgressFile, *, counts_digest: bool = False) -> None:
        self._progress = progress
        self.position: Callable[[int], int] = int
        """Turns the length of the data into the progress."""
        self._digest = Digest() if counts_digest else None
        self._begun = time.monotonic()
        self.length = 0

    def add(self, zeros: int, data: Piece) -> None:
        """Count a piece; see `Digest.add`."""
        self.length += zeros + len(data)
        if self._digest is not None:
            self._digest.add(zeros, data)
        self._progress.at(self.position(self.length))

    def counted(self, pieces: Pieces) -> Pieces:
        """Yield pieces unchanged; each counts once the next one is requested."""
        for zeros, data in pieces:
            yield zeros, data
            self.add(zeros, data)

    def digest(self) -> str:
        """Return the SHA-256, or '' if it was not requested; nothing can be added afterwards."""
        return "" if self._digest is None else self._digest.finish()

    def result(self) -> Result:
        """Return the result once all data is at its destination."""
        seconds = time.monotonic() - self._begun
        return {"data_bytes": self.length, "sha256": self.digest(), "seconds": seconds}


def paced(
    pieces: Pieces,
    rate: int,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Pieces:
    """Yield pieces unchanged, no more than `rate` bytes of data a second (0: any); zeros cost nothing."""
    due = now()
    for zeros, data in pieces:
        length = len(data)
        yield zeros, data
        if rate:
            due = max(due, now() - BURST_S) + length / rate
            if (early_s := due - now()) > 0:
                sleep(early_s)


def _copy(order: StreamOrder, file: Path, source: EndOrder, sink: EndOrder) -> Result:
    """Copy the data within this node; return when it is synced.

    No seal and no encryption: it does not leave this program.
    """
    count = Count(ProgressFile(file, order.total), counts_digest=order.digests)
    if not order.digests and share_blocks(source, sink, order.size):
        count.add(order.size, b"")
        return count.result()
    environment = own_environment()
    with (
        open_source(source, order.size, environment) as data,
        open_sink(sink, environment) as target,
    ):
        count.position = data.position
        for zeros, piece in count.counted(paced(data.pieces(), order.rate)):
            if order.limit and count.length + zeros + len(piece) > order.limit:
                raise HostError(f"more than the {order.limit} bytes that the disk allows were read")
            target.take(zeros, piece)
        data.finish()
        if order.form == RAW and count.length != order.size:
            raise HostError(f"{count.length} bytes were read for a disk of {order.size}")
        target.finish()
    return count.result()


class _Sender:
    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._wire = order, WIRES[order.wire]
        progress = ProgressFile(file, order.total)
        self._count = Count(progress, counts_digest=order.digests)

    def run(self) -> Result:
        """Send everything; return once the receiver has synced it."""
        order, answer_name = self._order, self._wire.answer
        there = connect(order.address, order.port, order.tls, silence_s=order.silence_s)
        with contextlib.closing(there):
            try:
                seal = self._send(there)
                answer = self._answered(there)
            except BrokenOff as err:
                raise HostError(
                    f"the data was not sent to {order.address}: {_why(there, err)}"
                ) from err
        if answer.get(answer_name) != seal:
            why = str(answer.get("error", f"another {answer_name}"))[:2000]
            raise HostError(f"the receiver at {order.address} refused the data: {why}")
        return self._count.result()

    def _answered(self, there: Connection) -> dict[str, object]:
        there.limit(SILENCE_S)  # it may have much to sync
        try:
            return self._wire.answered(there)
        except HostError as err:
            raise BrokenOff(err.message) from err

    def _send(self, there: Connection) -> str:
        """Send everything; return the seal of what was sent."""
        order = self._order
        assert order.source is not None  # noqa: S101 - a sender has one
        with open_source(order.source, order.size, own_environment()) as source:
            frames = self._wire.greet(there, order)
            try:
                self._send_pieces(source, frames)
                source.finish()
            except BrokenOff:
                raise
            except (GanetiError, OSError) as err:
                with contextlib.suppress(HostError):
                    frames.abort(_text(order.source.path, err))
                if isinstance(err, ProgramFailed):
                    raise
                raise HostError(f"the data was not sent to {order.address}: {err}") from err
            return frames.end()

    def _send_pieces(self, source: Source, frames: Writer) -> None:
        self._count.position = source.position
        pieces = self._count.counted(paced(source.pieces(), self._order.rate))
        packer = COMPRESSIONS[self._order.compress]
        if packer is None:
            for zeros, data in pieces:
                if zeros:
                    frames.zeros(zeros)
                else:
                    frames.data(data)
            return
        with piped(packer.pack, _data(pieces)) as packed:
            for room in _read(packed):
                frames.data(room)


def _data(pieces: Pieces) -> Iterator[Piece]:
    for zeros, data in pieces:
        yield from as_data(zeros, data)


def _read(descriptor: int) -> Iterator[memoryview]:
    """Yield what a program writes, until its end."""
    for room in buffers():
        # Full buffers, otherwise zeros would not be detected in their pieces.
        if not (count := fill(descriptor, room, lambda: True)):
            return
        yield room[:count]


def _why(there: Connection, err: HostError) -> str:
    """Return why a connection ended: the receiver's reason, or the local error."""
    with contextlib.suppress(HostError):
        there.limit(LAST_WORDS_S)
        told = read_answer(there.read).get("error")
        if told:
            return f"the receiver: {str(told)[:2000]}"
    return err.message


class _Receiver:
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
                self._tell(there, error=_text(order.sink.path, err))
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
                with piped(unpacker.unpack, _data(reader.pieces())) as unpacked:
                    parts = (piece for room in _read(unpacked) for piece in split_zeros(room))
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
