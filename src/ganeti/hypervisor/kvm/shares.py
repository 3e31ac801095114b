"""The memory that a node takes from its guests, and gives back."""

import contextlib
import time
from collections.abc import Sequence

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import GuestAmount, SharesMemory
from ganeti.hypervisor.kvm.command_line import BALLOON
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.kvm.memory import MIB, GuestMemory
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.rpc.procedures.instances import Lowered

POLL_S = 5
"""QEMU asks the guest's balloon driver for its figures in this interval."""
_BALLOON = f"/machine/peripheral/{BALLOON}"


class Shares(SharesMemory):
    """Changes guests under their locks."""

    def __init__(self, guests: Guests, memory: GuestMemory) -> None:
        self._guests, self._memory = guests, memory

    async def amounts(self, *, everyone: bool) -> Sequence[GuestAmount]:
        found = [
            await self._amount(files, everyone=everyone) for files in list(self._guests.known())
        ]
        return [one for one in found if one is not None]

    async def set_share(self, uuid: str, memory: int, goal: int) -> None:
        files = self._guests.files(uuid)
        async with self._guests.lock(files):
            guest = self._guests.peek(files)
            if guest is None or not _may_change(guest):
                return
            lowered = guest.record.lowered
            before = lowered.before if lowered else guest.memory
            if memory < guest.memory:
                lowered = Lowered(
                    before=before, since=lowered.since if lowered else time.time(), goal=goal
                )
                # Before QEMU is asked: after any end of this daemon the next one gives the memory back.
                guest = self._guests.change(guest, lowered=lowered)
            await self._memory.set_amount(guest, memory)
            guest = self._guests.here(guest.instance)
            if guest.memory >= before:
                self._guests.change(guest, lowered=None)

    async def _amount(self, files: GuestFiles, *, everyone: bool) -> GuestAmount | None:
        guest = self._guests.peek(files)
        if guest is None or not _may_change(guest) or not (everyone or guest.record.lowered):
            return None
        try:
            if await guest.status() != "running":
                return None
            if guest.record.lowered:
                guest = await self._corrected(files)
                if guest is None:
                    return None
            used = await _used(guest) if everyone else None
        except HypervisorError:
            return None
        lowered = guest.record.lowered
        return GuestAmount(
            uuid=guest.instance.uuid,
            name=guest.instance.name,
            memory=guest.memory,
            before=max(lowered.before, guest.memory) if lowered else guest.memory,
            used=used,
        )

    async def _corrected(self, files: GuestFiles) -> Guest | None:
        """Return the guest with a correct record: an earlier change may have lost its answer."""
        async with self._guests.lock(files):
            guest = self._guests.peek(files)
            if guest is None or guest.record.lowered is None:
                return guest
            before = guest.record.lowered.before
            guest = await self._memory.reconciled(guest)
            return self._guests.change(guest, lowered=None) if guest.memory >= before else guest


def _may_change(guest: Guest) -> bool:
    record = guest.record
    return not (record.is_adopted or record.is_incoming or record.stopped_to_move)


async def _used(guest: Guest) -> int | None:
    """Return the MiB that the guest's own system uses; None if its balloon driver does not report it."""
    polled = {"path": _BALLOON, "property": "guest-stats-polling-interval"}
    if not await guest.ask("qom-get", polled):
        await guest.ask("qom-set", {**polled, "value": POLL_S})
    with contextlib.suppress(KeyError, TypeError):
        found = await guest.ask("qom-get", {"path": _BALLOON, "property": "guest-stats"})
        total, free = found["stats"]["stat-total-memory"], found["stats"]["stat-available-memory"]
        if found["last-update"] and 0 <= free <= total:  # an unknown figure is the greatest number
            return int(total - free) // MIB
    return None
