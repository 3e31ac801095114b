"""The process of a daemon: a locked file with its process id and start time.

The lock proves that the daemon lives, and ends with it in any case. The content identifies the
process, with a further word before it serves and once it ends. The start time distinguishes it from
a later process with the same id.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.files import is_locked

_STARTING, _ENDING = "starting", "ending"
_WORDS = ("", _STARTING, _ENDING)
_START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command's closing bracket


@dataclass(frozen=True)
class ProcessIdentity:
    """A unique process: its id, and its start in clock ticks since the boot."""

    pid: int
    start_time: int


def identity_of(pid: int) -> ProcessIdentity | None:
    """Return the process with this id; None if it does not exist, or has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[_START_TIME_FIELD]))


class HeldPidFile:
    """A daemon's status in its file."""

    def __init__(self, descriptor: int, process: ProcessIdentity) -> None:
        self._descriptor, self._process = descriptor, process
        self._is_ending = False
        self._say(_STARTING)

    def serves(self) -> None:
        """Record that it serves, unless it was ended during the start."""
        if not self._is_ending:
            self._say("")

    def ends(self) -> None:
        """Record that it accepts nothing new; another one must be started once this is gone."""
        self._is_ending = True
        with contextlib.suppress(OSError):  # a failed disk prevents no daemon from ending
            self._say(_ENDING)

    def _say(self, word: str) -> None:
        content = f"{self._process.pid} {self._process.start_time} {word}".strip().encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))


@contextlib.contextmanager
def holding_pid_file(path: Path, program: str) -> Iterator[HeldPidFile]:
    """Be the only process of this file; HostError if another process is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not _lock(descriptor):
            raise HostError(f"{program} is already running here (process {_content(path)}, {path})")
        os.ftruncate(descriptor, 0)
        me = identity_of(os.getpid())
        assert me is not None  # noqa: S101 - this process lives
        yield HeldPidFile(descriptor, me)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock the file; retries, because a process that calls `is_locked` holds the file for an instant."""
    for _ in range(10):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def serving_process(path: Path) -> ProcessIdentity | None:
    """Return the serving daemon that holds this file; None if it does not live, is not ready, or ends."""
    process, word = _holder(path)
    return None if word else process


def living_process(path: Path) -> ProcessIdentity | None:
    """Return the daemon that holds this file, whether it starts, serves or ends."""
    return _holder(path)[0]


def is_ending(path: Path) -> bool:
    """Return whether the daemon that holds this file is ending."""
    return _holder(path)[1] == _ENDING


def _holder(path: Path) -> tuple[ProcessIdentity | None, str]:
    """Return the process that holds the file, and the word after it."""
    if not is_locked(path):
        return None, ""
    number, start, word, *more = [*_content(path).split(), "", "", ""]
    if not (number.isdecimal() and start.isdecimal()) or any(more) or word not in _WORDS:
        return None, ""
    found = ProcessIdentity(int(number), int(start))
    return (found, word) if identity_of(found.pid) == found else (None, "")


def _content(path: Path) -> str:
    return path.read_text(errors="replace").strip()


def pid_file(run: Path, program: str) -> Path:
    """Return the pid file of a program, below the run directory (`Paths.run`)."""
    return run / f"{program}.pid"
