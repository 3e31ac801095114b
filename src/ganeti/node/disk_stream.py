"""The program that carries one disk's data to or from another node: `python -m ganeti.node.disk_stream ORDER`.

It runs as a task of the node (`tasks.py`), so it outlives the node daemon. The receiver's standard input is the
port where it is called. Its environment is that of
the script, if one is run; what belongs to Python only is not handed on. Every program that it starts
keeps the task's lock open, so whatever one leaves behind is found.
"""

import contextlib
import errno
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import is_full, write_atomically
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.model.compression import COMPRESSIONS
from ganeti.node.first_words import read_line, standard_input
from ganeti.node.progress_file import ProgressFile
from ganeti.node.stream_ends import ProgramFailed, Sink, Source, open_sink, open_source
from ganeti.node.stream_frames import (
    CHUNK,
    DUMP,
    KEY_BYTES,
    Digest,
    FrameReader,
    FrameWriter,
    Greeting,
    Piece,
    answer_of,
    buffers,
    check_form,
    check_greeting,
    greeting,
    split_zeros,
    writer,
)
from ganeti.node.stream_plain import PlainReader, PlainWriter, check_first_words, first_words
from ganeti.node.stream_tls import LAST_WORDS_S, Connection, TlsFiles, accept, connect

HOLD_LOOK_S, HOLD_SAY_S = 0.2, 20.0
"""How often a held answer is looked for, and the sender told to wait."""


class StreamOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What one end has to do; the result is written beside the order."""

    receives: bool
    path: str = ""
    """The disk or the dump."""
    argv: tuple[str, ...] = ()
    """The script, instead of a path."""
    makes_file: bool = False
    """The path is a new file."""
    has_zeros: bool = False
    """Where nothing is written, the path reads as zeros."""
    size: int
    limit: int = 0
    compress: str = "none"
    sha256: str = ""
    """What the receiver's data must have; '': any."""
    digests: bool = False
    """The sender says what its data has."""
    sealed: bool = True
    """The sender seals its frames; not if the receiver knows the digest of the data."""
    form: str = DUMP
    """`raw`, `script` or `dump`."""
    hold: bool = False
    """Tell the sender only once we are told to (`.commit`): its data may be removed then."""
    wait_s: float = 60.0
    """How long the receiver waits for its sender."""
    plain: bool = False
    """The other end is upstream's."""
    token: str
    address: str
    port: int = 0
    certificate: str
    key: str
    peer: str

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(Path(self.certificate), Path(self.key), Path(self.peer))


def main(argv: Sequence[str]) -> int:
    """Carry one order out; the exit status says whether it succeeded, the result why not."""
    file, path = Path(argv[0]), ""
    try:
        order = wire.decode(file.read_bytes(), StreamOrder, what=str(file))
        path = order.path
        result = _Receiver(order, file).run() if order.receives else _Sender(order, file).run()
    except (GanetiError, OSError, ValueError) as err:
        text = _text(path, err)
        say(text, file=sys.stderr)
        write_atomically(file.with_suffix(".error"), text.encode())
        return 1
    write_atomically(file.with_suffix(".result"), json.dumps(result).encode())
    return 0


def _text(path: str, err: Exception) -> str:
    """What is wrong, and where there is no room."""
    if is_full(err):
        return f"{os.strerror(errno.ENOSPC)} for {path}; free some space, or choose another node"
    return err.message if isinstance(err, GanetiError) else str(err)


def own_environment() -> dict[str, str]:
    """The environment of the script."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _progress(order: StreamOrder, file: Path) -> ProgressFile:
    """Positions in the disk; how much a script writes or reads is not known."""
    return ProgressFile(file, 0 if order.argv else order.size)


class _Count:
    """Counts data, by its digest too if that is wanted, and tells how far it has come."""

    def __init__(self, progress: ProgressFile, *, counts_digest: bool) -> None:
        self._progress = progress
        self._digest = Digest() if counts_digest else None
        self.length = 0

    def add(self, zeros: int, data: Piece) -> None:
        """Data as `Digest.add` has it."""
        self.length += zeros + len(data)
        if self._digest is not None:
            self._digest.add_zeros(zeros)
            self._digest.add(data)
        self._progress.at(self.length)

    def digest(self) -> str:
        """SHA-256, or '' if nobody wants it; nothing can be added any more."""
        return "" if self._digest is None else self._digest.finish()


class _Sender:
    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._progress = order, _progress(order, file)

    def run(self) -> dict[str, Any]:
        """Send all; returns once the receiver has it synced."""
        order, begun = self._order, time.monotonic()
        there = connect(order.address, order.port, order.tls)
        try:
            try:
                with open_source(order.path, order.argv, order.size, own_environment()) as source:
                    key = secrets.token_bytes(KEY_BYTES) if order.sealed else b""
                    said = Greeting(order.form, order.compress, key)
                    frames: FrameWriter | PlainWriter
                    if order.plain:  # its end of TLS says something that is no word of ours
                        there.tell(first_words(order.token))
                        frames = PlainWriter(there.tell)
                    else:
                        there.write(greeting(order.token, said))
                        frames = FrameWriter(there.write, said.key)
                    length, digest, seal = self._send(source, frames)
                answer = self._answered(there)
            except (OSError, HostError) as err:
                if isinstance(err, ProgramFailed):
                    raise
                raise HostError(
                    f"the data was not sent to {order.address}: {_why(there, err)}"
                ) from err
        finally:
            there.close()
        if answer.get("seal") != seal:
            why = str(answer.get("error", "another seal"))[:2000]
            raise HostError(f"the receiver at {order.address} refused the data: {why}")
        return {"data_bytes": length, "sha256": digest, "seconds": time.monotonic() - begun}

    def _answered(self, there: Connection) -> dict[str, Any]:
        """What the receiver says once it has all; nothing is said by upstream's, which only ends."""
        if self._order.plain:
            there.finish()
            return {"seal": ""}
        answer = answer_of(read_line(there.read))
        while "wait" in answer:
            answer = answer_of(read_line(there.read))
        return answer

    def _send(self, source: Source, frames: FrameWriter | PlainWriter) -> tuple[int, str, str]:
        """Length and digest of the data, and the seal of what was sent."""
        raw = _Count(self._progress, counts_digest=self._order.digests)
        packer = COMPRESSIONS[self._order.compress]
        if packer is None:
            for zeros, data in source.pieces():
                if zeros:
                    frames.zeros(zeros)
                else:
                    frames.data(data)
                raw.add(zeros, data)
            source.finish()
            return raw.length, raw.digest(), frames.end()
        with _piped(packer.pack, self._feed(source, raw)) as packed:
            for room in buffers():
                if not (count := os.readv(packed, [room])):
                    break
                frames.data(room[:count])
        source.finish()
        return raw.length, raw.digest(), frames.end()

    @staticmethod
    def _feed(source: Source, raw: _Count) -> Iterator[Piece]:
        for zeros, data in source.pieces():
            yield from _as_data(zeros, data)
            raw.add(zeros, data)


def _why(there: Connection, err: Exception) -> str:
    """Why a connection ended: by the receiver's own words, or as we saw it."""
    with contextlib.suppress(GanetiError, OSError):
        there.limit(LAST_WORDS_S)
        told = answer_of(read_line(there.read)).get("error")
        if told:
            return f"the receiver: {str(told)[:2000]}"
    return str(err)


def _as_data(zeros: int, data: Piece) -> Iterator[Piece]:
    while zeros > 0:
        part = min(zeros, CHUNK)
        yield bytes(part)
        zeros -= part
    if data:
        yield data


class _Receiver:
    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._file = order, file
        self._progress = _progress(order, file)
        self._theirs = Greeting("", "", b"")

    def run(self) -> dict[str, Any]:
        """Wait for the sender, take and sync what it sends, then tell it."""
        begun = time.monotonic()
        order = self._order
        there, self._theirs = accept(
            standard_input(),
            order.tls,
            wait_s=order.wait_s,
            greet=self._greeted,
            length=len(first_words(order.token)) if order.plain else 0,
        )
        try:
            try:
                result, seal = self._receive(there)
            except (GanetiError, OSError, ValueError) as err:
                self._tell(there, {"error": _text(order.path, err)})
                raise
            result = {**result, "seconds": time.monotonic() - begun}
            if order.hold:
                self._hold(there, result)
            self._tell(there, {"seal": seal})
        finally:
            there.close()
        return result

    def _greeted(self, said: bytes) -> Greeting:
        order = self._order
        if order.plain:
            expected = Greeting(order.form, order.compress, b"")
            return check_first_words(said, order.token, expected)
        return check_greeting(said, order.token, has_digest=bool(order.sha256))

    def _hold(self, there: Connection, result: dict[str, Any]) -> None:
        """All is synced: say so here, and wait until the master has what it needs to keep it."""
        received, commit = self._file.with_suffix(".received"), self._file.with_suffix(".commit")
        write_atomically(received, json.dumps(result).encode())
        said = time.monotonic()
        while not commit.exists():
            if time.monotonic() - said > HOLD_SAY_S:
                said = time.monotonic()
                there.tell(b'{"wait": true}\n')
            time.sleep(HOLD_LOOK_S)

    @staticmethod
    def _tell(there: Connection, answer: dict[str, Any]) -> None:
        """Tell the sender; upstream's has gone by then, or does not listen."""
        with contextlib.suppress(OSError, HostError):
            there.tell(json.dumps(answer).encode() + b"\n")

    def _receive(self, there: Connection) -> tuple[dict[str, Any], str]:
        """What came, and its seal."""
        order = self._order
        check_form(self._theirs, order.form, order.compress)
        with open_sink(
            order.path,
            order.argv,
            own_environment(),
            makes_file=order.makes_file,
            has_zeros=order.has_zeros,
        ) as sink:
            raw, seal = self._take(sink, there)
            digest = raw.digest()
            if order.plain and not order.argv and raw.length != order.size:
                raise HostError(
                    f"{raw.length} bytes were sent for a disk of {order.size}: it was cut off, or made by a script"
                    " of an OS that is not chosen here"
                )
            if digest != order.sha256:
                raise HostError(
                    "the data is not what was exported: its digest is another one than that in the"
                    " description; the dump is damaged, take another export"
                )
            sink.finish()
        return {"data_bytes": raw.length, "sha256": digest}, seal

    def _take(self, sink: Sink, there: Connection) -> tuple[_Count, str]:
        """What was in what came, and the seal of that."""
        raw = _Count(self._progress, counts_digest=bool(self._order.sha256))
        limit, unpacker = self._order.limit, COMPRESSIONS[self._order.compress]
        came = limit if unpacker is None else 2 * limit + CHUNK
        frames: FrameReader | PlainReader = FrameReader(there.fill, self._theirs.key, came)
        if self._order.plain:
            frames = PlainReader(there.fill_to_end, came)
        if unpacker is None:
            for zeros, data in frames.pieces():
                sink.take(zeros, data)
                raw.add(zeros, data)
            return raw, frames.seal
        packed = (part for zeros, data in frames.pieces() for part in _as_data(zeros, data))
        with _piped(unpacker.unpack, packed) as unpacked:
            for room in buffers():
                if not (count := os.readv(unpacked, [room])):
                    break
                # What came in one piece is a bomb if it does not stop: the limit counts what comes out (A52).
                if raw.length + count > limit:
                    raise HostError(f"more than the {limit} bytes that are possible were sent")
                for zeros, data in split_zeros(room[:count]):
                    sink.take(zeros, data)
                    raw.add(zeros, data)
        return raw, frames.seal


@contextlib.contextmanager
def _piped(words: Sequence[str], pieces: Iterator[Piece]) -> Iterator[int]:
    """A program that is fed from a thread; yields where to read. Its failure, or the feeder's, is raised."""
    from ganeti.base.process import CLEAN_ENVIRONMENT  # noqa: PLC0415 - slow to import

    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=CLEAN_ENVIRONMENT,
            close_fds=False,  # the task's lock
        )
    except FileNotFoundError as err:
        raise HostError(f"the program {words[0]} is not on this node; install it") from err
    assert process.stdin is not None  # noqa: S101 - asked for
    assert process.stdout is not None  # noqa: S101 - asked for
    stdin, stdout, failures = process.stdin, process.stdout, list[BaseException]()

    def feed() -> None:
        try:
            write = writer(stdin.fileno())
            for piece in pieces:
                write(piece)
        except BaseException as err:  # noqa: BLE001 - it is raised by who waits
            failures.append(err)
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    feeder = threading.Thread(target=feed, name=words[0], daemon=True)
    feeder.start()
    try:
        yield stdout.fileno()
        feeder.join()
    finally:
        if feeder.is_alive() or process.poll() is None:
            process.kill() if feeder.is_alive() else None
        stdout.close()
        status = process.wait()
    for failure in failures:
        if not isinstance(failure, BrokenPipeError):
            raise failure
    if status or failures:
        raise HostError(f"{words[0]} failed (exit status {status}): the data is damaged")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
