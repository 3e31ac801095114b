"""Addition and removal of devices while the guest runs.

QEMU gets every file as an open descriptor, never as a name, because a confined one can open nothing. The guest's record
is written before a device is added, and after one was removed, so it never lacks a device of the guest;
`reconciled` removes devices that do not exist.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.hotplug import Hotplug, with_disk, with_nic, without_disk, without_nic
from ganeti.hypervisor.kvm.command_line import (
    backend_nodes,
    disk_device,
    file_nodes,
    netdev_id,
    nic_device,
    nic_queues,
    node_name,
)
from ganeti.hypervisor.kvm.devices import (
    LOOK_EVERY_S,
    add_nodes,
    check,
    device_names,
    has_device,
    may_have_device,
    obstacles_of,
    unplug,
)
from ganeti.hypervisor.kvm.disks import resolve_disks
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.hypervisor.kvm.images import EMPTY
from ganeti.hypervisor.kvm.media import change_medium
from ganeti.hypervisor.kvm.memory import MIB, GuestMemory, reserve_of
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.hypervisor.kvm.network import connect_tap, make_taps, remove_taps, tap_name
from ganeti.hypervisor.kvm.pci_slots import device_id, free_slot
from ganeti.hypervisor.kvm.processors import Processors
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.hypervisor.kvm.taps import disconnect_commands, open_tap, open_vhost
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.limits import MAX_DISKS, MAX_NICS
from ganeti.rpc.procedures.devices import GuestLimits

CLOSE_S = 10.0
"""The time for QEMU to close a disk whose device is gone."""

_FDSET_BASE = 0x47000
"""Sets of descriptors for disks are numbered from here, different from all others."""


class KvmHotplug(Hotplug):
    """Adds devices to, and removes them from, running QEMU processes."""

    def __init__(self, paths: Paths, run: Run, guests: Guests) -> None:
        self._paths, self._run, self._guests = paths, run, guests
        self._processors = Processors(guests)
        self.memory = GuestMemory(guests)

    async def obstacles(self, instance: InstanceSpec) -> list[str]:
        guest = self._guests.peek(self._guests.files(instance.uuid))
        return [] if guest is None else await obstacles_of(guest)

    async def add_disk(self, instance: InstanceSpec, disk: DiskSpec, path: str) -> None:
        async with self._guest(instance) as guest:
            if guest is None:
                return
            await check(guest)
            if complete(guest.instance.hvparams)["disk_type"] == "ide":
                raise HypervisorError("IDE disks (disk_type=ide) cannot be hotplugged")
            if await has_device(guest, device_id("disk", disk.uuid)):
                return
            await self._add_disk(self._record_disk(guest, disk), disk, path)

    async def remove_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        async with self._guest(instance) as guest:
            if guest is None:
                return
            await unplug(guest, device_id("disk", disk.uuid), f"disk {disk.index}")
            await self._drop_nodes(guest, disk)
            self._forget(guest, without_disk(guest.instance, disk.uuid), disk.uuid)

    async def resize_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        async with self._guest(instance) as guest:
            if guest is None or disk.uuid not in {one.uuid for one in guest.instance.disks}:
                return
            size = {"node-name": node_name("disk", disk), "size": disk.size * MIB}
            await guest.ask("block_resize", size)
            mine = next(one for one in guest.instance.disks if one.uuid == disk.uuid)
            self._change(guest, with_disk(guest.instance, replace(mine, size=disk.size)))

    async def add_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        async with self._guest(instance) as guest:
            if guest is None:
                return
            await check(guest)
            if not await has_device(guest, device_id("nic", nic.uuid)):
                await self._add_nic(guest, nic)

    async def remove_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        async with self._guest(instance) as guest:
            if guest is not None:
                await self._remove_nic(guest, nic)

    async def change_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        async with self._guest(instance) as guest:
            if guest is None:
                return
            present = next((one for one in guest.instance.nics if one.uuid == nic.uuid), None)
            if present is None:  # it comes with the next start
                return
            if present.mac == nic.mac:
                for command in disconnect_commands(self._tap(nic), present):
                    await self._run(command, check=False)
                await connect_tap(self._run, self._tap(nic), nic, guest.instance, self._paths.etc)
                self._change(guest, with_nic(guest.instance, nic))
                return
            await check(guest)
            try:
                await self._add_nic(await self._remove_nic(guest, present), nic)
            except HypervisorError as err:
                await self._put_back(guest.files, present, err)
                raise

    async def change_medium(self, instance: InstanceSpec, drive: str) -> bool:
        async with self._guest(instance) as guest:
            if guest is None:
                return True
            if guest.record.is_incoming:
                raise HypervisorError(f"{instance.name}: its migration is not finished")
            now = complete(guest.instance.hvparams)
            wanted = complete(instance.hvparams)
            image = wanted[drive]
            given = {**now, drive: image, "image_directories": wanted["image_directories"]}
            if not now[drive] or not await change_medium(guest.ask, drive, given):
                return False
            # Not "no drive": the guest keeps it, and QEMU on another node must create it, too.
            own = {**guest.instance.hvparams, drive: image or EMPTY}
            self._change(guest, replace(guest.instance, hvparams=own))
            return True

    async def limits(self, instance: InstanceSpec) -> GuestLimits:
        guest = self._guests.peek(self._guests.files(instance.uuid))
        if guest is None or guest.record.is_adopted:
            return GuestLimits()
        return GuestLimits(
            least_vcpus=guest.instance.vcpus,
            most_vcpus=guest.most_vcpus,
            most_memory=guest.instance.memory + reserve_of(guest),
        )

    async def set_vcpus(self, instance: InstanceSpec, count: int) -> int:
        async with self._guest(instance) as guest:
            return 0 if guest is None else await self._processors.set_count(guest, count)

    async def set_memory(self, instance: InstanceSpec, memory_mib: int) -> int:
        async with self._guest(instance) as guest:
            if guest is None:
                return 0
            # An explicit request: the node does not change it back.
            return await self.memory.set_amount(
                self._guests.change(guest, lowered=None), memory_mib
            )

    async def reconciled(self, guest: Guest) -> Guest:
        """Return the guest with a record of its real devices; its lock is held.

        A guest may have released a device long after the request was abandoned.
        """
        present = await device_names(guest)
        spec = guest.instance
        for disk in spec.disks:
            if device_id("disk", disk.uuid) not in present:
                await self._drop_nodes(guest, disk)
                guest = self._forget(guest, without_disk(guest.instance, disk.uuid), disk.uuid)
        for nic in spec.nics:
            if device_id("nic", nic.uuid) not in present:
                guest = await self._drop_nic(guest, nic)
        return await self.memory.reconciled(self._processors.reconciled(guest, present))

    # --- disks and NICs ----------------------------------------------------------------------

    async def _add_disk(self, guest: Guest, disk: DiskSpec, path: str) -> None:
        try:
            await self._plug_disk(guest, disk, path)
        except BaseException:
            if not await may_have_device(guest, device_id("disk", disk.uuid)):
                with contextlib.suppress(HypervisorError):  # the next attempt repeats this first
                    await self._drop_nodes(guest, disk)
                self._forget(guest, without_disk(guest.instance, disk.uuid), disk.uuid)
            raise

    async def _plug_disk(self, guest: Guest, disk: DiskSpec, path: str) -> None:
        spec, hvparams = guest.instance, complete(guest.instance.hvparams)
        [backend] = resolve_disks(replace(spec, disks=(disk,)), [path], str(hvparams["disk_cache"]))
        slot = guest.record.slots[disk.uuid]
        fdset = _FDSET_BASE + slot
        lower, upper = backend_nodes(
            disk, dataclasses.replace(backend, path=f"/dev/fdset/{fdset}"), hvparams
        )
        await self._drop_nodes(guest, disk)
        await add_nodes(guest, disk, backend, fdset, [lower, upper])
        device = disk_device(disk, backend, hvparams, guest.record.machine, slot)
        await guest.ask("device_add", device)

    async def _drop_nodes(self, guest: Guest, disk: DiskSpec) -> None:
        """Let QEMU close a disk. It holds one for a moment after its device is gone. HypervisorError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSE_S
        for name in (node_name("disk", disk), *file_nodes(disk)):
            while (refusal := await self._refusal_to_drop(guest, name)) is not None:
                if loop.time() >= deadline:
                    raise HypervisorError(
                        f"QEMU does not close disk {disk.index} of {guest.instance.name}: {refusal}"
                    )
                await asyncio.sleep(LOOK_EVERY_S)

    async def _refusal_to_drop(self, guest: Guest, name: str) -> CommandRefused | None:
        """Remove a node; return why it still exists, or None."""
        try:
            await guest.ask("blockdev-del", {"node-name": name})
        except CommandRefused as err:
            present = await guest.ask("query-named-block-nodes", {"flat": True})
            return err if name in {one["node-name"] for one in present} else None
        return None

    async def _add_nic(self, guest: Guest, nic: NicSpec) -> None:
        slot = self._free_slot(guest, [one.uuid for one in guest.instance.nics], MAX_NICS, "NICs")
        guest = self._guests.change(
            guest,
            instance=with_nic(guest.instance, nic),
            slots={**guest.record.slots, nic.uuid: slot},
            taps=(*(one for one in guest.record.taps if one != self._tap(nic)), self._tap(nic)),
        )
        try:
            await self._plug_nic(guest, nic, slot)
        except BaseException:
            if not await may_have_device(guest, device_id("nic", nic.uuid)):
                await self._drop_nic(guest, nic)
            raise

    async def _plug_nic(self, guest: Guest, nic: NicSpec, slot: int) -> None:
        hvparams = complete(guest.instance.hvparams)
        queues = nic_queues(hvparams)
        await self._drop_netdev(guest, nic)
        spec = replace(guest.instance, nics=(nic,))
        await make_taps(self._run, self._paths.root, spec, self._paths.etc, queues=queues)
        with contextlib.ExitStack() as stack:
            has_header = bool(hvparams["vnet_hdr"])
            tap = self._tap(nic)
            files = stack.enter_context(open_tap(tap, queues=queues, has_header=has_header))
            names = [f"{device_id('fd', nic.uuid)}_{number}" for number in range(queues)]
            netdev: dict[str, Any] = {"type": "tap", "id": netdev_id(nic), "fds": ":".join(names)}
            if hvparams["vhost_net"]:
                files = [*files, *stack.enter_context(open_vhost(queues))]
                helpers = [f"{name}_vhost" for name in names]
                netdev |= {"vhost": True, "vhostfds": ":".join(helpers)}
                names += helpers
            handed = [("getfd", {"fdname": name}) for name in names]
            await guest.ask.with_files(files, [*handed, ("netdev_add", netdev)])
        await guest.ask("device_add", nic_device(nic, hvparams, guest.record.machine, slot))

    async def _remove_nic(self, guest: Guest, nic: NicSpec) -> Guest:
        await unplug(guest, device_id("nic", nic.uuid), f"NIC {nic.index}")
        return await self._drop_nic(guest, nic)

    async def _put_back(self, files: GuestFiles, nic: NicSpec, error: HypervisorError) -> None:
        """Restore the NIC that was to be replaced; HypervisorError if that fails."""
        guest = self._guests.peek(files)
        if guest is None or await may_have_device(guest, device_id("nic", nic.uuid)):
            return
        try:
            await self._add_nic(await self._drop_nic(guest, nic), nic)
        except HypervisorError as second:
            raise HypervisorError(
                f"{error}; and NIC {nic.index} could not be restored ({second}): the guest has no such NIC"
                " until its next start"
            ) from error

    async def _drop_nic(self, guest: Guest, nic: NicSpec) -> Guest:
        """Remove the host's side of a NIC that the guest no longer has."""
        await self._drop_netdev(guest, nic)
        await remove_taps(self._run, [self._tap(nic)])
        guest = self._forget(guest, without_nic(guest.instance, nic.uuid), nic.uuid)
        taps = tuple(one for one in guest.record.taps if one != self._tap(nic))
        return self._guests.change(guest, taps=taps)

    async def _drop_netdev(self, guest: Guest, nic: NicSpec) -> None:
        with contextlib.suppress(CommandRefused):  # it does not exist
            await guest.ask("netdev_del", {"id": netdev_id(nic)})

    def _tap(self, nic: NicSpec) -> str:
        return tap_name(self._paths.root, nic)

    # --- devices -----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _guest(self, instance: InstanceSpec) -> AsyncIterator[Guest | None]:
        """Give the live guest, under its lock; None if it does not run here."""
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = self._guests.peek(files)
            yield guest.own("be changed while it runs") if guest is not None else None

    def _record_disk(self, guest: Guest, disk: DiskSpec) -> Guest:
        present = [one.uuid for one in guest.instance.disks]
        slot = self._free_slot(guest, present, MAX_DISKS, "disks")
        return self._guests.change(
            guest,
            instance=with_disk(guest.instance, disk),
            slots={**guest.record.slots, disk.uuid: slot},
        )

    def _free_slot(self, guest: Guest, present: Sequence[str], count: int, what: str) -> int:
        return free_slot(guest.record.slots, present, count, what)

    def _change(self, guest: Guest, instance: InstanceSpec) -> Guest:
        return self._guests.change(guest, instance=instance)

    def _forget(self, guest: Guest, instance: InstanceSpec, uuid: str) -> Guest:
        slots = {key: slot for key, slot in guest.record.slots.items() if key != uuid}
        return self._guests.change(guest, instance=instance, slots=slots)
