"""The calls about mirrored disks of a simulated node."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.recovery import DiskRequest, DiskRequestKind
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.disks import (
    DiskArgs,
    DiskInfo,
    GrantArgs,
    GrowDiskArgs,
    MirroredDevice,
    OpenAloneArgs,
    OpenDiskArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.simulation.nodes.disks import DiskCalls
from ganeti.simulation.nodes.mirrors import Copy, Mirrors, is_mirrored


class MirroredCalls(DiskCalls):
    """Disks with another copy go to `mirrors`, their volumes and all other disks to the calls of plain disks."""

    mirrors: Mirrors

    def _copy(self, disk: DiskSpec) -> Copy:
        copy = self.mirrors.find(self.name, disk)
        if copy is None:
            raise StorageError(f"disk {disk.index}: this node has no copy of it")
        for child in disk.children:
            super()._check_disk(child)
        return copy

    def on_blockdev_create(self, args: DiskArgs) -> DiskInfo:
        if not is_mirrored(args.disk):
            return super().on_blockdev_create(args)
        for child in args.disk.children:
            super().on_blockdev_create(DiskArgs(instance_name=args.instance_name, disk=child))
        self.mirrors.add(self.name, args.disk)
        return self.on_blockdev_info(args)

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        if not is_mirrored(args.disk):
            return super().on_blockdev_remove(args)
        self.mirrors.remove(self.name, args.disk)
        for child in args.disk.children:
            super().on_blockdev_remove(DiskArgs(instance_name=args.instance_name, disk=child))
        return Nothing()

    def on_blockdev_grow(self, args: GrowDiskArgs) -> DiskInfo:
        if not is_mirrored(args.disk):
            return super().on_blockdev_grow(args)
        self._copy(args.disk)
        return self.on_blockdev_info(DiskArgs(instance_name=args.instance_name, disk=args.disk))

    def on_blockdev_assemble(self, args: DiskArgs) -> DiskInfo:
        if not is_mirrored(args.disk):
            return super().on_blockdev_assemble(args)
        assert isinstance(args, OpenDiskArgs)  # noqa: S101 - the procedure says so
        self.mirrors.open(self._copy(args.disk), args.disk, args.role)
        return self.on_blockdev_info(args)

    def on_blockdev_open_alone(self, args: OpenAloneArgs) -> DiskInfo:
        copy = self._copy(args.disk)
        self.mirrors.open_alone(copy, args.disk, args.generation, force=args.force)
        return self.on_blockdev_info(args)

    def on_blockdev_outdate(self, args: DiskArgs) -> Nothing:
        self.mirrors.outdate(self._copy(args.disk))
        return Nothing()

    def on_blockdev_discard(self, args: DiskArgs) -> Nothing:
        self.mirrors.discard(self._copy(args.disk), args.disk)
        return Nothing()

    def on_blockdev_setinfo(self, args: DiskArgs) -> Nothing:
        del args
        return Nothing()

    def on_blockdev_shutdown(self, args: DiskArgs) -> Nothing:
        copy = self.mirrors.find(self.name, args.disk) if is_mirrored(args.disk) else None
        if copy is not None:
            self.mirrors.close(copy)
        return super().on_blockdev_shutdown(args)

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        disk = args.disk
        if not is_mirrored(disk):
            return super().on_blockdev_info(args)
        try:
            copy = self._copy(disk)
        except StorageError as err:
            return DiskInfo(exists=False, problem=err.message if disk.children else "")
        status = self.mirrors.status(copy)
        is_open = copy.role is not None
        return DiskInfo(
            exists=True,
            path=f"/dev/drbd{disk.own_id[0]}",
            size=disk.size,
            sync=status if is_open else None,
            at_rest=None if is_open else status,
        )

    def on_mirrored_devices(self, args: Any) -> list[MirroredDevice]:
        del args
        found = [one for one in self.mirrors.of_node(self.name) if one.role is not None]
        return [MirroredDevice(name=one.disk.uuid, number=int(one.disk.own_id[0])) for one in found]

    # --- which copies count as current (D3-D5) ---

    def disk_requests(self, disks: Mapping[str, int]) -> tuple[DiskRequest, ...]:
        """Return what this node asks about disks that its guests write; disk -> generation of the state."""
        found = (self._disk_request(disk, generation) for disk, generation in disks.items())
        return tuple(one for one in found if one is not None)

    def _disk_request(self, disk: str, generation: int) -> DiskRequest | None:
        copy = self.mirrors.copy_on(self.name, disk)
        if copy is None or not copy.is_writing:
            return None
        record = self.grants.content.get(disk)
        if record is None or record.generation < generation:
            return DiskRequest(disk, DiskRequestKind.JOIN, record.generation if record else 0)
        is_own = self.grants.node in record.current
        has_others = bool(record.current - {self.grants.node})
        if copy.is_mirrored:
            is_all = is_own and has_others
            return None if is_all else DiskRequest(disk, DiskRequestKind.JOIN, record.generation)
        if copy.link is None and copy.is_whole and is_own and has_others:
            return DiskRequest(disk, DiskRequestKind.DROP, record.generation)
        return None

    async def granted(self, args: GrantArgs, call: Call) -> Nothing:
        """Record a later grant of this node."""
        self._check_epoch(call)
        await self.grants.renew(args.disk, args.grant)
        return Nothing()

    async def copy_joins(self, args: GrantArgs, call: Call) -> Nothing:
        """Record that this node's copy is synchronised under a grant of the other one; StorageError unless it is."""
        self._check_epoch(call)
        copy = self.mirrors.copy_on(self.name, args.disk)
        if copy is None or copy.is_writing or not copy.is_mirrored:
            raise StorageError(f"the copy of disk {args.disk} is not synchronised")
        await self.grants.join(args.disk, args.grant)
        return Nothing()

    def _check_disk(self, disk: DiskSpec) -> None:
        if is_mirrored(disk):
            self._copy(disk)
        else:
            super()._check_disk(disk)
