"""Undo of the creation of disks, and removal of an instance's leftovers."""

import logging
from collections.abc import Collection, Iterator

from ganeti.base.errors import RpcFailed
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import DetachedDisk, Disk, Instance, InstanceUuid, NodeUuid
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_GIVE_BACK,
    BLOCKDEV_INFO,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN,
    AdoptDiskArgs,
    DiskArgs,
    OpenDiskArgs,
)
from ganeti.units.services import Services
from ganeti.units.undo.step import Concerned, Step, check_not_moving_there, names_of, node_of

_log = logging.getLogger(__name__)


class RemoveDisk(Step, frozen=True, kw_only=True):
    """Remove a disk of the named instance from a node, or restore the adopted volume or device."""

    kind = "remove_disk"

    node: str
    instance: str
    disk: DiskSpec
    adopted: str = ""
    """The adopted volume or device, if any."""
    unsure: bool = False
    """True if the disk may not have been created."""

    async def run(self, services: Services, key: str) -> None:
        node = node_of(services, self.node)
        if node is None:
            return
        if self.adopted:
            what = AdoptDiskArgs(instance_name=self.instance, disk=self.disk, source=self.adopted)
            await services.rpc.call(node, BLOCKDEV_GIVE_BACK, what, key=key)
        else:
            args = DiskArgs(instance_name=self.instance, disk=self.disk)
            try:
                await services.rpc.call(node, BLOCKDEV_REMOVE, args, key=key)
            except RpcFailed as err:
                # Not every storage can remove a missing disk: a provider's script may fail.
                if not self.unsure:
                    raise
                found = await services.rpc.call(node, BLOCKDEV_INFO, args)
                if found.exists or found.problem:
                    raise
                _log.warning(
                    "disk %s does not exist and counts as removed: %s", self.disk.uuid, err
                )

    def superseded(self, snapshot: Snapshot) -> bool:
        owner = self._owner(snapshot)
        if owner is None:
            return self.disk.uuid in snapshot.table(DetachedDisk)
        if TEMPLATES[self.disk.template].shared:
            return any(
                layer.logical_id == self.disk.logical_id
                for layer in _layers(owner)
                if layer.uuid == self.disk.uuid
            )
        check_not_moving_there(owner, self.node)
        node = NodeUuid(self.node)
        wanted = (layer.part(node) for layer in _layers(owner) if layer.uuid == self.disk.uuid)
        return node in owner.all_nodes and self.disk.own_id in wanted

    def concerns(self, snapshot: Snapshot) -> Concerned:
        owner = self._owner(snapshot)
        return Concerned({self.instance, *([owner.name] if owner else ())}, {self.node})

    def uses_disk(self, disk: str) -> bool:
        return False

    @property
    def removes(self) -> str:
        return self.disk.uuid

    def _owner(self, snapshot: Snapshot) -> Instance | None:
        """Return the present instance of the disk."""
        for instance in snapshot.instances.values():
            if any(layer.uuid == self.disk.uuid for layer in _layers(instance)):
                return instance
        return None


class CloseDisk(Step, frozen=True, kw_only=True):
    """Close a disk on a node that was opened before it belonged to an instance."""

    kind = "close_disk"

    node: str
    instance: str
    disk: DiskSpec

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = DiskArgs(instance_name=self.instance, disk=self.disk)
            await services.rpc.call(node, BLOCKDEV_SHUTDOWN, args, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        """By then the disk may belong to a running instance."""
        return any(
            layer.uuid == self.disk.uuid
            for instance in snapshot.instances.values()
            for layer in _layers(instance)
        )

    def concerns(self, snapshot: Snapshot) -> Concerned:
        del snapshot
        return Concerned({self.instance}, {self.node})


def _layers(instance: Instance) -> Iterator[Disk]:
    for disk in (*instance.disks, *instance.memory_disks):
        yield from disk.layers()


def removals(
    node: NodeUuid, instance: InstanceSpec, only: Collection[str] | None = None
) -> list[RemoveDisk]:
    """Return the steps that remove disks (default: all) from a node; `instance` is that node's form of it."""
    return [
        RemoveDisk(node=node, instance=instance.name, disk=disk.public)
        for disk in instance.disks
        if only is None or disk.uuid in only
    ]


def closings(node: NodeUuid, instance: InstanceSpec, only: Collection[str]) -> list[Step]:
    """Return the steps that close some disks, by their UUIDs, on a node; `instance` is that node's form of it."""
    return [
        CloseDisk(node=node, instance=instance.name, disk=disk.public)
        for disk in instance.disks
        if disk.uuid in only
    ]


class SetDiskRole(Step, frozen=True, kw_only=True):
    """Set the disks of an instance on a node to their proper role; closed if there is no writer.

    This undoes the opening for a start, and follows a migration, when the location of the guest is known.
    """

    kind = "set_disk_role"

    node: str
    instance: str
    """The instance's UUID."""

    async def run(self, services: Services, key: str) -> None:
        snapshot = services.config.snapshot
        node, instance = node_of(services, self.node), _instance(snapshot, self.instance)
        if node is None or node.offline or instance is None:
            return
        check_not_moving_there(instance, self.node)
        role = _role(instance, NodeUuid(node.uuid))
        for disk in instance_spec(snapshot, instance, NodeUuid(node.uuid)).disks:
            own = f"{key}/{disk.index}"
            if role is None:
                what = DiskArgs(instance_name=instance.name, disk=disk)
                await services.rpc.call(node, BLOCKDEV_SHUTDOWN, what, key=own)
            else:
                args = OpenDiskArgs(instance_name=instance.name, disk=disk, role=role)
                await services.rpc.call(node, BLOCKDEV_ASSEMBLE, args, key=own)

    def superseded(self, snapshot: Snapshot) -> bool:
        instance = _instance(snapshot, self.instance)
        return instance is None or self.node not in instance.all_nodes

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned(names_of(snapshot, self.instance), {self.node})


def _instance(snapshot: Snapshot, uuid: str) -> Instance | None:
    return snapshot.instances.get(InstanceUuid(uuid))


def _role(instance: Instance, node: NodeUuid) -> DiskRole | None:
    """Return the role of the instance's disks on a node; None if they should be closed."""
    if instance.admin_state is not AdminState.UP or node not in instance.all_nodes:
        return None
    return DiskRole.PRIMARY if node == instance.primary_node else DiskRole.SECONDARY
