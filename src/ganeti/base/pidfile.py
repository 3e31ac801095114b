"""Which process is a daemon: a locked file with its process id and start time.

The lock says that the daemon lives, and ends with it however it ends. The content says which process that
is, with a further word until it serves; the start time keeps a reused process id from being taken for it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.files import is_locked

_STARTING = "starting"
_START_TIME_FIELD = 19  # of /proc/PID/stat, counted behind the command's closing bracket


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that cannot be mistaken: its id, and its start in clock ticks since the boot."""

    pid: int
    start_time: int


def identity_of(pid: int) -> ProcessIdentity | None:
    """The process that has this id now; None if there is none, or if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[_START_TIME_FIELD]))


@contextlib.contextmanager
def holding_pid_file(path: Path, program: str) -> Iterator[Callable[[], None]]:
    """Be the one process of this file; the function that is yielded says that the daemon serves now.

    Raises HostError if another process is it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not _lock(descriptor):
            raise HostError(f"{program} is already running here (process {_content(path)}, {path})")
        os.ftruncate(descriptor, 0)
        me = identity_of(os.getpid())
        assert me is not None  # noqa: S101 - this process lives
        words = f"{me.pid} {me.start_time}"
        os.pwrite(descriptor, f"{words} {_STARTING}".encode(), 0)

        def ready() -> None:
            os.ftruncate(descriptor, len(words))

        yield ready
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Somebody who only asks with `is_locked` has the file for an instant: try again before giving up."""
    for _ in range(10):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def serving_process(path: Path) -> ProcessIdentity | None:
    """The daemon that holds this file and serves; None if it does not live or is not ready."""
    return _holder(path, [])


def starting_process(path: Path) -> ProcessIdentity | None:
    """The daemon that holds this file and does not serve yet."""
    return _holder(path, [_STARTING])


def _holder(path: Path, more: list[str]) -> ProcessIdentity | None:
    if not is_locked(path):
        return None
    words = _content(path).split()
    if words[2:] != more or not all(word.isdecimal() for word in words[:2]) or len(words) < 2:  # noqa: PLR2004 - id, start
        return None
    found = ProcessIdentity(int(words[0]), int(words[1]))
    return found if identity_of(found.pid) == found else None


def _content(path: Path) -> str:
    return path.read_text(errors="replace").strip()


def pid_file(run: Path, program: str) -> Path:
    """The pid file of a program, below the run directory (`Paths.run`)."""
    return run / f"{program}.pid"
