"""The devices and disks of running guests in QEMU: whether a guest has one, and how it gets and loses one."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.command_line import DiskBackend
from ganeti.hypervisor.kvm.disks import opened
from ganeti.hypervisor.kvm.guests import Guest, complete
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.model.instance_spec import DiskSpec

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


async def add_nodes(
    guest: Guest,
    disk: DiskSpec,
    backend: DiskBackend,
    fdset: int,
    nodes: Sequence[Mapping[str, Any]],
) -> None:
    """Let QEMU open a disk: the first node is the storage, the others are above it. HypervisorError.

    QEMU gets a file as a descriptor, in the set `fdset`, because it may be confined. It connects to other storage itself.
    """
    commands = [("blockdev-add", one) for one in nodes]
    if backend.remote is None:
        with opened(backend.path, read_only=disk.mode == "ro") as file:
            await guest.ask.with_files([file], [("add-fd", {"fdset-id": fdset}), *commands])
        return
    _check_may_connect(guest, disk)
    for name, node in commands:
        try:
            await guest.ask(name, node)
        except CommandRefused as err:
            if "Unknown driver" not in str(err):
                raise
            raise HypervisorError(
                f"QEMU cannot open disk {disk.index} itself ({err}); install qemu-block-extra on this node, or use"
                " access=kernelspace"
            ) from err


def _check_may_connect(guest: Guest, disk: DiskSpec) -> None:
    """Refuse storage whose configuration, keys and program code a confined QEMU can only read at its start."""
    hvparams = complete(guest.instance.hvparams)
    if hvparams["use_chroot"] or hvparams["security_model"] != "none":
        raise HypervisorError(
            f"disk {disk.index} has access=userspace, and the QEMU of {guest.instance.name} is confined (use_chroot or"
            " security_model), so it can open such a disk only when it starts; use access=kernelspace, or change the"
            " disk while the instance is down"
        )


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
