"""Restarts the host at once without its disk: starts no program and opens no file on a disk (S31, S32)."""

import asyncio
import ctypes
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from ganeti.base.errors import HostError, NotMaster
from ganeti.base.paths import Paths
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.power import NODE_POWERCYCLE, PowercycleResult

DELAY_S = 5
"""Long enough for the answer to reach the master, in seconds."""
TRIGGER = "/proc/sysrq-trigger"
RESTART_NOW = b"b"
RB_AUTOBOOT = 0x01234567

# Loaded now, because the disk may have failed when it is needed.
_libc = ctypes.CDLL(None, use_errno=True)

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
    """Return the restart function of this node.

    A virtual node only has a trigger of its own below its root, and never the host's.
    """
    trigger = paths.below(TRIGGER)
    if paths.root == Path("/"):
        return Powercycle(check_master, lambda: restart_host(trigger, _reboot))

    def why_impossible() -> str:
        return "" if trigger.exists() else f"a virtual node without {trigger} cannot be restarted"

    return Powercycle(
        check_master, lambda: restart_host(trigger, None), why_impossible=why_impossible
    )


def restart_host(trigger: Path, reboot: Callable[[], None] | None) -> None:
    """Ask the kernel by its trigger file, and by a system call if that fails."""
    try:
        descriptor = os.open(trigger, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, RESTART_NOW)
        finally:
            os.close(descriptor)
    except OSError as err:
        log.critical("%s: %s", trigger, err.strerror)
        if reboot is not None:
            reboot()


def _reboot() -> None:
    """Restart without syncing disks: a hanging disk would block the restart."""
    if _libc.reboot(RB_AUTOBOOT):
        log.critical("cannot restart the host: %s", os.strerror(ctypes.get_errno()))
