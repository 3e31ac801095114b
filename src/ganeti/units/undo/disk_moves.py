"""Undo of moves of the disks of running guests."""

from ganeti.config.snapshot import Snapshot
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.rpc.procedures.disk_moves import DISK_MOVE_END, EndDiskMoveArgs
from ganeti.units.relocation.switching import settle_disks
from ganeti.units.services import Services
from ganeti.units.undo.disks import RemoveDisk
from ganeti.units.undo.step import Concerned, Step, names_of, node_of


class EndDiskMove(Step, frozen=True, kw_only=True):
    """Stop copying the disks of a running guest; the configuration has the disks that it uses."""

    kind = "end_disk_move"

    node: str
    instance: InstanceSpec
    token: str

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = EndDiskMoveArgs(instance=self.instance, token=self.token, forget=True)
            await services.rpc.call(node, DISK_MOVE_END, args, key=key)

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned(names_of(snapshot, self.instance.uuid, self.instance.name), {self.node})


class SettleDiskMove(Step, frozen=True, kw_only=True):
    """Find out which disks a running guest uses, record them in the configuration, and remove the others."""

    kind = "settle_disk_move"

    node: str
    instance: InstanceSpec
    """The instance with its old disks."""
    disks: tuple[DiskSpec, ...]
    """The new ones."""
    token: str
    elsewhere: tuple[RemoveDisk, ...] = ()
    """The removal of the copies of both on other nodes; what the guest uses is kept."""

    async def run(self, services: Services, key: str) -> None:
        if node_of(services, self.node) is None:
            return
        await settle_disks(services, key, self.instance.uuid)
        snapshot, instance = services.config.snapshot, self.instance
        end = EndDiskMove(node=self.node, instance=instance, token=self.token)
        await end.run(services, f"{key}/end")
        here = [
            RemoveDisk(node=self.node, instance=instance.name, disk=disk.public, unsure=True)
            for disk in (*instance.disks, *self.disks)
        ]
        for number, removal in enumerate((*here, *self.elsewhere)):
            if not removal.superseded(snapshot):
                await removal.run(services, f"{key}/{number}")

    def concerns(self, snapshot: Snapshot) -> Concerned:
        nodes = {self.node, *(removal.node for removal in self.elsewhere)}
        return Concerned(names_of(snapshot, self.instance.uuid, self.instance.name), nodes)
