"""Guests that write nothing for a moment, so that snapshots of all their disks fit together."""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import Held, HoldsGuests
from ganeti.hypervisor.kvm.agents import Agents
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import Consistency

logger = logging.getLogger(__name__)

RUNNING, PAUSED = "running", "paused"
Finish = Callable[[Guest], Awaitable[Guest]]
"""Finishes or reverts what was done to a paused guest, and returns it with its present record."""


@dataclass(frozen=True)
class Holding(HoldsGuests):
    """Pauses guests: QEMU then completes and flushes all writes. Before, an agent freezes the file systems."""

    guests: Guests
    agents: Agents

    @contextlib.asynccontextmanager
    async def held(self, instance: InstanceSpec, limit_s: float) -> AsyncIterator[Held]:
        """Pause the guest for the block, with frozen file systems if its agent answers."""
        held = Held(Consistency.CRASH)
        try:
            if await self.agents.freeze(instance, limit_s):
                held.consistency = Consistency.AGENT
        except HypervisorError as err:
            logger.info("%s is held without its agent: %s", instance.name, err)
        try:
            async with self._paused(instance, limit_s):
                yield held
        finally:
            if held.consistency is Consistency.AGENT and not await self._thawed(instance):
                held.consistency = Consistency.CRASH

    @contextlib.asynccontextmanager
    async def _paused(self, instance: InstanceSpec, limit_s: float) -> AsyncIterator[None]:
        files = self.guests.files(instance.uuid)
        async with self.guests.lock(files), self.paused(self.guests.here(instance), limit_s):
            yield

    @contextlib.asynccontextmanager
    async def paused(
        self, guest: Guest, limit_s: float, *, first: Finish | None = None
    ) -> AsyncIterator[Guest]:
        """Pause a running guest for the block; its lock is held. If this daemon dies, the guest continues in time.

        `first` runs before it continues, also after an error; if it fails, the guest stays paused until
        `resume_in_time` succeeds.
        """
        was = await guest.status()
        if was == RUNNING:
            # Stored before the act, so that the guest continues even if this daemon dies.
            guest = self.guests.change(guest, resume_at=time.time() + limit_s)
        try:
            if was == RUNNING:
                await guest.ask("stop")
            yield guest
        finally:
            if first is not None:
                guest = await first(guest)
            if was == RUNNING:
                await self._resume(guest)

    async def _thawed(self, instance: InstanceSpec) -> bool:
        """Return whether the file systems were frozen until now; a guest may give up earlier."""
        try:
            return await self.agents.thaw(instance) > 0
        except HypervisorError as err:
            logger.warning("%s: %s; it is thawed after its time limit", instance.name, err)
            return False

    async def resume_in_time(
        self,
        files: GuestFiles,
        *,
        at_once: bool = False,
        first: Finish | None = None,
    ) -> None:
        """Let a guest continue that is held for too long; with `at_once` any, because its holder has ended.

        `first` finishes or reverts the work of the holder.
        """
        record = files.read()
        if (
            record is None
            or not record.resume_at
            or (time.time() < record.resume_at and not at_once)
        ):
            return
        async with self.guests.lock(files):
            guest = self.guests.peek(files)
            if guest is not None and guest.record.resume_at:
                logger.warning("%s was held for too long and continues", guest.instance.name)
                if first is not None:
                    guest = await first(guest)
                await self._resume(guest)

    async def _resume(self, guest: Guest) -> None:
        if await guest.status() == PAUSED:
            await guest.ask("cont")
        # The block may have written other facts into the record.
        self.guests.change(self.guests.peek(guest.files) or guest, resume_at=0)
