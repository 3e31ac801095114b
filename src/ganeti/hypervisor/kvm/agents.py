"""The agents in the guests of a node: their reports, and frozen file systems."""

import contextlib
import logging
import time
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import TalksToAgent
from ganeti.hypervisor.kvm.agent import AgentSilent, GuestAgent
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.agent import AgentInfo

logger = logging.getLogger(__name__)


class Agents(TalksToAgent):
    """Reaches the agents of guests that have a channel for one (`use_guest_agent`)."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._known: dict[Path, GuestAgent] = {}

    async def agent_info(self, instance: InstanceSpec) -> AgentInfo | None:
        """Return a guest's report about itself; None if it does not run here, or no agent answers."""
        guest = self._guests.peek(self._guests.files(instance.uuid))
        if guest is None or not _has_channel(guest):
            return None
        try:
            return await self._agent(guest).info()
        except AgentSilent as err:
            logger.info("%s: %s", instance.name, err)
            return None

    async def answers(self, guest: Guest) -> bool | None:
        """Return whether the agent answers; None if the guest has no channel for one."""
        if not _has_channel(guest):
            return None
        try:
            await self._agent(guest).ping()
        except HypervisorError:
            return False
        return True

    async def shutdown(self, guest: Guest) -> None:
        """Ask the agent for a shutdown, if there is one; the caller holds the guest's lock."""
        if _has_channel(guest):
            with contextlib.suppress(HypervisorError):
                await self._agent(guest).shutdown()

    async def set_time(self, guest: Guest) -> None:
        """Set the clock of a guest that continues from an earlier moment, if an agent answers."""
        if _has_channel(guest):
            try:
                await self._agent(guest).set_time(time.time())
            except HypervisorError as err:
                logger.warning("the clock of %s was not set: %s", guest.instance.name, err)

    async def freeze(self, instance: InstanceSpec, limit_s: float) -> int:
        """Freeze a guest's file systems, for at most `limit_s`; return how many."""
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = self._guests.peek(files)
            if guest is None:
                raise HypervisorError(f"{instance.name} does not run on this node")
            if not _has_channel(guest):
                raise HypervisorError(
                    f"{instance.name} has no channel for an agent; to add one at the next start: gnt-instance"
                    f" modify -H use_guest_agent=true {instance.name}"
                )
            await self._agent(guest).ping()  # otherwise a thaw would wait as long as a freeze
            # Stored before the act, so that the guest is thawed in time even if this daemon dies.
            guest = self._guests.change(guest, thaw_at=time.time() + limit_s)
            try:
                return await self._agent(guest).freeze()
            except HypervisorError:
                with contextlib.suppress(HypervisorError):
                    await self._thaw(guest)
                raise

    async def thaw(self, instance: InstanceSpec) -> int:
        """Thaw them; return how many. No-op if the guest is not frozen."""
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = self._guests.peek(files)
            return await self._thaw(guest) if guest is not None and guest.record.thaw_at else 0

    async def thaw_in_time(self, files: GuestFiles) -> None:
        """Thaw a guest after its time limit; an agent that does not answer is called again later."""
        record = files.read()
        if record is not None and 0 < record.thaw_at <= time.time():
            logger.warning("%s was frozen for too long and is thawed", record.instance.name)
            await self.thaw(record.instance)

    async def _thaw(self, guest: Guest) -> int:
        count = await self._agent(guest).thaw()
        self._guests.change(guest, thaw_at=0)
        return count

    def _agent(self, guest: Guest) -> GuestAgent:
        """Return the one agent client for all callers of a guest, so that they take turns."""
        path = guest.files.guest_agent
        return self._known.setdefault(path, GuestAgent(path))


def _has_channel(guest: Guest) -> bool:
    return bool(complete(guest.instance.hvparams)["use_guest_agent"])
