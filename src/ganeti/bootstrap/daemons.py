"""Starts, stops and checks the daemons of this node.

On a host with systemd its units do it. Elsewhere, and in virtual clusters, a daemon is a detached
process known by its pid file (process id and start time).
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.files import is_locked
from ganeti.base.paths import Paths
from ganeti.base.pidfile import (
    ProcessIdentity,
    identity_of,
    is_ending,
    living_process,
    pid_file,
    serving_process,
)
from ganeti.base.process import CLEAN_ENVIRONMENT, Run, run
from ganeti.base.state_kinds import state_servers

NODED, MASTERD, MOND, CONFD = "ganeti-noded", "ganeti-masterd", "ganeti-mond", "ganeti-confd"
RAPI, GUARD = "ganeti-rapi", "ganeti-guard"
STATE_DAEMONS = tuple(server.daemon for server in state_servers())
"""Daemons that supervise the servers of back ends of the state."""
MODULES = {
    NODED: "ganeti.daemons.noded",
    MASTERD: "ganeti.daemons.masterd",
    MOND: "ganeti.daemons.mond",
    CONFD: "ganeti.daemons.confd",
    **{server.daemon: server.module for server in state_servers()},
    RAPI: "ganeti.daemons.rapi",
    GUARD: "ganeti.daemons.guard",
}

CONFD_VARIABLE, RAPI_VARIABLE = "GANETI_CONFD", "GANETI_RAPI"
"""Variables that enable confd and the REST server on a node of a virtual cluster if set to 1.

A host always runs both.
"""

START_LIMIT_S = 600.0
"""Time limit of a start: a busy host under emulation may need that long.

A daemon that ends is noticed at once.
"""
STOP_LIMIT_S = 30.0
LOOK_INTERVAL_S = 0.02
OUTPUT_TAIL = 2000
SYSTEMD_RUNS = Path("/run/systemd/system")
UNITS = (Path("/etc/systemd/system"), Path("/lib/systemd/system"))
"""Directories of the daemons' units from `make install` and the package.

Without units a daemon starts as a process.
"""
PASSED_ON = ("PATH", "GANETI_", "PYTHON")
"""Variables, or their prefixes, that a daemon inherits from the command that starts it."""


@dataclass(frozen=True)
class DaemonStatus:
    """The state of a daemon of this node; `process` is None unless it serves."""

    name: str
    process: ProcessIdentity | None
    is_starting: bool = False
    is_ending: bool = False

    @property
    def is_alive(self) -> bool:
        return self.process is not None or self.is_starting or self.is_ending


class Daemons:
    """The daemons of the node whose files are at `paths`."""

    def __init__(
        self,
        paths: Paths,
        *,
        environment: Mapping[str, str] | None = None,
        run: Run = run,
        systemd: bool | None = None,
    ) -> None:
        self._paths = paths
        self._environment = daemon_environment(os.environ if environment is None else environment)
        self._run = run
        is_host = paths.root == Path("/") and SYSTEMD_RUNS.is_dir()
        is_host = is_host and any((place / f"{NODED}.service").exists() for place in UNITS)
        self._systemd = is_host if systemd is None else systemd

    @property
    def has_confd(self) -> bool:
        """Return whether a candidate here runs confd."""
        return self._paths.root == Path("/") or self._environment.get(CONFD_VARIABLE) == "1"

    @property
    def has_rest(self) -> bool:
        """Return whether the master here runs a REST server."""
        return self._paths.root == Path("/") or self._environment.get(RAPI_VARIABLE) == "1"

    def status(self, name: str) -> DaemonStatus:
        path = pid_file(self._paths.run, name)
        process = serving_process(path)
        if process is not None or not is_locked(path):
            return DaemonStatus(name, process)
        ends = is_ending(path)
        return DaemonStatus(name, None, is_starting=not ends, is_ending=ends)

    async def start(self, name: str, arguments: Sequence[str] = ()) -> ProcessIdentity:
        """Start a daemon unless it runs; return it once it serves. HostError with its output if it fails."""
        await self._past_ending(name)
        if process := self.status(name).process:
            return process
        if self._systemd:
            await self._run(["systemctl", "start", f"{name}.service"], timeout_s=START_LIMIT_S)
            await self._check_started(name)
            return await self._serving(name, None)
        words = [sys.executable, "-m", MODULES[name], *arguments]
        pid = await asyncio.to_thread(self._spawn, name, words)
        return await self._serving(name, identity_of(pid))

    async def _check_started(self, name: str) -> None:
        """Raise HostError if systemd has skipped the start: for it, an unmet condition of a unit is no failure."""
        try:
            await self._run(["systemctl", "is-active", "--quiet", f"{name}.service"])
        except HostError as err:
            why = f"systemd did not start {name}; see 'systemctl status {name}'"
            raise HostError(f"{why}, which names an unmet condition of the unit") from err

    async def stop(self, name: str) -> None:
        """End a daemon, also a starting one; kill it if it does not end. Idempotent."""
        if self._systemd:
            await self._run(["systemctl", "stop", f"{name}.service"], timeout_s=STOP_LIMIT_S * 2)
            return
        process = await self._process(name)
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await _ended(process, number):
                return
        raise HostError(f"{name} (process {process.pid}) does not stop")

    async def restart(self, name: str) -> None:
        """End a daemon and start it; it serves when this returns. HostError."""
        await self.stop(name)
        await self.start(name)

    async def _process(self, name: str) -> ProcessIdentity | None:
        """Return the running or starting process.

        A process that has just locked its file writes its id soon.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + STOP_LIMIT_S
        while True:
            process = living_process(pid_file(self._paths.run, name))
            if process or not self.status(name).is_alive or loop.time() >= end:
                return process
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _past_ending(self, name: str) -> None:
        """Wait until an ending daemon is gone, because it would not serve requests."""
        loop = asyncio.get_running_loop()
        end = loop.time() + STOP_LIMIT_S
        while self.status(name).is_ending and loop.time() < end:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _spawn(self, name: str, words: Sequence[str]) -> int:
        self._paths.run.mkdir(parents=True, exist_ok=True)
        self._paths.log.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        output = os.open(self._output(name), flags, 0o640)
        try:
            # The launcher prints the process id and ends at once, so the daemon is not a child of
            # this process.
            launched = subprocess.run(
                ["/bin/sh", "-c", '"$@" >&2 & echo "$!"', "ganeti-launch", *words],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd="/",
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, subprocess.CalledProcessError) as err:
            raise HostError(f"{name} cannot be started: {err}") from err
        finally:
            os.close(output)
        return int(launched.stdout)

    async def _serving(self, name: str, started: ProcessIdentity | None) -> ProcessIdentity:
        """Wait until it serves; without systemd, stop waiting when the process has ended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + START_LIMIT_S
        while loop.time() < end:
            status = self.status(name)
            if status.process:
                return status.process
            # During another start this one ends: each daemon runs once.
            is_ours = not self._systemd and not status.is_alive
            if is_ours and (started is None or identity_of(started.pid) != started):
                raise HostError(f"{name} ended as it started: {self._said(name)}")
            await asyncio.sleep(LOOK_INTERVAL_S)
        if started is not None:
            await _ended(started, signal.SIGKILL)
        raise HostError(f"{name} does not serve after {START_LIMIT_S:g} s: {self._said(name)}")

    def _output(self, name: str) -> Path:
        """Return the daemon's output before, or beside, its log."""
        return self._paths.log / f"{name}.start"

    def _said(self, name: str) -> str:
        if self._systemd:
            return f"see 'journalctl -u {name}'"
        try:
            text = self._output(name).read_text(errors="replace").strip()[-OUTPUT_TAIL:]
        except OSError:
            text = ""
        return text or f"it printed nothing; see {self._paths.log}"


def daemon_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a clean environment with the given variables that locate this node."""
    passed = {name: value for name, value in environment.items() if name.startswith(PASSED_ON)}
    return {**CLEAN_ENVIRONMENT, **passed}


async def _ended(process: ProcessIdentity, number: int) -> bool:
    """Send a signal to exactly this process; return whether it has ended in time."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if identity_of(process.pid) != process:
            return True
        signal.pidfd_send_signal(descriptor, number)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)
        return True
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)
