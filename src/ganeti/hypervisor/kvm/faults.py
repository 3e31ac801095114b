"""Guests that crashed, panicked or hang.

A crash is a QEMU that ended without a request of the cluster. QEMU pauses a guest that panicked, or that stopped
petting its watchdog, in a run state of its own, which stays until the guest is ended or reset: a new node daemon sees
it, too.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.abilities import NoticesFaults, Sighting
from ganeti.hypervisor.kvm.agents import Agents
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.model.recovery import GuestFault

LOOK_S = 2.0
"""The time for a QEMU to report its state."""
PINGS = 4
"""How often an agent is asked within its timeout."""
FAILED = {
    "guest-panicked": GuestFault.PANICKED,
    "internal-error": GuestFault.HUNG,
    "watchdog": GuestFault.HUNG,
}
"""QEMU's run states that only an end or a reset of the guest leaves."""


@dataclass
class _Agent:
    """What is known of the agent in one guest; monotonic times."""

    answered_at: float | None = None
    """None before its first answer."""
    asked_at: float = float("-inf")


class Faults(NoticesFaults):
    """Notices the failed guests of a node."""

    def __init__(
        self, guests: Guests, agents: Agents, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._guests, self._agents, self._now = guests, agents, now
        self._found: dict[ProcessId, GuestFault] = {}
        self._answers: dict[ProcessId, _Agent] = {}

    def seen(self, wanted: Collection[str]) -> dict[str, Sighting]:
        ended = self._guests.ended_alone
        for uuid in ended.keys() - set(wanted):
            del ended[uuid]
        found = {uuid: self._sighting(uuid) for uuid in wanted}
        return {uuid: one for uuid, one in found.items() if one is not None}

    async def look(self, wanted: Collection[str]) -> None:
        guests = [guest for uuid in wanted if (guest := self._live(uuid)) is not None]
        processes = {guest.record.process for guest in guests}
        self._found = {one: fault for one, fault in self._found.items() if one in processes}
        self._answers = {one: agent for one, agent in self._answers.items() if one in processes}
        await asyncio.gather(*(self._ask(guest) for guest in guests if _reports(guest)))

    def of(self, guest: Guest) -> GuestFault | None:
        """Return the fault of a live guest."""
        return self._found.get(guest.record.process)

    def forget(self, guest: Guest) -> None:
        """Begin again, because the guest was reset in the same process."""
        self._found.pop(guest.record.process, None)
        self._answers.pop(guest.record.process, None)

    def _live(self, uuid: str) -> Guest | None:
        try:
            return self._guests.peek(self._guests.files(uuid))
        except HypervisorError:
            return None

    def _sighting(self, uuid: str) -> Sighting | None:
        files = self._guests.files(uuid)
        try:
            record = files.read()
        except HypervisorError:
            return Sighting("")  # damaged: nobody knows whether its guest runs
        if record is None:
            name = self._guests.ended_alone.get(uuid)
            return Sighting(name, GuestFault.CRASHED) if name is not None else None
        guest = self._live(uuid)
        if guest is not None:
            return Sighting(record.instance.name, self.of(guest))
        return None if record.is_incoming else Sighting(record.instance.name, GuestFault.CRASHED)

    async def _ask(self, guest: Guest) -> None:
        """Ask one guest; one that a job works on is left to that job."""
        lock, process = self._guests.lock(guest.files), guest.record.process
        if lock.locked():
            return
        try:
            status = await guest.status(timeout_s=LOOK_S)
        except HypervisorError:
            return  # its process tells whether it has ended
        fault = FAILED.get(status)
        if fault is None and status == "running" and await self._is_silent(guest):
            fault = GuestFault.HUNG
        if fault is not None and not lock.locked():
            self._found[process] = fault
        else:
            self._found.pop(process, None)

    async def _is_silent(self, guest: Guest) -> bool:
        """Return whether the agent has answered before, and has not for its timeout."""
        timeout_s = int(complete(guest.instance.hvparams)["guest_agent_timeout"])
        if not timeout_s:
            return False
        one = self._answers.setdefault(guest.record.process, _Agent())
        if self._now() - one.asked_at >= timeout_s / PINGS:
            one.asked_at = self._now()
            if await self._agents.answers(guest):
                one.answered_at = self._now()
        return one.answered_at is not None and self._now() - one.answered_at >= timeout_s


def _reports(guest: Guest) -> bool:
    """Return whether the guest has a device or an agent that reports faults; others cost nothing."""
    hvparams = complete(guest.instance.hvparams)
    return bool(
        hvparams["watchdog"] != "none" or hvparams["pvpanic"] or hvparams["guest_agent_timeout"]
    )
