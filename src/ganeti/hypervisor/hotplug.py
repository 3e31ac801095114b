"""Changes of a running guest: an optional part of a driver beside `Hypervisor`."""

import abc

from msgspec.structs import replace

from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.devices import GuestLimits


class Hotplug(abc.ABC):
    """Disks, NICs, processors and memory of running guests.

    Every operation may be repeated: adding an existing device, or removing a missing one, succeeds. Every change of a
    guest that does not run here succeeds as well: its next start follows the configuration. A failed change leaves
    the guest unchanged. Drivers raise only HypervisorError.
    """

    @abc.abstractmethod
    async def obstacles(self, instance: InstanceSpec) -> list[str]:
        """Return the reasons against a change of the guest now, a sentence each; empty if none, or if it is down."""

    @abc.abstractmethod
    async def limits(self, instance: InstanceSpec) -> GuestLimits:
        """Return what the guest can have without a restart; nothing if it does not run here."""

    @abc.abstractmethod
    async def add_disk(self, instance: InstanceSpec, disk: DiskSpec, path: str) -> None:
        """Give the guest a disk, at `disk.index` among its disks."""

    @abc.abstractmethod
    async def remove_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        """Remove a disk from the guest, and wait until the guest has released it."""

    @abc.abstractmethod
    async def resize_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        """Notify the guest that a disk has grown to `disk.size`."""

    @abc.abstractmethod
    async def add_nic(self, instance: InstanceSpec, nic: NicSpec) -> None: ...

    @abc.abstractmethod
    async def remove_nic(self, instance: InstanceSpec, nic: NicSpec) -> None: ...

    @abc.abstractmethod
    async def change_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        """Connect a NIC according to `nic`; one with another MAC address is removed and added again."""

    @abc.abstractmethod
    async def change_medium(self, instance: InstanceSpec, drive: str) -> bool:
        """Insert into a CD drive, named by its hypervisor parameter, the medium of `instance`.

        Return False if the running guest has no such drive: it gets one at its next start.
        """

    @abc.abstractmethod
    async def set_vcpus(self, instance: InstanceSpec, count: int) -> int:
        """Add or remove processors until the guest has `count`; return `count`, 0 if it does not run here."""

    @abc.abstractmethod
    async def set_memory(self, instance: InstanceSpec, memory_mib: int) -> int:
        """Request the guest's memory size; return its use after a while, 0 if it does not run here.

        HypervisorError if the guest does not use added memory.
        """


def incoming_instance(wanted: InstanceSpec, of_guest: InstanceSpec) -> InstanceSpec:
    """Return the instance as its guest on the other node has it, with the present cluster parameters.

    Its disks are those of the guest, with this node's access to them.
    """
    known = HYPERVISOR_PARAMS.get(wanted.hypervisor, {})
    of_now = {
        name: value
        for name, value in wanted.hvparams.items()
        if name in known and (known[name].is_global or name.startswith("migration_"))
    }
    here = {disk.uuid: disk for disk in wanted.disks}
    disks = tuple(_seen_by(disk, here.get(disk.uuid)) for disk in of_guest.disks)
    return replace(of_guest, hvparams={**of_guest.hvparams, **of_now}, disks=disks)


def _seen_by(disk: DiskSpec, here: DiskSpec | None) -> DiskSpec:
    """Keep what the guest sees of a disk; take this node's access to it (its address, peers, secret, layers)."""
    if here is None:
        return disk
    return replace(here, index=disk.index, size=disk.size, mode=disk.mode)


def with_disk(instance: InstanceSpec, disk: DiskSpec) -> InstanceSpec:
    """Return the instance with one disk added, or replaced by this version."""
    others = [one for one in instance.disks if one.uuid != disk.uuid]
    at = min(disk.index, len(others))
    return _with_disks(instance, [*others[:at], disk, *others[at:]])


def without_disk(instance: InstanceSpec, uuid: str) -> InstanceSpec:
    """Return the instance without one disk."""
    return _with_disks(instance, [one for one in instance.disks if one.uuid != uuid])


def with_nic(instance: InstanceSpec, nic: NicSpec) -> InstanceSpec:
    """Return the instance with one NIC added, or replaced by this version."""
    others = [one for one in instance.nics if one.uuid != nic.uuid]
    at = min(nic.index, len(others))
    return _with_nics(instance, [*others[:at], nic, *others[at:]])


def without_nic(instance: InstanceSpec, uuid: str) -> InstanceSpec:
    """Return the instance without one NIC."""
    return _with_nics(instance, [one for one in instance.nics if one.uuid != uuid])


def _with_disks(instance: InstanceSpec, disks: list[DiskSpec]) -> InstanceSpec:
    counted = tuple(replace(one, index=index) for index, one in enumerate(disks))
    return replace(instance, disks=counted)


def _with_nics(instance: InstanceSpec, nics: list[NicSpec]) -> InstanceSpec:
    counted = tuple(replace(one, index=index) for index, one in enumerate(nics))
    return replace(instance, nics=counted)
