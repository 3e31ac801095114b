"""Changes of simulated guests while they run: their files follow."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.hotplug import Hotplug, with_disk, with_nic, without_disk, without_nic
from ganeti.model.hypervisor_param import EMPTY_DRIVE
from ganeti.model.hypervisors.kvm import MOST_CPUS, MOST_MEMORY_MIB
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.devices import GuestLimits

Change = Callable[[InstanceSpec], InstanceSpec]


class FakeHotplug(Hotplug):
    """`change` replaces the facts of a guest, if it exists; `meet` fails an operation on request."""

    def __init__(
        self, change: Callable[[InstanceSpec, Change], bool], meet: Callable[[str], None]
    ) -> None:
        self._change, self._meet = change, meet

    async def obstacles(self, instance: InstanceSpec) -> list[str]:
        del instance
        try:
            self._meet("hotplug")
        except HypervisorError as err:
            return [err.message]
        return []

    async def limits(self, instance: InstanceSpec) -> GuestLimits:
        is_here = self._change(instance, lambda guest: guest)
        if not is_here:
            return GuestLimits()
        return GuestLimits(least_vcpus=1, most_vcpus=MOST_CPUS, most_memory=MOST_MEMORY_MIB)

    async def add_disk(self, instance: InstanceSpec, disk: DiskSpec, path: str) -> None:
        self._meet("add_disk")
        _check_there(instance, path)
        self._change(instance, lambda guest: with_disk(guest, disk))

    async def remove_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        self._meet("remove_disk")
        self._change(instance, lambda guest: without_disk(guest, disk.uuid))

    async def resize_disk(self, instance: InstanceSpec, disk: DiskSpec) -> None:
        self._meet("resize_disk")
        self._change(instance, lambda guest: with_disk(guest, disk))

    async def add_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        self._meet("add_nic")
        self._change(instance, lambda guest: with_nic(guest, nic))

    async def remove_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        self._meet("remove_nic")
        self._change(instance, lambda guest: without_nic(guest, nic.uuid))

    async def change_nic(self, instance: InstanceSpec, nic: NicSpec) -> None:
        self._meet("change_nic")
        self._change(instance, lambda guest: with_nic(guest, nic))

    async def change_medium(self, instance: InstanceSpec, drive: str) -> bool:
        self._meet("change_medium")
        has_drive = True

        def with_medium(guest: InstanceSpec) -> InstanceSpec:
            nonlocal has_drive
            has_drive = bool(guest.hvparams.get(drive))
            medium = instance.hvparams.get(drive) or EMPTY_DRIVE
            return (
                replace(guest, hvparams={**guest.hvparams, drive: medium}) if has_drive else guest
            )

        self._change(instance, with_medium)
        return has_drive

    async def set_vcpus(self, instance: InstanceSpec, count: int) -> int:
        self._meet("set_vcpus")
        is_here = self._change(instance, lambda guest: replace(guest, vcpus=count))
        return count if is_here else 0

    async def set_memory(self, instance: InstanceSpec, memory_mib: int) -> int:
        self._meet("set_memory")
        is_here = self._change(instance, lambda guest: replace(guest, memory=memory_mib))
        return memory_mib if is_here else 0


def _check_there(instance: InstanceSpec, path: str) -> None:
    if not Path(path).exists():
        raise HypervisorError(f"{instance.name}: disk {path} does not exist")
