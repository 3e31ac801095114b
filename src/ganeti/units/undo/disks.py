"""Undoing the creation of disks, and removing what an instance has left."""

from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.units.services import Services
from ganeti.units.undo.step import Concerned, Step, check_not_moving_there, node_of


class RemoveDisk(Step, frozen=True, kw_only=True):
    """Remove a disk of the instance of this name from a node."""

    kind = "remove_disk"

    node: str
    instance: str
    disk: DiskSpec

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = DiskArgs(instance_name=self.instance, disk=self.disk)
            await services.rpc.call(node, BLOCKDEV_REMOVE, args, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        owner = self._owner(snapshot)
        if owner is None:
            return False
        if not DISK_TEMPLATES[self.disk.template].is_local:
            return True
        check_not_moving_there(owner, self.node)
        return self.node in owner.all_nodes

    def concerns(self, snapshot: Snapshot) -> Concerned:
        owner = self._owner(snapshot)
        return Concerned({self.instance, *([owner.name] if owner else ())}, {self.node})

    def uses_disk(self, disk: str) -> bool:
        return False

    @property
    def removes(self) -> str:
        return self.disk.uuid

    def _owner(self, snapshot: Snapshot) -> Instance | None:
        """The instance that has the disk now."""
        for instance in snapshot.instances.values():
            if any(disk.uuid == self.disk.uuid for disk in instance.disks):
                return instance
        return None


def removals(node: Node, instance: InstanceSpec) -> list[Step]:
    """The steps that remove all disks of an instance from a node."""
    return [
        RemoveDisk(node=node.uuid, instance=instance.name, disk=disk) for disk in instance.disks
    ]
