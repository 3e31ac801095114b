"""Log files of the daemons: one line a record, written by one thread, never by the loop.

Logged text may have any origin, so control characters are escaped and records are bounded (A56). A
record that cannot be written to the file goes to the console instead (S30).
"""

import contextlib
import logging
import logging.handlers
import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path

from ganeti.base.terminal import escaped

RECORD_LIMIT = 4096
"""Maximum characters of one record; the rest is dropped and counted."""
QUEUE_LIMIT = 10_000
"""Maximum number of records that wait for the writer; further ones are dropped."""
LEVELS = ("debug", "info", "warning", "error")
CONSOLE = Path("/dev/console")


class LineFormatter(logging.Formatter):
    """`2026-01-02 03:04:05,678 ganeti-noded pid=12 INFO logger: text`, on one line."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        head = f"{moment},{int(record.msecs):03d} {self._program} pid={record.process}"
        return f"{head} {record.levelname} {record.name}: {escaped(text, RECORD_LIMIT)}"


class LogFile(logging.Handler):
    """Appends to a file (mode 0640); a record that cannot be written goes to the console."""

    def __init__(self, path: Path, console: Path = CONSOLE) -> None:
        super().__init__()
        self._path = path
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        # Opened for each record: the file may be rotated, and the disk may be full only for a while.
        line = (self.format(record) + "\n").encode(errors="backslashreplace")
        try:
            _append(self._path, line, os.O_CREAT | os.O_NOFOLLOW)
        except OSError:
            with contextlib.suppress(OSError):
                _append(self._console, line, os.O_NOCTTY)


def _append(path: Path, line: bytes, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o640)
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            os.write(descriptor, line[written:])
    finally:
        os.close(descriptor)


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    """A queue that never blocks: a flood of records is cut off instead of blocking the daemon."""

    def enqueue(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # The writer formats records, but arguments may change meanwhile, so the text is made now.
        record.msg = record.getMessage()
        record.args = None
        return record


@contextlib.contextmanager
def logging_to(
    path: Path, program: str, *, level: str = "info", stderr: bool = False, console: Path = CONSOLE
) -> Iterator[None]:
    """Log the whole process to `path` (and to standard error) for as long as the block runs."""
    handlers: list[logging.Handler] = [LogFile(path, console)]
    if stderr:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(LineFormatter(program))
    waiting: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE_LIMIT)
    entry = _DroppingQueueHandler(waiting)
    listener = logging.handlers.QueueListener(waiting, *handlers)
    root = logging.getLogger()
    old_level = root.level
    root.setLevel(level.upper())
    root.addHandler(entry)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(entry)
        root.setLevel(old_level)
        _stop(listener, waiting)


def _stop(
    listener: logging.handlers.QueueListener, waiting: "queue.Queue[logging.LogRecord]"
) -> None:
    # `stop` adds its mark without waiting, which fails in a full queue: let the writer drain it
    # first.
    while waiting.full():
        time.sleep(0.01)
    listener.stop()
