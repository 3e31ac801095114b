"""The program that carries one disk's data to or from another node: `python -m ganeti.node.disk_stream ORDER`.

It runs as a task of the node (`tasks.py`), so it outlives the node daemon. Its environment is that of
the script, if one is run; what belongs to Python only is not handed on. Every program that it starts
keeps the task's lock open, so whatever one leaves behind is found.
"""

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import write_atomically
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.model.compression import COMPRESSIONS
from ganeti.node.socat import TlsFiles, connector_words, has_caller, listener_words, port_in
from ganeti.node.stream_ends import ProgramFailed, Sink, Source, open_sink, open_source
from ganeti.node.stream_frames import (
    CHUNK,
    DUMP,
    Digest,
    FrameWriter,
    answer_of,
    check_form,
    check_greeting,
    greeting,
    read_frames,
    read_line,
    split_zeros,
    writer,
)

GREETING_S = 10.0
"""How long a caller may take until it has shown its certificate and said what it wants."""
HOLD_LOOK_S, HOLD_SAY_S = 0.2, 20.0
"""How often a held answer is looked for, and the sender told to wait."""
SILENCE_S = 600.0
"""Who neither sends nor takes anything for so long is given up (A61)."""
PROGRESS_EVERY_S = 1.0


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
    form: str = DUMP
    """`raw`, `script` or `dump`."""
    hold: bool = False
    """Tell the sender only once we are told to (`.commit`): its data may be removed then."""
    wait_s: float = 60.0
    """How long the receiver waits for its sender."""
    token: str
    address: str
    port: int = 0
    certificate: str
    key: str
    peer: str
    peer_name: str

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(Path(self.certificate), Path(self.key), Path(self.peer), self.peer_name)


def main(argv: Sequence[str]) -> int:
    """Carry one order out; the exit status says whether it succeeded, the result why not."""
    file = Path(argv[0])
    try:
        order = wire.decode(file.read_bytes(), StreamOrder, what=str(file))
        result = _Receiver(order, file).run() if order.receives else _Sender(order, file).run()
    except (GanetiError, OSError, ValueError) as err:
        text = err.message if isinstance(err, GanetiError) else str(err)
        say(text, file=sys.stderr)
        write_atomically(file.with_suffix(".error"), text.encode())
        return 1
    write_atomically(file.with_suffix(".result"), json.dumps(result).encode())
    return 0


def own_environment() -> dict[str, str]:
    """The environment of the script."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class _Progress:
    """How far it has come, in bytes before compression, for who asks the node."""

    def __init__(self, file: Path, total: int) -> None:
        self._file, self._total, self._said = file, total, 0.0

    def at(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= PROGRESS_EVERY_S:
            self._said = now
            new = self._file.with_suffix(".progress.new")
            new.write_bytes(wire.encode({"done": done, "total": self._total}))
            new.replace(self._file.with_suffix(".progress"))


class _Socat:
    """A `socat`, whose standard streams are the connection."""

    def __init__(self, words: Sequence[str]) -> None:
        self.said: list[str] = []
        self.port: int | None = None
        self.called_at: float | None = None
        self.news = threading.Condition()
        self.process = program(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, listens=True)
        assert self.process.stdin is not None  # noqa: S101 - asked for
        assert self.process.stdout is not None  # noqa: S101 - asked for
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        _widen(self._in)
        _widen(self._out)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.silence_s = SILENCE_S

    def read(self, length: int) -> bytes:
        if not select.select([self._out], [], [], self.silence_s)[0]:
            raise HostError(f"the other end has said nothing for {self.silence_s:g} s")
        return os.read(self._out, length)

    def write(self, data: bytes | memoryview) -> None:
        writer(self._in)(data)

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None  # noqa: S101 - asked for
            self.process.stdin.close()

    def close(self) -> None:
        self.end_input()
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join(2.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def reason(self) -> str:
        """What it said last, if anything went wrong."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self._listener.join(1.0)
        problems = [line for line in self.said if " E " in line]
        return problems[-1].partition(" E ")[2] if problems else ""

    def _listen(self) -> None:
        stream = self.process.stderr
        assert stream is not None  # noqa: S101 - asked for
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            with self.news:
                self.said = [*self.said[-50:], line]
                self.port = port_in(line) or self.port
                if has_caller(line):
                    self.called_at = time.monotonic()
                self.news.notify_all()
        stream.close()
        with self.news:
            self.news.notify_all()


def program(
    words: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    listens: bool = False,
) -> "subprocess.Popen[bytes]":
    """A program of ours; HostError if it cannot be started."""
    try:
        return subprocess.Popen(
            list(words),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE if listens else None,
            env=CLEAN_ENVIRONMENT,
            close_fds=False,  # the task's lock
        )
    except FileNotFoundError as err:
        raise HostError(f"the program {words[0]} is not on this node; install it") from err


def _widen(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a user may have no more pages for pipes
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK)


class _Sender:
    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._progress = order, _Progress(file, order.size)

    def run(self) -> dict[str, Any]:
        """Send all; returns once the receiver has it synced."""
        order, begun = self._order, time.monotonic()
        socat = _Socat(connector_words(order.address, order.port, order.tls))
        try:
            try:
                with open_source(order.path, order.argv, order.size, own_environment()) as source:
                    socat.write(greeting(order.token, order.form, order.compress))
                    raw, sent = self._send(source, socat)
                answer = answer_of(read_line(socat.read))
                while "wait" in answer:
                    answer = answer_of(read_line(socat.read))
            except (BrokenPipeError, HostError) as err:
                if isinstance(err, ProgramFailed):
                    raise
                raise HostError(f"the data was not sent: {_why(socat, err)}") from err
        finally:
            socat.close()
        if answer.get("sha256") != sent[1]:
            why = str(answer.get("error", "another digest"))[:2000]
            raise HostError(f"the receiver refused the data: {why}")
        return {
            "data_bytes": raw[0],
            "sha256": raw[1],
            "wire_bytes": sent[0],
            "wire_sha256": sent[1],
            "seconds": time.monotonic() - begun,
        }

    def _send(self, source: Source, socat: _Socat) -> tuple[tuple[int, str], tuple[int, str]]:
        """Length and digest of the data, and of what was sent."""
        frames = FrameWriter(socat.write)
        packer = COMPRESSIONS[self._order.compress]
        if packer is None:
            for zeros, data in source.pieces():
                if zeros:
                    frames.zeros(zeros)
                else:
                    frames.data(data)
                self._progress.at(frames.digest.length)
            source.finish()
            length, digest = frames.digest.length, frames.end()
            return (length, digest), (length, digest)
        raw = Digest()
        with _piped(packer.pack, self._feed(source, raw)) as packed:
            while data := os.read(packed, CHUNK):
                frames.data(data)
        source.finish()
        length = frames.digest.length
        return (raw.length, raw.finish()), (length, frames.end())

    def _feed(self, source: Source, raw: Digest) -> Iterator[bytes]:
        for zeros, data in source.pieces():
            for part in _as_data(zeros, data):
                raw.add(part)
                yield part
            self._progress.at(raw.length)


def _why(socat: _Socat, err: Exception) -> str:
    """Why a connection ended: by the receiver's own words, by socat's, or as we saw it."""
    with contextlib.suppress(GanetiError, OSError):
        socat.silence_s = 2.0
        told = answer_of(read_line(socat.read)).get("error")
        if told:
            return f"the receiver: {str(told)[:2000]}"
    return socat.reason() or str(err)


def _as_data(zeros: int, data: bytes) -> Iterator[bytes]:
    while zeros > 0:
        part = min(zeros, CHUNK)
        yield bytes(part)
        zeros -= part
    if data:
        yield data


class _Receiver:
    def __init__(self, order: StreamOrder, file: Path) -> None:
        self._order, self._file = order, file
        self._progress = _Progress(file, order.size)
        self._theirs = "", ""
        """What the sender says of its data."""

    def run(self) -> dict[str, Any]:
        """Wait for the sender, take and sync what it sends, then tell it."""
        begun = time.monotonic()
        socat = self._expected()
        try:
            try:
                result = self._receive(socat)
            except (GanetiError, OSError, ValueError) as err:
                text = err.message if isinstance(err, GanetiError) else str(err)
                self._tell(socat, {"error": text})
                raise
            result = {**result, "seconds": time.monotonic() - begun}
            if self._order.hold:
                self._hold(socat, result)
            self._tell(socat, {"sha256": result["wire_sha256"]})
        finally:
            socat.close()
        return result

    def _hold(self, socat: _Socat, result: dict[str, Any]) -> None:
        """All is synced: say so here, and wait until the master has what it needs to keep it."""
        received, commit = self._file.with_suffix(".received"), self._file.with_suffix(".commit")
        write_atomically(received, json.dumps(result).encode())
        said = time.monotonic()
        while not commit.exists():
            if time.monotonic() - said > HOLD_SAY_S:
                said = time.monotonic()
                socat.write(b'{"wait": true}\n')
            time.sleep(HOLD_LOOK_S)

    @staticmethod
    def _tell(socat: _Socat, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            socat.write(json.dumps(answer).encode() + b"\n")

    def _expected(self) -> _Socat:
        """The connection of the one sender that is meant; after any other caller it listens again."""
        order, port = self._order, 0
        end = time.monotonic() + order.wait_s
        while time.monotonic() < end:
            socat = _Socat(listener_words(order.address, port, order.tls))
            try:
                port = self._listens(socat, end)
                self._await_caller(socat, end)
                socat.silence_s = GREETING_S
                self._theirs = check_greeting(read_line(socat.read), order.token)
            except (GanetiError, OSError) as err:
                said = socat.reason() or str(err)
                socat.close()
                if port == 0:
                    raise HostError(f"nothing can listen for the data: {said}") from err
                say(f"hung up on a caller: {said}", file=sys.stderr)
                continue
            socat.silence_s = SILENCE_S
            return socat
        raise HostError(f"nobody sent the data within {order.wait_s:g} s")

    def _listens(self, socat: _Socat, end: float) -> int:
        with socat.news:
            socat.news.wait_for(
                lambda: socat.port is not None or socat.process.poll() is not None,
                max(0.0, end - time.monotonic()),
            )
        if socat.port is None:
            raise HostError("socat does not say where it listens")
        written = self._file.with_suffix(".port")
        if not written.exists():
            write_atomically(written, str(socat.port).encode())
        return socat.port

    @staticmethod
    def _await_caller(socat: _Socat, end: float) -> None:
        with socat.news:
            socat.news.wait_for(
                lambda: socat.called_at is not None or socat.process.poll() is not None,
                max(0.0, end - time.monotonic()),
            )
        if socat.called_at is None:
            raise HostError("nobody called")

    def _receive(self, socat: _Socat) -> dict[str, Any]:
        order = self._order
        check_form(self._theirs, order.form, order.compress)
        with open_sink(
            order.path,
            order.argv,
            own_environment(),
            makes_file=order.makes_file,
            has_zeros=order.has_zeros,
        ) as sink:
            came, raw = self._take(sink, socat)
            if order.sha256 and raw[1] != order.sha256:
                raise HostError(
                    "the data is not what was exported: its digest is another one than that in the"
                    " description; the dump is damaged"
                )
            sink.finish()
        return {
            "data_bytes": raw[0],
            "sha256": raw[1],
            "wire_bytes": came[0],
            "wire_sha256": came[1],
        }

    def _take(self, sink: Sink, socat: _Socat) -> tuple[tuple[int, str], tuple[int, str]]:
        """Length and digest of what came, and of the data in it."""
        came, limit = Digest(), self._order.limit
        unpacker = COMPRESSIONS[self._order.compress]
        frames = read_frames(socat.read, came, limit if unpacker is None else 2 * limit + CHUNK)
        if unpacker is None:
            for zeros, data in frames:
                sink.take(zeros, data)
                self._progress.at(came.length)
            both = came.length, came.finish()
            return both, both
        raw = Digest()
        packed = (part for zeros, data in frames for part in _as_data(zeros, data))
        with _piped(unpacker.unpack, packed) as unpacked:
            # What came in one piece is a bomb if it does not stop: the limit counts what comes out (A52).
            while data := os.read(unpacked, CHUNK):
                raw.add(data)
                if raw.length > limit:
                    raise HostError(f"more than the {limit} bytes that are possible were sent")
                for zeros, part in split_zeros(data):
                    sink.take(zeros, part)
                self._progress.at(raw.length)
        return (came.length, came.finish()), (raw.length, raw.finish())


@contextlib.contextmanager
def _piped(words: Sequence[str], pieces: Iterator[bytes]) -> Iterator[int]:
    """A program that is fed from a thread; yields where to read. Its failure, or the feeder's, is raised."""
    process = program(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
