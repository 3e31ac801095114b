"""Addition and removal of processors while the guest runs.

The record has an added processor before QEMU has it, and until QEMU has lost it (see `positions`).
"""

import asyncio
import contextlib
import os
from collections.abc import Collection

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.devices import (
    LET_GO_S,
    check,
    device_names,
    may_have_device,
    unplug,
)
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.hypervisor.kvm.pinning import mask_problem, pin
from ganeti.hypervisor.kvm.positions import added_name, free_position, plug

NOT_REMOVED_FROM = frozenset(("tcg",))
"""Accelerators with which QEMU 7.2 ends later, for example in a migration, if it has removed a processor."""


class Processors:
    """Changes the number of a guest's processors; the caller holds the guest's lock."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    async def set_count(self, guest: Guest, count: int) -> int:
        """Add or remove processors until there are `count`; a failed change leaves the guest unchanged."""
        guest = self.reconciled(guest, await device_names(guest))
        before = guest.vcpus
        if before == count:
            return count
        await check(guest)
        self._check_count(guest, count)
        try:
            guest = await self._change(guest, count)
            mask = str(complete(guest.instance.hvparams)["cpu_mask"])
            await pin(guest.ask, guest.record.pid, mask, count)
        except BaseException:
            with contextlib.suppress(HypervisorError):  # the undo of the job repeats this
                await self._change(self._guests.here(guest.instance), before)
            raise
        return count

    def reconciled(self, guest: Guest, present: Collection[str]) -> Guest:
        """Return the guest with a record of the processors that it has; `present` are the names of its devices."""
        added = tuple(one for one in guest.record.added_cpus if added_name(one) in present)
        return guest if added == guest.record.added_cpus else self._recorded(guest, added)

    def _check_count(self, guest: Guest, count: int) -> None:
        name, least, most = guest.instance.name, guest.instance.vcpus, guest.most_vcpus
        if not least <= count <= most:
            raise HypervisorError(
                f"{name} can have {least} to {most} processors until its next start, not {count}"
            )
        mask = str(complete(guest.instance.hvparams)["cpu_mask"])
        if problem := mask_problem(mask, count, os.sched_getaffinity(0)):
            raise HypervisorError(f"{name}: {problem}")

    async def _change(self, guest: Guest, count: int) -> Guest:
        deadline = asyncio.get_running_loop().time() + LET_GO_S
        while guest.vcpus < count:
            guest = await self._add(guest)
        if guest.vcpus > count and guest.record.accelerator in NOT_REMOVED_FROM:
            raise HypervisorError(
                f"{guest.instance.name} is emulated (no KVM), so it keeps its {guest.vcpus} processors until its"
                " next start"
            )
        while guest.vcpus > count:
            position = max(guest.record.added_cpus)
            what = f"processor {position}"
            await unplug(guest, added_name(position), what, deadline=deadline)
            left = tuple(one for one in guest.record.added_cpus if one != position)
            guest = self._recorded(guest, left)
        return guest

    async def _add(self, guest: Guest) -> Guest:
        before = guest.record.added_cpus
        position = free_position(before, guest.instance.vcpus, guest.most_vcpus)
        guest = self._recorded(guest, (*before, position))
        try:
            await plug(guest.ask, position)
        except BaseException:
            if not await may_have_device(guest, added_name(position)):
                self._recorded(guest, before)
            raise
        return guest

    def _recorded(self, guest: Guest, positions: tuple[int, ...]) -> Guest:
        return self._guests.change(guest, added_cpus=positions)
