"""The sources and sinks of a stream on a node: a disk, a dump, or a script of an OS definition.

Those of backups are in `ganeti.node.backups.ends`.
"""

import contextlib
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ganeti.base.errors import HostError
from ganeti.base.files import sync_directory, zero
from ganeti.node.carrier.buffers import fill, widen, writer
from ganeti.node.carrier.frames import CHUNK, Piece, Pieces, as_data, buffers, split_zeros
from ganeti.node.carrier.order import EndOrder
from ganeti.node.carrier.pieces import BLOCK, Collector
from ganeti.storage.clones import NoClones, clone, cloned

if TYPE_CHECKING:
    from ganeti.node.carrier.image_sink import DiskImageSink

HOLE_PIECE = 64 * 1024 * 1024
"""Maximum number of zeros in one piece."""
ZEROS_LEAST = 1024 * 1024
"""Bytes of a run of zeros that is not written like data: each call of the kernel waits for the writes before it."""
LEFT_BEHIND_S = 2.0
"""Time that an output may stay open after the end of its script."""


class ProgramFailed(HostError):
    """A script of the OS definition failed."""


class Source(Protocol):
    """The origin of the data."""

    def pieces(self) -> Pieces:
        """Yield everything in order."""
        ...

    def position(self, length: int) -> int:
        """Return the progress, of `StreamOrder.total`, when `length` bytes were yielded."""
        ...

    def finish(self) -> None:
        """Raise HostError unless everything was read correctly."""
        ...


class Sink(Protocol):
    """The destination of the data."""

    def take(self, zeros: int, data: Piece) -> None: ...

    def finish(self) -> None:
        """Return once everything is written and synced; HostError on failure."""
        ...


@contextlib.contextmanager
def open_source(end: EndOrder, size: int, environment: Mapping[str, str]) -> Iterator[Source]:
    """Open a script's output, a part of a backup, or `size` bytes of a disk or a file."""
    if end.argv:
        with _script(
            end.argv, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            yield _ScriptSource(process)
        return
    if end.point is not None:
        from ganeti.node.backups.ends import open_point  # noqa: PLC0415 - slow to import
        from ganeti.node.backups.key_pipe import received_keys  # noqa: PLC0415 - slow to import

        with open_point(end.point, size, received_keys()) as point:
            yield point
        return
    if end.changes is not None:
        from ganeti.node.backups.ends import open_changes  # noqa: PLC0415 - slow to import

        with open_changes(end.changes, end.path, size, is_image=end.is_image) as changes:
            yield changes
        return
    if end.is_image:
        from ganeti.node.backups.ends import open_image  # noqa: PLC0415 - slow to import

        with open_image(end.path, size) as whole:
            yield whole
        return
    descriptor = os.open(end.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _FileSource(descriptor, size)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_sink(end: EndOrder, environment: Mapping[str, str]) -> Iterator[Sink]:
    """Open a script's input, or a file: a new one, or an existing disk."""
    if end.argv:
        with _script(
            end.argv, environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as process:
            yield _ScriptSink(process)
        return
    if end.image is not None:
        from ganeti.node.backups.ends import ImageSink  # noqa: PLC0415 - slow to import
        from ganeti.node.backups.key_pipe import received_keys  # noqa: PLC0415 - slow to import

        image = ImageSink(end.image, received_keys())
        try:
            yield image
        finally:
            image.close()
        return
    new = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW if end.makes_file else 0
    descriptor = os.open(end.path, os.O_RDWR | os.O_CLOEXEC | new, 0o600)
    try:
        sink = _sink(descriptor, end)
        try:
            yield sink
        finally:
            sink.close()
    finally:
        os.close(descriptor)


def _sink(descriptor: int, end: EndOrder) -> "_FileSink | DiskImageSink":
    if end.is_image:
        from ganeti.node.carrier.image_sink import DiskImageSink  # noqa: PLC0415 - slow to import

        return DiskImageSink(descriptor, end.path)
    is_new, has_zeros = end.makes_file, end.has_zeros or end.makes_file
    return _FileSink(descriptor, Path(end.path), is_new=is_new, has_zeros=has_zeros)


@contextlib.contextmanager
def _script(
    argv: Sequence[str], environment: Mapping[str, str], *, stdin: int, stdout: int
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a script in a process group of its own, which ends with the block."""
    process = subprocess.Popen(
        list(argv),
        stdin=stdin,
        stdout=stdout,
        stderr=sys.stderr.fileno(),
        env=dict(environment),
        close_fds=False,  # the task's lock, which identifies the processes that the script leaves behind
        process_group=0,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _ended(process: "subprocess.Popen[bytes]", what: str) -> None:
    status = process.wait()
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise ProgramFailed(f"the script {what} {how}")


class _ScriptSource:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def position(self, length: int) -> int:
        return length

    def pieces(self) -> Pieces:
        assert self._process.stdout is not None  # noqa: S101 - asked for
        descriptor = self._process.stdout.fileno()
        widen(descriptor)
        for room in buffers():
            filled = fill(descriptor, room, self._wait)
            yield from split_zeros(room[:filled])
            if filled < CHUNK:
                return

    def _wait(self) -> bool:
        """Return whether there is more to read.

        False if only a leftover process of the script keeps its output open.
        """
        assert self._process.stdout is not None  # noqa: S101 - asked for
        ended_at: float | None = None
        while not select.select([self._process.stdout], [], [], 0.2)[0]:
            if self._process.poll() is not None:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > LEFT_BEHIND_S:
                    return False
        return True

    def finish(self) -> None:
        _ended(self._process, "export")


def share_blocks(source: EndOrder, sink: EndOrder, size: int) -> bool:
    """Let a disk in a file share the blocks of another one; return False where that is impossible."""
    if source.argv or sink.argv or source.changes or source.point or sink.image or sink.makes_file:
        return False
    if source.is_image or sink.is_image:
        return False
    with open(source.path, "rb") as old, open(sink.path, "r+b") as new:  # noqa: PTH123 - devices or files
        both = [os.fstat(one.fileno()) for one in (old, new)]
        if not all(stat.S_ISREG(one.st_mode) for one in both):
            return False
        if both[0].st_size != size or both[1].st_size < size:
            return False
        try:
            cloned(clone, new.fileno(), old.fileno())
        except NoClones:
            return False
    return True


class _FileSource:
    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size = descriptor, size

    def position(self, length: int) -> int:
        return length

    def pieces(self) -> Pieces:
        offset, rooms = 0, buffers()
        while offset < self._size:
            hole = self._hole(offset)
            if hole:
                # A hole may be the whole disk, and its digest takes minutes: the progress must stay
                # visible.
                zeros = min(hole, HOLE_PIECE)
                yield zeros, b""
                offset += zeros
                continue
            room = next(rooms)[: self._size - offset]
            count = os.preadv(self._descriptor, [room], offset)
            if not count:
                raise HostError(f"the data ends at byte {offset} instead of {self._size}")
            yield from split_zeros(room[:count])
            offset += count

    def _hole(self, offset: int) -> int:
        """Return the number of bytes from `offset` that are zeros because nothing is stored there."""
        try:
            begin = os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError:
            # Beyond the last data, or a device without holes: then only the size is known.
            end = os.lseek(self._descriptor, 0, os.SEEK_END)
            return self._size - offset if self._is_file() and end >= self._size else 0
        return min(begin, self._size) - offset

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def finish(self) -> None:
        """Everything was read, otherwise an error was raised."""


class _ScriptSink:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None  # noqa: S101 - asked for
        self._process, self._stdin = process, process.stdin
        widen(process.stdin.fileno())
        self._write = writer(process.stdin.fileno())
        self._listens = True

    def take(self, zeros: int, data: Piece) -> None:
        for part in as_data(zeros, data):
            if self._listens:
                self._give(part)

    def _give(self, data: Piece) -> None:
        try:
            self._write(data)
        except BrokenPipeError:
            # The script has read what it needs; its exit status tells whether that was enough.
            self._listens = False
            _ended(self._process, "import")

    def finish(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        _ended(self._process, "import")


class _FileSink:
    """Writes a file, or a disk whose bytes are those of its file."""

    def __init__(self, descriptor: int, path: Path, *, is_new: bool, has_zeros: bool) -> None:
        self._descriptor, self._path = descriptor, path
        self._is_new, self._has_zeros = is_new, has_zeros
        self._data = Collector(descriptor)
        self._zeros = 0

    def take(self, zeros: int, data: Piece) -> None:
        if self._has_zeros and zeros:
            self._data.skip(zeros)
            zeros = 0
        self._zeros += zeros
        if data or self._zeros >= HOLE_PIECE:
            self._zero()
        self._data.add(data)

    def _zero(self) -> None:
        """Let the zeros that were taken replace what the disk has; the kernel zeroes long runs faster."""
        count, self._zeros = self._zeros, 0
        if count >= ZEROS_LEAST:
            self._data.flush()
            offset = self._data.offset
            whole = count - count % BLOCK if offset % BLOCK == 0 else 0
            if whole and zero(self._descriptor, offset, whole):
                self._data.skip(whole)
                count -= whole
        for part in as_data(count, b""):
            self._data.add(part)

    def close(self) -> None:
        """End the threads."""
        self._data.close()

    def finish(self) -> None:
        self._zero()
        self._data.finish()
        if self._is_new:
            os.ftruncate(self._descriptor, self._data.offset)
            os.fsync(self._descriptor)
            sync_directory(self._path.parent)
