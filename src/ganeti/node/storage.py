"""Answers calls about single disks."""

from dataclasses import dataclass

from ganeti.base.errors import StorageError
from ganeti.node.disks import DeviceFactory
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_GROW,
    BLOCKDEV_INFO,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN,
    DiskArgs,
    DiskInfo,
    GrowDiskArgs,
    OpenDiskArgs,
)
from ganeti.rpc.procedures.form import Nothing


def handlers(device: DeviceFactory, locks: InstanceLocks) -> Handlers:
    """The answers to all calls about disks; those that change one wait for its instance's lock."""
    disks = _Disks(device, locks)
    return {
        BLOCKDEV_CREATE.name: disks.create,
        BLOCKDEV_REMOVE.name: disks.remove,
        BLOCKDEV_GROW.name: disks.grow,
        BLOCKDEV_ASSEMBLE.name: disks.open,
        BLOCKDEV_SHUTDOWN.name: disks.close,
        BLOCKDEV_INFO.name: disks.info,
    }


@dataclass(frozen=True)
class _Disks:
    device: DeviceFactory
    locks: InstanceLocks

    async def create(self, args: DiskArgs, _call: Call) -> DiskInfo:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.create(args.disk.size)
        return DiskInfo(exists=True, path=device.path, size=args.disk.size)

    async def grow(self, args: GrowDiskArgs, _call: Call) -> DiskInfo:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.grow(args.size)
        return DiskInfo(exists=True, path=device.path, size=args.size)

    async def open(self, args: OpenDiskArgs, _call: Call) -> DiskInfo:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.open(args.role)
        return DiskInfo(exists=True, path=device.path, size=args.disk.size)

    async def close(self, args: DiskArgs, _call: Call) -> Nothing:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.close()
        return Nothing()

    async def remove(self, args: DiskArgs, _call: Call) -> Nothing:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.remove()
        return Nothing()

    async def info(self, args: DiskArgs, _call: Call) -> DiskInfo:
        """A disk that cannot be looked at is a finding here, not an error."""
        try:
            device = self.device(args.instance_name, args.disk)
            size = await device.size_mib()
            sync = await device.mirror.sync_status() if size and device.mirror else None
        except StorageError as err:
            return DiskInfo(exists=False, problem=err.message)
        if size is None:
            return DiskInfo(exists=False, path=device.path)
        problem = (
            "" if size >= args.disk.size else f"has {size} MiB instead of {args.disk.size} MiB"
        )
        return DiskInfo(exists=True, path=device.path, size=size, problem=problem, sync=sync)
