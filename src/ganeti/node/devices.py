"""Answers calls that change a guest while it runs."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError, InputError, StorageError
from ganeti.hypervisor.hotplug import Hotplug
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import DiskRole
from ganeti.node.disks import DeviceFactory
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.devices import (
    HOTPLUG_DISK,
    HOTPLUG_LIMITS,
    HOTPLUG_MEDIUM,
    HOTPLUG_NIC,
    HOTPLUG_OBSTACLES,
    INSTANCE_MEMORY,
    INSTANCE_VCPUS,
    DeviceAction,
    DiskChangeArgs,
    GuestLimits,
    MediumArgs,
    MediumResult,
    MemoryArgs,
    MemoryResult,
    NicChangeArgs,
    VcpusArgs,
    VcpusResult,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.storage.interface import BlockDevice


def handlers(
    hypervisors: Mapping[str, Hypervisor], device: DeviceFactory, locks: InstanceLocks
) -> Handlers:
    """Return the handlers; the ones that change a guest wait for its lock."""
    devices = _Devices(hypervisors, device, locks)
    return {
        HOTPLUG_OBSTACLES.name: devices.obstacles,
        HOTPLUG_LIMITS.name: devices.limits,
        HOTPLUG_DISK.name: devices.change_disk,
        HOTPLUG_NIC.name: devices.change_nic,
        HOTPLUG_MEDIUM.name: devices.change_medium,
        INSTANCE_VCPUS.name: devices.set_vcpus,
        INSTANCE_MEMORY.name: devices.set_memory,
    }


@dataclass(frozen=True)
class _Devices:
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks

    def _hotplug(self, instance: InstanceSpec) -> Hotplug:
        hypervisor = self.hypervisors.get(instance.hypervisor)
        hotplug = hypervisor.options.hotplug if hypervisor else None
        if hotplug is None:
            raise HypervisorError(
                f"hypervisor {instance.hypervisor!r:.40} of this node cannot change running guests"
            )
        return hotplug

    async def obstacles(self, args: InstanceArgs, _call: Call) -> list[str]:
        try:
            hotplug = self._hotplug(args.instance)
        except HypervisorError as err:
            return [err.message]
        return await hotplug.obstacles(args.instance)

    async def limits(self, args: InstanceArgs, _call: Call) -> GuestLimits:
        return await self._hotplug(args.instance).limits(args.instance)

    async def change_disk(self, args: DiskChangeArgs, _call: Call) -> Nothing:
        instance, disk = args.instance, args.disk
        hotplug = self._hotplug(instance)
        device = self.device(instance.name, disk)
        async with self.locks.of(instance.name):
            match args.action:
                case DeviceAction.ADD:
                    await _add_disk(hotplug, instance, disk, device)
                case DeviceAction.REMOVE:
                    await hotplug.remove_disk(instance, disk)
                    await device.close()
                case DeviceAction.GROW:
                    await hotplug.resize_disk(instance, disk)
                case _:
                    raise InputError(
                        f"a disk of a running guest does not support {args.action}", "action"
                    )
        return Nothing()

    async def change_nic(self, args: NicChangeArgs, _call: Call) -> Nothing:
        instance, nic = args.instance, args.nic
        hotplug = self._hotplug(instance)
        async with self.locks.of(instance.name):
            match args.action:
                case DeviceAction.ADD:
                    await hotplug.add_nic(instance, nic)
                case DeviceAction.REMOVE:
                    await hotplug.remove_nic(instance, nic)
                case DeviceAction.MODIFY:
                    await hotplug.change_nic(instance, nic)
                case _:
                    raise InputError(
                        f"a NIC of a running guest does not support {args.action}", "action"
                    )
        return Nothing()

    async def change_medium(self, args: MediumArgs, _call: Call) -> MediumResult:
        hotplug = self._hotplug(args.instance)
        async with self.locks.of(args.instance.name):
            is_changed = await hotplug.change_medium(args.instance, args.drive)
        return MediumResult(is_changed=is_changed)

    async def set_vcpus(self, args: VcpusArgs, _call: Call) -> VcpusResult:
        hotplug = self._hotplug(args.instance)
        async with self.locks.of(args.instance.name):
            vcpus = await hotplug.set_vcpus(args.instance, args.vcpus)
        return VcpusResult(vcpus=vcpus)

    async def set_memory(self, args: MemoryArgs, _call: Call) -> MemoryResult:
        hotplug = self._hotplug(args.instance)
        async with self.locks.of(args.instance.name):
            memory = await hotplug.set_memory(args.instance, args.memory)
        return MemoryResult(memory=memory)


async def _add_disk(
    hotplug: Hotplug, instance: InstanceSpec, disk: DiskSpec, device: BlockDevice
) -> None:
    await device.open(DiskRole.PRIMARY)
    try:
        await hotplug.add_disk(instance, disk, device.image)
    except BaseException:
        with contextlib.suppress(StorageError):
            await device.close()
        raise
