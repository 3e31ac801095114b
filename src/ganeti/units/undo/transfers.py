"""Undo of the parts of a transfer of disks: keys, programs on both ends, partial exports, snapshots."""

from collections.abc import Iterable

from ganeti.config.fill import instance_spec, memory_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Disk, Instance, InstanceSnapshot
from ganeti.rpc.procedures.backups import BACKUP_ABANDON, NewPoint
from ganeti.rpc.procedures.exports import EXPORT_REMOVE, ExportArgs
from ganeti.rpc.procedures.streams import (
    SNAPSHOT_DROP,
    STREAM_COMMIT,
    STREAM_END,
    TRANSFER_KEY_REMOVE,
    SnapshotArgs,
    StreamArgs,
    TransferKeyArgs,
)
from ganeti.units.services import Services
from ganeti.units.undo.disks import RemoveDisk
from ganeti.units.undo.step import Concerned, Step, node_of


class _OnNode(Step, frozen=True, kw_only=True):
    """A step about one node's data for an instance, by its name."""

    node: str
    instance: str

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned({self.instance}, {self.node})

    def uses_disk(self, disk: str) -> bool:
        del disk
        return False


class RemoveTransferKey(_OnNode, frozen=True, kw_only=True):
    """Remove the key of a transfer (S216)."""

    kind = "remove_transfer_key"
    blocks_moves = False

    key_name: str

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = TransferKeyArgs(instance_name=self.instance, key_name=self.key_name)
            await services.rpc.call(node, TRANSFER_KEY_REMOVE, args, key=key)


class EndStream(_OnNode, frozen=True, kw_only=True):
    """End the program that transfers a disk's data."""

    kind = "end_stream"

    token: str
    receives: bool

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = StreamArgs(instance_name=self.instance, token=self.token, receives=self.receives)
            await services.rpc.call(node, STREAM_END, args, key=key)

    def uses_disk(self, disk: str) -> bool:
        """It may still read or write the disk."""
        del disk
        return True


class ConfirmStream(_OnNode, frozen=True, kw_only=True):
    """Notify the sender, in another cluster, that the sent data is kept here (G14)."""

    kind = "confirm_stream"
    blocks_moves = False

    token: str

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = StreamArgs(instance_name=self.instance, token=self.token, receives=True)
            await services.rpc.call(node, STREAM_COMMIT, args, key=key)


class RemoveExport(_OnNode, frozen=True, kw_only=True):
    """Remove an unfinished export, or one that a newer export replaces."""

    kind = "remove_export"
    blocks_moves = False

    unfinished: bool = True

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = ExportArgs(export=self.instance, unfinished=self.unfinished)
            await services.rpc.call(node, EXPORT_REMOVE, args, key=key)


class RemoveImageCopy(Step, frozen=True, kw_only=True):
    """Remove the copy of an image from the store of a node, or what was written of one."""

    kind = "remove_image_copy"
    blocks_moves = False

    node: str
    image: str
    """The image's UUID."""
    directory: str
    unfinished: bool = False

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = ExportArgs(export=self.directory, unfinished=self.unfinished, stored=True)
            await services.rpc.call(node, EXPORT_REMOVE, args, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        """A copy that the configuration has is kept."""
        image = snapshot.images.get(self.image)
        return not self.unfinished and image is not None and self.node in image.nodes

    def concerns(self, snapshot: Snapshot) -> Concerned:
        del snapshot
        return Concerned(nodes={self.node}, images={self.image})

    def uses_disk(self, disk: str) -> bool:
        del disk
        return False


class AbandonBackup(_OnNode, frozen=True, kw_only=True):
    """Remove what was written of a backup that is not complete."""

    kind = "abandon_backup"
    blocks_moves = False

    target: str
    point: str
    disks: list[str]

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = NewPoint(
                target=self.target,
                instance_name=self.instance,
                point=self.point,
                disks=self.disks,
            )
            await services.rpc.call(node, BACKUP_ABANDON, args, key=key)


class DropSnapshot(_OnNode, frozen=True, kw_only=True):
    """Remove the snapshot of a disk."""

    kind = "drop_snapshot"

    disk: DiskSpec
    name: str
    unsure: bool = True
    """False: it was made, so it must be removed."""

    @property
    def args(self) -> SnapshotArgs:
        return SnapshotArgs(
            instance_name=self.instance, disk=self.disk, name=self.name, unsure=self.unsure
        )

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            await services.rpc.call(node, SNAPSHOT_DROP, self.args, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        """A snapshot that belongs to its instance is kept."""
        return any(
            self.name == one.name
            for instance in snapshot.instances.values()
            for had in instance.snapshots
            for one in had.disks
        )

    def uses_disk(self, disk: str) -> bool:
        return disk == self.disk.uuid


def snapshot_removals(
    snapshot: Snapshot,
    instance: Instance,
    wanted: Iterable[InstanceSnapshot],
    *,
    unsure: bool = False,
) -> list[DropSnapshot]:
    """Return the steps that remove snapshots of an instance's disks from its storage."""
    disks = {disk.uuid: disk for disk in instance_spec(snapshot, instance).disks}
    return [
        DropSnapshot(
            node=instance.primary_node,
            instance=instance.name,
            disk=disks[one.disk].public,
            name=one.name,
            unsure=unsure,
        )
        for had in wanted
        for one in had.disks
    ]


def memory_removal(
    snapshot: Snapshot, instance: Instance, memory: Disk, *, unsure: bool = False
) -> RemoveDisk:
    """Return the step that removes the disk with the memory of a snapshot."""
    disk = memory_spec(snapshot, instance, memory).public
    return RemoveDisk(node=instance.primary_node, instance=instance.name, disk=disk, unsure=unsure)
