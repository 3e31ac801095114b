"""Which process is a daemon: a locked file with its process id and start time.

The lock says that the daemon lives, and ends with it however it ends. The content says which process that
is, with a further word until it serves, and again once it ends; the start time keeps a reused process id from
being taken for it.
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


class HeldPidFile:
    """What a daemon says of itself in its file."""

    def __init__(self, descriptor: int, process: ProcessIdentity) -> None:
        self._descriptor, self._process = descriptor, process
        self._is_ending = False
        self._say(_STARTING)

    def serves(self) -> None:
        """It can be asked from now on, unless it has been told to end as it started."""
        if not self._is_ending:
            self._say("")

    def ends(self) -> None:
        """It takes nothing new; who wants the daemon has to start another one when this is gone."""
        self._is_ending = True
        with contextlib.suppress(OSError):  # a broken disk keeps no daemon from ending
            self._say(_ENDING)

    def _say(self, word: str) -> None:
        content = f"{self._process.pid} {self._process.start_time} {word}".strip().encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))


@contextlib.contextmanager
def holding_pid_file(path: Path, program: str) -> Iterator[HeldPidFile]:
    """Be the one process of this file; HostError if another process is it."""
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
    """A process that calls `is_locked` holds the file for an instant: retry before failing."""
    for _ in range(10):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def serving_process(path: Path) -> ProcessIdentity | None:
    """The daemon that holds this file and serves; None if it does not live, is not ready, or ends."""
    process, word = _holder(path)
    return None if word else process


def living_process(path: Path) -> ProcessIdentity | None:
    """The daemon that holds this file, whether it starts, serves or ends."""
    return _holder(path)[0]


def is_ending(path: Path) -> bool:
    """Whether the daemon that holds this file is about to give it up."""
    return _holder(path)[1] == _ENDING


def _holder(path: Path) -> tuple[ProcessIdentity | None, str]:
    """Who holds the file, and the word behind it."""
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
    """The pid file of a program, below the run directory (`Paths.run`)."""
    return run / f"{program}.pid"
