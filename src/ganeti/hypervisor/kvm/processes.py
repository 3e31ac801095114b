"""QEMU processes in the view of a node daemon that they outlive (`ganeti.base.process_table`)."""

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ganeti.base import process_table
from ganeti.base.errors import HypervisorError
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.base.process_table import (
    START_TICKS,
    SYSTEM_TICKS,
    USER_TICKS,
    ProcessId,
    stat_fields,
)


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
        # It outlives this object, and this daemon; `is_alive` collects it.
        child.returncode = 0
        fields = stat_fields(child.pid)
        return ProcessId(child.pid, int(fields[START_TICKS]) if fields else 0)

    def is_alive(self, process: ProcessId) -> bool:
        return process_table.is_alive(process)

    def find(self, argv: Sequence[str]) -> ProcessId | None:
        return process_table.find(argv)

    def kill(self, process: ProcessId) -> None:
        process_table.kill(process)

    async def ended_within(self, process: ProcessId, timeout_s: float) -> bool:
        with process_table.opened(process) as descriptor:
            if descriptor is not None:
                await _readable_within(descriptor, timeout_s)
        return not self.is_alive(process)

    def cpu_time_s(self, process: ProcessId) -> float:
        fields = stat_fields(process.pid)
        if fields is None or int(fields[START_TICKS]) != process.start_ticks:
            return 0.0
        ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
        return ticks / os.sysconf("SC_CLK_TCK")


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
