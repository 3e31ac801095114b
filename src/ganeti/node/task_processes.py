"""Ends the processes of a task: its program first, so that its supervisor records how the program ended.

A process belongs to a task if it has the task's lock open, or is in the session of the supervisor.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from ganeti.base.files import is_locked

POLITE_S = 3.0
"""Time between asking a program to end and killing it."""
FORCE_S = 4.0
"""Time that a killed process may take to end; one that waits for a failed disk does not end."""
POLL_S = 0.05


async def end_processes(lock: Path, supervisor_file: Path) -> bool:
    """End the processes; return whether the lock is free."""
    await asyncio.to_thread(_signal_program, lock, supervisor_file, signal.SIGTERM)
    if await is_free(lock, POLITE_S):
        return True
    # Repeat, to find processes that started meanwhile.
    for _ in range(int(FORCE_S)):
        await asyncio.to_thread(_signal_program, lock, supervisor_file, signal.SIGKILL)
        if await is_free(lock, 1.0):
            return True
    return False


async def is_free(lock: Path, limit_s: float) -> bool:
    """Return whether a task's lock becomes free within a time limit."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while is_locked(lock):
        if loop.time() > end:
            return False
        await asyncio.sleep(POLL_S)  # not all of the processes are children of this one
    return True


def _signal_program(lock: Path, supervisor_file: Path, number: signal.Signals) -> None:
    """Signal all processes of the task except its supervisor, which then only records the status."""
    supervisor = _supervisor(supervisor_file)
    for pid in members(lock, supervisor) - {supervisor, os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)


def _supervisor(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def members(lock: Path, supervisor: int | None) -> set[int]:
    """Return the processes that have the lock open, and those in the supervisor's session while it lives."""
    try:
        wanted = lock.stat()
    except OSError:
        return set()
    session = None if supervisor is None else _session(supervisor)  # first: it may end meanwhile
    holders = {pid for pid in _processes() if _has_open(pid, wanted)}
    if session is None or supervisor not in holders:
        return holders  # it has ended: another process may have its id
    return holders | {pid for pid in _processes() if _session(pid) == session}


def left_behind(lock: Path) -> list[str]:
    """Return the processes that outlive an ended task: process ids with their commands."""
    found = []
    for pid in sorted(members(lock, None) - {os.getpid()}):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            found.append(f"{words} ({pid})")
    return found


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            found = descriptor.stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False
