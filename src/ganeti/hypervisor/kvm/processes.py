"""QEMU processes in the view of a node daemon that they outlive.

A process is identified by its id and its start time, so that a reused id is never mistaken for it. A zombie (state Z)
counts as ended.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ganeti.base.errors import HypervisorError
from ganeti.base.process import CLEAN_ENVIRONMENT

PROC = Path("/proc")
_STATE, _USER_TICKS, _SYSTEM_TICKS, _THREADS, _START_TICKS = 0, 11, 12, 17, 19
"""Positions in /proc/PID/stat, counted after the program's name."""


@dataclass(frozen=True)
class ProcessId:
    """One process: `start_ticks` is its start time, in clock ticks since boot."""

    pid: int
    start_ticks: int


class Processes(Protocol):
    """The driver's operations on processes, as a port."""

    def spawn(self, argv: Sequence[str], log_path: Path, *, keep: Sequence[int] = ()) -> ProcessId:
        """Start a program in a session of its own, its output appended to `log_path`; it inherits `keep`."""
        ...

    def is_alive(self, process: ProcessId) -> bool: ...

    def find(self, argv: Sequence[str]) -> ProcessId | None:
        """Return the live process that was started with exactly these words."""
        ...

    def kill(self, process: ProcessId) -> None:
        """Kill it; no-op if it has ended."""
        ...

    async def ended_within(self, process: ProcessId, timeout_s: float) -> bool:
        """Wait for its end; return False if it still runs after `timeout_s`."""
        ...

    def cpu_time_s(self, process: ProcessId) -> float: ...


class HostProcesses:
    """The processes of this host."""

    def spawn(self, argv: Sequence[str], log_path: Path, *, keep: Sequence[int] = ()) -> ProcessId:
        try:
            with log_path.open("ab") as log:
                child = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(CLEAN_ENVIRONMENT),
                    cwd="/",
                    close_fds=True,
                    pass_fds=tuple(keep),
                    start_new_session=True,
                    umask=0o077,
                )
        except OSError as err:
            raise HypervisorError(f"{argv[0]} cannot be started: {err.strerror}") from err
        # It outlives this object, and this daemon; `_reap` waits for its end.
        child.returncode = 0
        fields = _stat_fields(child.pid)
        return ProcessId(child.pid, int(fields[_START_TICKS]) if fields else 0)

    def is_alive(self, process: ProcessId) -> bool:
        fields = _stat_fields(process.pid)
        if fields is None or int(fields[_START_TICKS]) != process.start_ticks:
            return False
        if fields[_STATE] in ("Z", "X") and int(fields[_THREADS]) <= 1:
            _reap(process.pid)
            return False
        # The main thread has ended before the others: they still hold the disks.
        return True

    def find(self, argv: Sequence[str]) -> ProcessId | None:
        wanted = b"".join(os.fsencode(word) + b"\0" for word in argv)
        for entry in PROC.iterdir():
            if not entry.name.isdecimal() or _read(entry / "cmdline") != wanted:
                continue
            fields = _stat_fields(int(entry.name))
            if fields is not None:
                return ProcessId(int(entry.name), int(fields[_START_TICKS]))
        return None

    def kill(self, process: ProcessId) -> None:
        with self._opened(process) as descriptor, contextlib.suppress(ProcessLookupError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    async def ended_within(self, process: ProcessId, timeout_s: float) -> bool:
        with self._opened(process) as descriptor:
            if descriptor is not None:
                await _readable_within(descriptor, timeout_s)
        return not self.is_alive(process)

    def cpu_time_s(self, process: ProcessId) -> float:
        fields = _stat_fields(process.pid)
        if fields is None or int(fields[_START_TICKS]) != process.start_ticks:
            return 0.0
        ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        return ticks / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def _opened(self, process: ProcessId) -> Iterator[int | None]:
        """Return a descriptor of this very process; None if it has ended."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # Checked after opening: from here on the id belongs to this process.
            yield descriptor if self.is_alive(process) else None
        finally:
            os.close(descriptor)


async def _readable_within(descriptor: int, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(timeout_s):
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the program's name, which may contain anything."""
    text = _read(PROC / str(pid) / "stat").decode(errors="replace")
    return text.rpartition(")")[2].split() or None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _reap(pid: int) -> None:
    """Collect an ended process, if it is a child of this one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
