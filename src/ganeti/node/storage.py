"""Answers calls about single disks."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec
from ganeti.node.disks import DeviceFactory
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ADOPT,
    BLOCKDEV_ADOPTABLE,
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_DISCARD,
    BLOCKDEV_FENCE,
    BLOCKDEV_GIVE_BACK,
    BLOCKDEV_GROW,
    BLOCKDEV_INFO,
    BLOCKDEV_OPEN_ALONE,
    BLOCKDEV_OUTDATE,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SETINFO,
    BLOCKDEV_SHUTDOWN,
    BLOCKDEV_UNFENCE,
    DISKS_INFO,
    MIRRORED_DEVICES,
    AdoptDiskArgs,
    DiskArgs,
    DiskInfo,
    DisksArgs,
    FenceArgs,
    GrowDiskArgs,
    MirroredDevice,
    OpenAloneArgs,
    OpenDiskArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.storage.drbd.driver import mirrored_devices
from ganeti.storage.identity import identity
from ganeti.storage.interface import Adoption, BlockDevice, Mirror, StorageFence
from ganeti.storage.sizes import check_made

AT_ONCE = 4
"""Number of disks inspected at the same time; each takes some programs."""
Devices = Callable[[], Awaitable[list[MirroredDevice]]]


def handlers(
    device: DeviceFactory, locks: InstanceLocks, devices: Devices = mirrored_devices
) -> Handlers:
    """Return the handlers of all calls about disks; the ones that change one wait for its instance's lock."""
    disks = _Disks(device, locks, devices)
    return {
        BLOCKDEV_CREATE.name: disks.create,
        BLOCKDEV_REMOVE.name: disks.remove,
        BLOCKDEV_GROW.name: disks.grow,
        BLOCKDEV_ADOPTABLE.name: disks.adoptable,
        BLOCKDEV_ADOPT.name: disks.adopt,
        BLOCKDEV_GIVE_BACK.name: disks.give_back,
        BLOCKDEV_ASSEMBLE.name: disks.open,
        BLOCKDEV_SHUTDOWN.name: disks.close,
        BLOCKDEV_OUTDATE.name: disks.outdate,
        BLOCKDEV_SETINFO.name: disks.set_info,
        BLOCKDEV_FENCE.name: disks.fence,
        BLOCKDEV_UNFENCE.name: disks.unfence,
        BLOCKDEV_OPEN_ALONE.name: disks.open_alone,
        BLOCKDEV_DISCARD.name: disks.discard,
        BLOCKDEV_INFO.name: disks.info,
        DISKS_INFO.name: disks.infos,
        MIRRORED_DEVICES.name: disks.mirrored,
    }


@dataclass(frozen=True)
class _Disks:
    device: DeviceFactory
    locks: InstanceLocks
    devices: Devices

    async def mirrored(self, _args: Nothing, _call: Call) -> list[MirroredDevice]:
        return await self.devices()

    async def infos(self, args: DisksArgs, call: Call) -> list[DiskInfo]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(disk: DiskArgs) -> DiskInfo:
            async with gate:
                return await self.info(disk, call)

        return list(await asyncio.gather(*map(one, args.disks)))

    async def create(self, args: DiskArgs, _call: Call) -> DiskInfo:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.create(args.disk.size)
            check_made(_what(args.disk), await device.size_mib(), args.disk.size)
            await _label(device, args.instance_name)
        return DiskInfo(exists=True, path=device.image, size=args.disk.size)

    async def grow(self, args: GrowDiskArgs, _call: Call) -> DiskInfo:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.grow(args.size)
            check_made(_what(args.disk), await device.size_mib(), args.size)
        return DiskInfo(exists=True, path=device.image, size=args.size)

    async def adoptable(self, args: AdoptDiskArgs, _call: Call) -> DiskInfo:
        adoption = self._adoption(args)
        size = await adoption.adoptable_mib(args.source)
        path = adoption.source_path(args.source)
        await asyncio.to_thread(_check_free, self.device, args, path)
        return DiskInfo(exists=True, path=args.source, size=size)

    async def adopt(self, args: AdoptDiskArgs, _call: Call) -> DiskInfo:
        async with self.locks.of(args.instance_name):
            await self._adoption(args).adopt(args.source)
        return DiskInfo(exists=True, size=args.disk.size)

    async def give_back(self, args: AdoptDiskArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            await self._adoption(args).give_back(args.source)
        return Nothing()

    def _adoption(self, args: AdoptDiskArgs) -> Adoption:
        found = self.device(args.instance_name, args.disk).adoption
        if found is None:
            raise StorageError(f"disks of template {args.disk.template} cannot be adopted")
        return found

    async def open(self, args: OpenDiskArgs, _call: Call) -> DiskInfo:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.open(args.role)
        return DiskInfo(exists=True, path=device.image, size=args.disk.size)

    async def close(self, args: DiskArgs, _call: Call) -> Nothing:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.close()
        return Nothing()

    async def outdate(self, args: DiskArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            await self._mirror(args).outdate()
        return Nothing()

    async def set_info(self, args: DiskArgs, _call: Call) -> Nothing:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await _label(device, args.instance_name)
        return Nothing()

    async def fence(self, args: FenceArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            await self._fence_of(args).fence(args.node_name, args.addresses)
        return Nothing()

    async def unfence(self, args: FenceArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            await self._fence_of(args).unfence(args.node_name, args.addresses)
        return Nothing()

    def _fence_of(self, args: FenceArgs) -> StorageFence:
        found = self.device(args.instance_name, args.disk).fencing
        if found is None:
            raise StorageError(
                f"disk {args.disk.index}: storage of template {args.disk.template} cannot refuse the"
                " writes of one node"
            )
        return found

    async def open_alone(self, args: OpenAloneArgs, _call: Call) -> DiskInfo:
        mirror = self._mirror(args)
        async with self.locks.of(args.instance_name):
            await mirror.open_alone(args.generation, force=args.force)
        device = self.device(args.instance_name, args.disk)
        return DiskInfo(exists=True, path=device.image, size=args.disk.size)

    async def discard(self, args: DiskArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            await self._mirror(args).discard()
        return Nothing()

    def _mirror(self, args: DiskArgs) -> Mirror:
        found = self.device(args.instance_name, args.disk).mirror
        if found is None:
            raise StorageError(f"disks of template {args.disk.template} have no other copy")
        return found

    async def remove(self, args: DiskArgs, _call: Call) -> Nothing:
        device = self.device(args.instance_name, args.disk)
        async with self.locks.of(args.instance_name):
            await device.remove()
        return Nothing()

    async def info(self, args: DiskArgs, _call: Call) -> DiskInfo:
        """Return a disk's state; a disk that cannot be inspected is a result here, not an error."""
        try:
            device = self.device(args.instance_name, args.disk)
            size = await device.size_mib()
            mirror = device.mirror if size else None
            sync = await mirror.sync_status() if mirror else None
            at_rest = await mirror.at_rest() if mirror and sync is None else None
            spindles = await device.spindles() if size else 0
        except StorageError as err:
            return DiskInfo(exists=False, problem=err.message)
        if size is None:
            return DiskInfo(exists=False, path=device.image)
        problem = (
            "" if size >= args.disk.size else f"has {size} MiB instead of {args.disk.size} MiB"
        )
        number = await asyncio.to_thread(_device_number, device.image)
        return DiskInfo(
            exists=True,
            path=device.image,
            size=size,
            problem=problem,
            device=number,
            sync=sync,
            at_rest=at_rest,
            spindles=spindles,
        )


def _what(disk: DiskSpec) -> str:
    return f"disk {disk.index} ({disk.place})"


async def _label(device: BlockDevice, instance_name: str) -> None:
    """Label the disk's storage with its owner in upstream's format.

    Does nothing where storage has no labels.
    """
    if device.labels is not None:
        await device.labels.set_info(f"originstname+{instance_name}")


def _device_number(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISBLK(found.st_mode):
        return None
    return os.major(found.st_rdev), os.minor(found.st_rdev)


def _check_free(device: DeviceFactory, args: AdoptDiskArgs, path: str) -> None:
    """Raise StorageError if a disk of the cluster is, contains, or lies below the disk to adopt (A48).

    Blocks.
    """
    wanted = identity(path)
    for other in args.in_use:
        for layer in _layers(other.disk):
            try:
                taken = device(args.instance_name, layer).image
            except StorageError:
                continue  # no driver of this node supports it, so it is not open here
            found = identity(taken)
            if taken == path or (wanted and found and wanted.overlaps(found)):
                raise StorageError(f"{args.source} cannot be adopted: {taken} is {other.owner}")


def _layers(disk: DiskSpec) -> Iterator[DiskSpec]:
    yield disk
    for child in disk.children:
        yield from _layers(child)
