"""The disks of a running guest as they were at one moment, read for a backup while the guest writes on.

    disk <- copy-before-write <- the guest's device
            copies old blocks to a temporary file before the guest's first write to each of them
            a view of the moment, from both, is an export of QEMU's NBD server at a socket of the node

A bitmap in QEMU records the blocks that the guest has changed since the backup of its name, so the next one reads only
these. The reader discards what it has read, so that the guest's later writes there are not copied.
The temporary file has no name and ends with QEMU. If it cannot take a block, the view breaks and the guest
writes on: it never gets an error and never waits longer than CBW_TIMEOUT_S.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import Moment, ShowsMoments
from ganeti.hypervisor.kvm.command_line import node_name
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.kvm.holding import Holding
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.model.instance_spec import DiskSpec, InstanceSpec

CBW_TIMEOUT_S = 10
"""The longest time that a write of the guest waits for the copy of old blocks."""
BLOCK = 64 * 1024
_FDSET_BASE = 40_000
_SERVER = "moment-socket"
_VIEW, _FILTER, _OLD = "view", "before", "old"
"""Kinds of nodes in QEMU, with the disk's UUID."""


@dataclass(frozen=True)
class Moments(ShowsMoments):
    """Shows moments of guests that this driver has started."""

    paths: Paths
    guests: Guests
    holding: Holding

    async def begin(
        self, instance: InstanceSpec, *, base: str, bitmap: str, limit_s: float
    ) -> Moment:
        guest = self.guests.here(instance).own("be copied while it runs")
        disks = guest.instance.disks
        for disk in disks:
            if disk.mode != "rw":
                raise HypervisorError(
                    f"disk {disk.index} is read-only and cannot be copied while the guest runs"
                )
        await self._clear(guest, disks)
        path = guest.files.moment
        try:
            has_base = bool(base) and await _have(guest, disks, base)
            await self._prepare(guest, disks, path)
            async with self.holding.held(instance, limit_s) as held, guest.ask.conversation():
                for disk in disks:
                    await _insert(guest, disk, base if has_base else "")
                await _switch(guest, disks, base if has_base else "", bitmap)
                for disk in disks:
                    await _show(guest, disk, base if has_base else "")
        except BaseException:
            await asyncio.shield(self.end(instance, base=base, bitmap=bitmap, keep=False))
            raise
        return Moment(held.consistency, path, has_base)

    async def _prepare(self, guest: Guest, disks: Sequence[DiskSpec], path: Path) -> None:
        """Give QEMU the temporary files and the socket."""
        work = self.paths.image_work
        await asyncio.to_thread(work.mkdir, mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as opened:
            files, handed = list[int](), list[tuple[str, dict[str, Any]]]()
            then = list[tuple[str, dict[str, Any]]]()
            for number, disk in enumerate(disks):
                descriptor = os.open(work, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
                opened.callback(os.close, descriptor)
                os.ftruncate(descriptor, await _size(guest, disk))
                files.append(descriptor)
                fdset = _FDSET_BASE + number
                handed.append(("add-fd", {"fdset-id": fdset}))
                then.append(("blockdev-add", _old_content(disk, fdset)))
            listener = opened.enter_context(_listening(path))
            files.append(listener.fileno())
            handed.append(("getfd", {"fdname": _SERVER}))
            address = {"type": "fd", "data": {"str": _SERVER}}
            then.append(("nbd-server-start", {"addr": address}))
            await guest.ask.with_files(files, [*handed, *then])

    async def end(self, instance: InstanceSpec, *, base: str, bitmap: str, keep: bool) -> None:
        files = self.guests.files(instance.uuid)
        async with self.guests.lock(files):
            guest = self.guests.peek(files)
            if guest is None:
                return
            disks = guest.instance.disks
            await self._clear(guest, disks)
            async with guest.ask.conversation():
                for disk in disks:
                    await _settle(guest, disk, base, bitmap, keep=keep)

    async def _clear(self, guest: Guest, disks: Sequence[DiskSpec]) -> None:
        """Let the guest use its disks directly again. Idempotent."""
        ask = guest.ask
        async with ask.conversation():
            known = {
                one["node-name"] for one in await ask("query-named-block-nodes", {"flat": True})
            }
            for disk in disks:
                with contextlib.suppress(CommandRefused):
                    await ask("block-export-del", {"id": node_name(_VIEW, disk), "mode": "hard"})
            with contextlib.suppress(CommandRefused):
                await ask("nbd-server-stop")
            for disk in disks:
                if node_name(_VIEW, disk) in known:
                    await _removed(guest, node_name(_VIEW, disk))
                if node_name(_FILTER, disk) in known:
                    await _use(guest, disk, node_name("disk", disk))
                    await _removed(guest, node_name(_FILTER, disk))
                if node_name(_OLD, disk) in known:
                    await _removed(guest, node_name(_OLD, disk))
            for one in await ask("query-fdsets"):
                if one["fdset-id"] >= _FDSET_BASE:
                    with contextlib.suppress(CommandRefused):
                        await ask("remove-fd", {"fdset-id": one["fdset-id"]})
        guest.files.moment.unlink(missing_ok=True)


def _old_content(disk: DiskSpec, fdset: int) -> dict[str, Any]:
    """Return the node of a temporary file, which gives back the space of what was read."""
    discard = {"discard": "unmap"}
    file = {"driver": "file", "filename": f"/dev/fdset/{fdset}", **discard}
    return {"driver": "raw", "node-name": node_name(_OLD, disk), "file": file, **discard}


def _listening(path: Path) -> socket.socket:
    """Listen at a socket for root alone."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener


async def _size(guest: Guest, disk: DiskSpec) -> int:
    """Return the size of a disk as QEMU sees it."""
    for one in await guest.ask("query-named-block-nodes", {"flat": True}):
        if one["node-name"] == node_name("disk", disk):
            return int(one["image"]["virtual-size"])
    raise HypervisorError(f"QEMU does not know disk {disk.index}")


async def _bitmaps(guest: Guest, disk: DiskSpec) -> dict[str, dict[str, Any]]:
    """Return the usable bitmaps of a disk, by name."""
    for one in await guest.ask("query-named-block-nodes", {"flat": True}):
        if one["node-name"] == node_name("disk", disk):
            found = one.get("dirty-bitmaps", ())
            return {bitmap["name"]: bitmap for bitmap in found if not bitmap.get("inconsistent")}
    return {}


async def _have(guest: Guest, disks: Sequence[DiskSpec], bitmap: str) -> bool:
    """Return whether every disk has recorded all its changes in a bitmap."""
    for disk in disks:
        found = (await _bitmaps(guest, disk)).get(bitmap)
        if found is None or not found["recording"]:
            return False
    return True


async def _insert(guest: Guest, disk: DiskSpec, base: str) -> None:
    """Put the filter between a disk and the guest's device."""
    node: dict[str, Any] = {
        "driver": "copy-before-write",
        "node-name": node_name(_FILTER, disk),
        "file": node_name("disk", disk),
        "target": node_name(_OLD, disk),
        "on-cbw-error": "break-snapshot",
        "cbw-timeout": CBW_TIMEOUT_S,
    }
    if base:
        node["bitmap"] = {"node": node_name("disk", disk), "name": base}
    await guest.ask("blockdev-add", node)
    await _use(guest, disk, node_name(_FILTER, disk))


async def _use(guest: Guest, disk: DiskSpec, node: str) -> None:
    path = f"/machine/peripheral/{device_id('disk', disk.uuid)}"
    await guest.ask("qom-set", {"path": path, "property": "drive", "value": node})


async def _switch(guest: Guest, disks: Sequence[DiskSpec], base: str, bitmap: str) -> None:
    """Begin to record changes in a new bitmap, for all disks at once; the former one stays as it is."""
    actions: list[dict[str, Any]] = []
    for disk in disks:
        node = node_name("disk", disk)
        new = {"node": node, "name": bitmap, "granularity": BLOCK}
        actions.append({"type": "block-dirty-bitmap-add", "data": new})
        if base:
            old = {"node": node, "name": base}
            actions.append({"type": "block-dirty-bitmap-disable", "data": old})
    await guest.ask("transaction", {"actions": actions})


async def _show(guest: Guest, disk: DiskSpec, base: str) -> None:
    """Export the view of a disk, with the bitmap of its changes.

    It is writable for one request: to discard what was read (`NbdReader`). The view refuses writes.
    """
    view = node_name(_VIEW, disk)
    access = {
        "driver": "snapshot-access",
        "node-name": view,
        "file": node_name(_FILTER, disk),
        "discard": "unmap",  # otherwise QEMU ignores discards, and reports success
    }
    await guest.ask("blockdev-add", access)
    export: dict[str, Any] = {
        "type": "nbd", "id": view, "node-name": view, "name": disk.uuid, "writable": True
    }  # fmt: skip
    if base:
        export["bitmaps"] = [{"node": node_name("disk", disk), "name": base}]
    await guest.ask("block-export-add", export)


async def _removed(guest: Guest, node: str) -> None:
    await guest.ask("blockdev-del", {"node-name": node})


async def _settle(guest: Guest, disk: DiskSpec, base: str, bitmap: str, *, keep: bool) -> None:
    """Keep the bitmap that belongs to a backup: the new one, or the former one with all later changes."""
    known, node = await _bitmaps(guest, disk), node_name("disk", disk)
    gone = base if keep else bitmap
    if not keep and base in known and bitmap in known and not known[base]["recording"]:
        old, new = {"node": node, "name": base}, {"node": node, "target": base, "bitmaps": [bitmap]}
        actions = [
            {"type": "block-dirty-bitmap-enable", "data": old},
            {"type": "block-dirty-bitmap-merge", "data": new},
        ]
        await guest.ask("transaction", {"actions": actions})
    if gone in known:
        await guest.ask("block-dirty-bitmap-remove", {"node": node, "name": gone})
