"""The devices of running guests by their names in QEMU: whether a guest has one, and how it loses one."""

import asyncio
import contextlib

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.guests import Guest, complete
from ganeti.hypervisor.kvm.monitor import CommandRefused

LET_GO_S = 60.0
"""The time for a guest to release a device."""
ASK_AGAIN_S = 5.0
"""A booting guest ignores the request to release a device, so the request is repeated."""
LOOK_EVERY_S = 0.1


async def obstacles_of(guest: Guest) -> list[str]:
    """Return the reasons against a change of the guest's devices now, a sentence each."""
    problems = []
    if not complete(guest.instance.hvparams)["acpi"]:
        problems.append("the guest has no ACPI (acpi=false), which hotplug requires")
    status = await guest.status()
    if status != "running":
        problems.append(f"the guest is paused (QEMU reports {status}), so it cannot answer")
    if guest.record.is_incoming:
        problems.append("the guest's migration is not finished")
    return problems


async def check(guest: Guest) -> None:
    """Raise HypervisorError if the guest's devices cannot be changed now."""
    if problems := await obstacles_of(guest):
        raise HypervisorError(f"{guest.instance.name} cannot be changed now: {problems[0]}")


async def device_names(guest: Guest) -> set[str]:
    """Return the names of all devices that have one."""
    found = await guest.ask("qom-list", {"path": "/machine/peripheral"})
    return {str(one["name"]) for one in found}


async def has_device(guest: Guest, name: str) -> bool:
    """Return whether the guest has a device of this name."""
    return name in await device_names(guest)


async def may_have_device(guest: Guest, name: str) -> bool:
    """Return whether a device may exist after a failure."""
    try:
        return await has_device(guest, name)
    except HypervisorError:
        return True


async def unplug(guest: Guest, name: str, what: str, *, deadline: float | None = None) -> None:
    """Request the release of a device, and wait until QEMU has removed it.

    HypervisorError after LET_GO_S, or at `deadline` of the event loop.
    """
    if not await has_device(guest, name):
        return
    await check(guest)
    loop = asyncio.get_running_loop()
    deadline, tell_at = loop.time() + LET_GO_S if deadline is None else deadline, 0.0
    while loop.time() < deadline:
        if loop.time() >= tell_at:
            with contextlib.suppress(CommandRefused):  # requested before
                await guest.ask("device_del", {"id": name})
            tell_at = loop.time() + ASK_AGAIN_S
        # An event would be lost if this daemon ended, and would block other users of the monitor.
        await asyncio.sleep(LOOK_EVERY_S)
        if not await has_device(guest, name):
            return
    raise HypervisorError(
        f"{guest.instance.name} did not release {what} within {LET_GO_S:g} s; if the guest uses it,"
        " release it there, or shut the instance down first"
    )
