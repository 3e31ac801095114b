"""The memory of a running guest: less by its balloon, more by virtio-mem.

The guest has one amount. Below the memory of its start the balloon holds the rest; above it, virtio-mem has added some
of the reserve (`machine.reserve_mib`). QEMU migrates both with the guest.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.devices import LOOK_EVERY_S
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.hypervisor.kvm.machine import ADDED_MEMORY, BLOCK_MIB, reserve_mib
from ganeti.hypervisor.kvm.monitor import Ask

MIB = 1024 * 1024
BALLOON_S = 10.0
"""The time for which returned memory is observed; the guest continues afterwards."""
PLUG_S = 30.0
"""The time for a guest to use added memory."""


def split(wanted: int, at_start: int, reserve: int) -> tuple[int, int]:
    """Return the balloon's amount, and the amount that is added, for a wanted total; all in MiB."""
    more = min(max(0, wanted - at_start), reserve)
    return min(wanted, at_start), more // BLOCK_MIB * BLOCK_MIB


def reserve_of(guest: Guest) -> int:
    """Return the MiB that the guest can get above those of its start."""
    return reserve_mib(guest.instance, complete(guest.instance.hvparams))


def why_not_live(guest: Guest) -> str:
    """Return why a live migration could lose what the guest writes; '' if it cannot.

    Under emulation QEMU 7.2 misses writes to memory that it can scan in whole words of its dirty bitmap, as it can
    added memory (see `machine.memory_words`).
    """
    if guest.record.accelerator == "tcg" and guest.memory > guest.instance.memory:
        return (
            f"{guest.instance.name} is emulated (no KVM) and has {guest.memory - guest.instance.memory} MiB of added"
            " memory, which cannot move while the guest runs"
        )
    return ""


class GuestMemory:
    """Changes the memory of a guest; the caller holds the guest's lock."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    async def set_amount(self, guest: Guest, wanted: int) -> int:
        """Request an amount in MiB, and return the amount after a while; HypervisorError if the guest takes no more.

        A guest that gives memory back slowly continues afterwards.
        """
        reserve = reserve_of(guest)
        kept, more = split(wanted, guest.instance.memory, reserve)
        # The balloon would fill added memory, too, so that the guest could not give that back: it comes last.
        if reserve:
            await self._set_added(guest, more)
        await guest.ask("balloon", {"value": kept * MIB})
        balloon = await _reached(kept, lambda: _balloon(guest.ask), BALLOON_S)
        actual = balloon + (await _property(guest.ask, "size") if reserve else 0)
        self._guests.change(guest, memory=actual)
        return actual

    async def _set_added(self, guest: Guest, wanted: int) -> None:
        before = await _property(guest.ask, "requested-size")
        if wanted != before:
            await _request(guest.ask, wanted)
        limit_s = PLUG_S if wanted > before else BALLOON_S
        added = await _reached(wanted, lambda: _property(guest.ask, "size"), limit_s)
        if added < wanted:
            await _request(guest.ask, before)
            raise HypervisorError(
                f"{guest.instance.name} used {added} of {wanted} MiB within {PLUG_S:g} s; its system needs a driver of"
                " virtio-mem (Linux 5.8 or later), and must use added memory at once (memhp_default_state=online)"
            )

    async def reconciled(self, guest: Guest) -> Guest:
        """Return the guest with a record of the memory that it has."""
        reserve = reserve_of(guest)
        if not reserve and not guest.record.lowered:
            return guest  # only explicit requests change its balloon
        added = await _property(guest.ask, "size") if reserve else 0
        actual = await _balloon(guest.ask) + added
        return guest if actual == guest.memory else self._guests.change(guest, memory=actual)


async def _reached(wanted: int, amount: Callable[[], Awaitable[int]], limit_s: float) -> int:
    """Return an amount once it is as wanted, or after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        found = await amount()
        if found == wanted or loop.time() >= deadline:
            return found
        await asyncio.sleep(LOOK_EVERY_S)


async def _balloon(ask: Ask) -> int:
    # An emulated guest is started with slightly less than a whole MiB (`machine.memory_words`).
    return -(-int((await ask("query-balloon"))["actual"]) // MIB)


async def _property(ask: Ask, name: str) -> int:
    found = await ask("qom-get", {"path": f"/machine/peripheral/{ADDED_MEMORY}", "property": name})
    return int(found) // MIB


async def _request(ask: Ask, mib: int) -> None:
    path = f"/machine/peripheral/{ADDED_MEMORY}"
    await ask("qom-set", {"path": path, "property": "requested-size", "value": mib * MIB})
