"""Processes by id and start time, so that a reused id is never mistaken for one.

A process whose main thread has ended before the others lives: they may hold disks. A zombie counts as ended.
"""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
STATE, USER_TICKS, SYSTEM_TICKS, THREADS, START_TICKS = 0, 11, 12, 17, 19
"""Positions in /proc/PID/stat, counted after the program's name."""


@dataclass(frozen=True)
class ProcessId:
    """One process: `start_ticks` is its start time, in clock ticks since boot."""

    pid: int
    start_ticks: int


def is_alive(process: ProcessId) -> bool:
    """Return whether this very process lives; a child that has ended is collected."""
    fields = stat_fields(process.pid)
    if fields is None or int(fields[START_TICKS]) != process.start_ticks:
        return False
    if fields[STATE] in ("Z", "X") and int(fields[THREADS]) <= 1:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        return False
    return True


def find(argv: Sequence[str]) -> ProcessId | None:
    """Return the live process that was started with exactly these words."""
    wanted = b"".join(os.fsencode(word) + b"\0" for word in argv)
    for entry in PROC.iterdir():
        if not entry.name.isdecimal() or _read(entry / "cmdline") != wanted:
            continue
        fields = stat_fields(int(entry.name))
        if fields is not None:
            return ProcessId(int(entry.name), int(fields[START_TICKS]))
    return None


def kill(process: ProcessId) -> None:
    """Kill it; no-op if it has ended."""
    with opened(process) as descriptor, contextlib.suppress(ProcessLookupError):
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)


@contextlib.contextmanager
def opened(process: ProcessId) -> Iterator[int | None]:
    """Return a descriptor of this very process; None if it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # Checked after opening: from here on the id belongs to this process.
        yield descriptor if is_alive(process) else None
    finally:
        os.close(descriptor)


def stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the program's name, which may contain anything."""
    text = _read(PROC / str(pid) / "stat").decode(errors="replace")
    return text.rpartition(")")[2].split() or None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
