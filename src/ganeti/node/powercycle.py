"""Answers the call that restarts the host (S31, S32)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from ganeti.base.errors import HostError, NotMaster
from ganeti.base.paths import Paths
from ganeti.node.host_restart import TRIGGER, restart_of
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.power import NODE_POWERCYCLE, PowercycleResult

DELAY_S = 5
"""Long enough for the answer to reach the master, in seconds."""

log = logging.getLogger(__name__)


class Powercycle:
    """Answers the call; `restart` acts some seconds later."""

    def __init__(
        self,
        check_master: Callable[[int, str], Awaitable[str | None]],
        restart: Callable[[], None],
        *,
        why_impossible: Callable[[], str] = str,
        delay_s: float = DELAY_S,
    ) -> None:
        self._check_master = check_master
        self._restart = restart
        self._why_impossible = why_impossible
        self._delay_s = delay_s

    def handlers(self) -> Handlers:
        return {NODE_POWERCYCLE.name: self.powercycle}

    async def powercycle(self, _args: Nothing, call: Call) -> PowercycleResult:
        """Restart the host soon; NotMaster unless the caller is the master, as far as this node knows."""
        if why := await self._check_master(call.epoch, call.master_uuid):
            raise NotMaster(why)
        if why := self._why_impossible():
            raise HostError(why)
        log.critical(
            "the master requested a restart of this host: restarting in %g s", self._delay_s
        )
        asyncio.get_running_loop().call_later(self._delay_s, self._restart)
        return PowercycleResult(delay_s=self._delay_s)


def host_powercycle(
    paths: Paths, check_master: Callable[[int, str], Awaitable[str | None]]
) -> Powercycle:
    """Return the handler of this node; a virtual node needs a trigger below its root."""
    trigger = paths.below(TRIGGER)

    def why_impossible() -> str:
        is_possible = paths.root == Path("/") or trigger.exists()
        return "" if is_possible else f"a virtual node without {trigger} cannot be restarted"

    return Powercycle(check_master, restart_of(paths), why_impossible=why_impossible)
