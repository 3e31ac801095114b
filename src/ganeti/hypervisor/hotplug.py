"""Changing a guest while it runs: what a driver may offer beside `Hypervisor`."""

import abc

from msgspec.structs import replace

from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec


class Hotplug(abc.ABC):
    """Disks, NICs and memory of running guests.

    Every operation may be repeated: adding what is there, or removing what is not, succeeds. A guest
    that does not run here has nothing to change, so every change of it succeeds; its next start gives
    it all that the configuration says. A failed change leaves the guest as it was. Drivers raise only
    HypervisorError.
    """

    @abc.abstractmethod
    async def obstacles(self, instance: InstanceSpec) -> list[str]:
        """Return what keeps the guest from being changed now, a sentence each; empty if nothing, or if it is down."""

    @abc.abstractmethod
    async def add_disk(self, instance: InstanceSpec, disk: DiskSpec, path: str) -> None:
        """Give the guest a disk, at `disk.index` among its disks."""

    @abc.abstractmethod
    async def remove_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        """Take a disk from the guest, and wait until it has let it go."""

    @abc.abstractmethod
    async def resize_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        """Tell the guest that a disk has grown to `disk.size`."""

    @abc.abstractmethod
    async def add_nic(self, instance: InstanceSpec, nic: NicSpec) -> None: ...

    @abc.abstractmethod
    async def remove_nic(self, instance: InstanceSpec, nic: NicSpec) -> None: ...

    @abc.abstractmethod
    async def change_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        """Connect a NIC as `nic` says now; one with another MAC address is taken out and put in again."""

    @abc.abstractmethod
    async def change_medium(self, instance: InstanceSpec, drive: str) -> bool:
        """Put into a CD drive, named by its hypervisor parameter, what `instance` says now.

        False if the running guest has no such drive: its next start gives it one.
        """

    @abc.abstractmethod
    async def set_memory(self, instance: InstanceSpec, memory_mib: int) -> int:
        """Ask the guest to use so much memory; how much it uses after a while, 0 if it does not run here."""


def incoming_instance(wanted: InstanceSpec, of_guest: InstanceSpec) -> InstanceSpec:
    """The instance as its guest on the other node has it, with the parameters of the cluster of now.

    Its disks are those of the guest, as this node comes to them.
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
    """What the guest sees of a disk stays; how a node comes to it (its address, peers, secret, layers) is its own."""
    if here is None:
        return disk
    return replace(here, index=disk.index, size=disk.size, mode=disk.mode)


def with_disk(instance: InstanceSpec, disk: DiskSpec) -> InstanceSpec:
    """The instance with one disk more, or with this one in place of its earlier self."""
    others = [one for one in instance.disks if one.uuid != disk.uuid]
    at = min(disk.index, len(others))
    return _with_disks(instance, [*others[:at], disk, *others[at:]])


def without_disk(instance: InstanceSpec, uuid: str) -> InstanceSpec:
    """The instance without one disk."""
    return _with_disks(instance, [one for one in instance.disks if one.uuid != uuid])


def with_nic(instance: InstanceSpec, nic: NicSpec) -> InstanceSpec:
    """The instance with one NIC more, or with this one in place of its earlier self."""
    others = [one for one in instance.nics if one.uuid != nic.uuid]
    at = min(nic.index, len(others))
    return _with_nics(instance, [*others[:at], nic, *others[at:]])


def without_nic(instance: InstanceSpec, uuid: str) -> InstanceSpec:
    """The instance without one NIC."""
    return _with_nics(instance, [one for one in instance.nics if one.uuid != uuid])


def _with_disks(instance: InstanceSpec, disks: list[DiskSpec]) -> InstanceSpec:
    counted = tuple(replace(one, index=index) for index, one in enumerate(disks))
    return replace(instance, disks=counted)


def _with_nics(instance: InstanceSpec, nics: list[NicSpec]) -> InstanceSpec:
    counted = tuple(replace(one, index=index) for index, one in enumerate(nics))
    return replace(instance, nics=counted)
