"""The watchdog process as the node daemon sees it: started when it is needed, and asked for its device (D7)."""

import asyncio
import json
import logging

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import GUARD, Daemons

log = logging.getLogger(__name__)


class WatchdogProcess:
    """It outlives this daemon, and ends by itself when nothing is protected any more."""

    def __init__(self, paths: Paths, daemons: Daemons) -> None:
        self._paths, self._daemons = paths, daemons
        self._start: asyncio.Task[None] | None = None
        self._failure = ""

    def why_unarmed(self) -> str:
        """Return why the machine is not reset if protected guests outlive the lease; '' if it is."""
        process = self._daemons.status(GUARD).process
        if process is None:
            said = f": {self._failure}" if self._failure else ""
            return f"{GUARD} does not run{said}"
        try:
            status = json.loads(self._paths.guard_status.read_bytes())
            if status["pid"] == process.pid:
                return str(status["why_unarmed"])
        except (OSError, ValueError, KeyError, TypeError) as err:
            log.warning("%s: %s", self._paths.guard_status, err)
        return f"{GUARD} has said nothing about its device yet"

    def want(self) -> None:
        """Start it in the background unless it runs."""
        if self._is_missing():
            self._begin().add_done_callback(lambda task: task.cancelled() or task.exception())

    async def ensure(self) -> None:
        """Return once it runs; HostError if it cannot be started."""
        if self._is_missing():
            await asyncio.shield(self._begin())

    async def close(self) -> None:
        if self._start is not None:
            self._start.cancel()
            await asyncio.gather(self._start, return_exceptions=True)

    def _is_missing(self) -> bool:
        return self._daemons.status(GUARD).process is None

    def _begin(self) -> "asyncio.Task[None]":
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(self._run(), name="start the watchdog process")
        return self._start

    async def _run(self) -> None:
        try:
            await self._daemons.start(GUARD)
        except (GanetiError, OSError) as err:
            self._failure = str(err)
            log.error("%s cannot be started: %s", GUARD, err)  # noqa: TRY400 - no fault of this program
            raise HostError(f"{GUARD} cannot be started: {err}") from err
        self._failure = ""
