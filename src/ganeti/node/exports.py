"""Answers calls about exports, and about the disk snapshots that exports read."""

import asyncio
from dataclasses import dataclass

from ganeti.base.errors import InputError, StorageError
from ganeti.base.identifiers import plain_name
from ganeti.node.disks import DeviceFactory
from ganeti.node.export_directory import ExportDirectories, ExportDirectory
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.exports import (
    EXPORT_BEGIN,
    EXPORT_FINISH,
    EXPORT_INFO,
    EXPORT_LIST,
    EXPORT_REMOVE,
    IMAGE_STORE_LIST,
    ExportArgs,
    ExportContent,
    ExportListing,
    FinishExportArgs,
    StoredImages,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.streams import (
    SNAPSHOT_DROP,
    SNAPSHOT_POSSIBLE,
    SNAPSHOT_TAKE,
    CanSnapshot,
    DiskOf,
    SnapshotArgs,
    SnapshotTaken,
)


def handlers(
    directories: ExportDirectories, device: DeviceFactory, locks: InstanceLocks
) -> Handlers:
    """Return the handlers of all calls about exports and snapshots."""
    exports = _Exports(directories, device, locks)
    return {
        EXPORT_LIST.name: exports.list,
        EXPORT_INFO.name: exports.info,
        EXPORT_BEGIN.name: exports.begin,
        EXPORT_FINISH.name: exports.finish,
        EXPORT_REMOVE.name: exports.remove,
        IMAGE_STORE_LIST.name: exports.list_images,
        SNAPSHOT_POSSIBLE.name: exports.snapshot_possible,
        SNAPSHOT_TAKE.name: exports.take_snapshot,
        SNAPSHOT_DROP.name: exports.drop_snapshot,
    }


@dataclass(frozen=True)
class _Exports:
    directories: ExportDirectories
    device: DeviceFactory
    locks: InstanceLocks

    async def list(self, _args: Nothing, _call: Call) -> ExportListing:
        return await asyncio.to_thread(self.directories.exports.list)

    async def list_images(self, _args: Nothing, _call: Call) -> StoredImages:
        return await asyncio.to_thread(_stored_images, self.directories.images)

    async def info(self, args: ExportArgs, _call: Call) -> ExportContent:
        return await asyncio.to_thread(self._of(args).info, args.export, unfinished=args.unfinished)

    async def begin(self, args: ExportArgs, _call: Call) -> Nothing:
        await asyncio.to_thread(self._of(args).begin, args.export)
        return Nothing()

    async def finish(self, args: FinishExportArgs, _call: Call) -> Nothing:
        await asyncio.to_thread(self._of(args).finish, args.export, args.config)
        return Nothing()

    async def remove(self, args: ExportArgs, _call: Call) -> Nothing:
        directory = self._of(args)
        await asyncio.to_thread(directory.remove, args.export, unfinished=args.unfinished)
        return Nothing()

    def _of(self, args: ExportArgs | FinishExportArgs) -> ExportDirectory:
        return self.directories.of(stored=args.stored)

    async def snapshot_possible(self, args: DiskOf, _call: Call) -> CanSnapshot:
        found = self.device(args.instance_name, args.disk).snapshots
        return CanSnapshot(possible=found is not None and await found.can_take())

    async def take_snapshot(self, args: SnapshotArgs, _call: Call) -> SnapshotTaken:
        async with self.locks.of(args.instance_name):
            device = self.device(args.instance_name, args.disk)
            if device.snapshots is None:
                raise StorageError(f"disk {args.disk.index} has no snapshots")
            await device.check_identity()
            path = await device.snapshots.take(snapshot_name(args.name))
        return SnapshotTaken(path=path)

    async def drop_snapshot(self, args: SnapshotArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            device = self.device(args.instance_name, args.disk)
            if device.snapshots is not None:
                await device.snapshots.drop(snapshot_name(args.name), unsure=args.unsure)
        return Nothing()


def _stored_images(store: ExportDirectory) -> StoredImages:
    found = store.list()
    return StoredImages(images={name: store.files(name) for name in found.names}, free=found.free)


def snapshot_name(name: str) -> str:
    """Return a name that is safe in every storage; InputError otherwise."""
    if set(name) & set("._") or plain_name(name, "name") != name:
        raise InputError(f"{name!r:.60} is not the name of a snapshot", "name")
    return name
