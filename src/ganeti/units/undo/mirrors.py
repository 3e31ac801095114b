"""Removal of the replaced copy of a mirrored disk, as the last step."""

from ganeti.base.errors import ExecError
from ganeti.config.fill import disk_spec
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.places import creation_order
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_SHUTDOWN,
    DISKS_INFO,
    DiskArgs,
    DiskInfo,
    DisksArgs,
    OpenDiskArgs,
)
from ganeti.units.mirrors.ask import ask_nodes
from ganeti.units.mirrors.judge import Verdict
from ganeti.units.services import Services
from ganeti.units.undo.disks import RemoveDisk
from ganeti.units.undo.step import Concerned, Step, names_of, node_of


class RemoveReplaced(Step, frozen=True, kw_only=True):
    """Remove a disk from a node whose copy was replaced, once the new copy has all data.

    Until then it lets the present copies connect, so that an interrupted replacement continues.
    """

    kind = "remove_replaced"
    blocks_moves = False
    """A guest is not moved to a copy without all data anyway."""

    node: str
    instance: str
    """The instance's UUID."""
    name: str
    disk: DiskSpec

    async def run(self, services: Services, key: str) -> None:
        instance = services.config.snapshot.instances.get(InstanceUuid(self.instance))
        at = _position(instance, self.disk.uuid)
        if instance is not None and at is not None:
            await _fill(services, key, instance, at)
        await self._removal.run(services, f"{key}/remove")

    def superseded(self, snapshot: Snapshot) -> bool:
        return self._removal.superseded(snapshot)

    def concerns(self, snapshot: Snapshot) -> Concerned:
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        others = instance.all_nodes if instance is not None else ()
        return Concerned(names_of(snapshot, self.instance, self.name), {self.node, *others})

    def uses_disk(self, disk: str) -> bool:
        del disk
        return False

    @property
    def removes(self) -> str:
        return self.disk.uuid

    @property
    def _removal(self) -> RemoveDisk:
        return RemoveDisk(node=self.node, instance=self.name, disk=self.disk)


def replaced_copies(node: NodeUuid, instance: InstanceSpec) -> list[Step]:
    """Return the steps that remove the disks of an instance from a node; `instance` is that node's form of it."""
    return [
        RemoveReplaced(node=node, instance=instance.uuid, name=instance.name, disk=disk.public)
        for disk in instance.disks
    ]


def _position(instance: Instance | None, disk: str) -> int | None:
    found = [at for at, one in enumerate(instance.disks) if one.uuid == disk] if instance else []
    return found[0] if found else None


async def _fill(services: Services, key: str, instance: Instance, at: int) -> None:
    """Return once the copies of a disk are the same; connect them until then. ExecError gives the progress."""
    verdict = await _look(services, instance, at)
    if verdict.is_whole:
        await _close(services, key, instance, verdict)
        return
    snapshot = services.config.snapshot
    if not any(snapshot.nodes[uuid].offline for uuid in instance.all_nodes):
        for uuid in creation_order(instance):
            await _connect(services, key, instance, snapshot.nodes[uuid], verdict)
    percents = [part.copy.percent for part in verdict.parts if part.copy is not None]
    told = ", ".join(f"{one:.0f}%" for one in percents if one is not None) or str(verdict.state)
    raise ExecError(
        f"the new copy of disk {at} of {instance.name} does not have all data yet ({told}); the old one is kept until then"
    )


async def _look(services: Services, instance: Instance, at: int) -> Verdict:
    async def ask(node: Node, args: DisksArgs) -> list[DiskInfo]:
        return await services.rpc.call(node, DISKS_INFO, args)

    found = await ask_nodes(services.config.snapshot, [instance], ask)
    return found[InstanceUuid(instance.uuid)][at]


async def _connect(
    services: Services, key: str, instance: Instance, node: Node, verdict: Verdict
) -> None:
    """Open one copy in its proper role; copies of a stopped guest are filled without a writer."""
    part, _state = verdict.of(node.name)
    is_writer = part.is_writing or (
        instance.admin_state is AdminState.UP and node.uuid == instance.primary_node
    )
    role = DiskRole.PRIMARY if is_writer else DiskRole.SECONDARY
    disk = disk_spec(services.config.snapshot, instance, verdict.disk, NodeUuid(node.uuid))
    args = OpenDiskArgs(instance_name=instance.name, disk=disk, role=role)
    await services.rpc.call(node, BLOCKDEV_ASSEMBLE, args, key=f"{key}/open/{node.uuid}")


async def _close(services: Services, key: str, instance: Instance, verdict: Verdict) -> None:
    """Close the copies of a stopped guest, which were open only to be filled."""
    if instance.admin_state is AdminState.UP or any(part.is_writing for part in verdict.parts):
        return
    snapshot = services.config.snapshot
    for uuid in instance.all_nodes:
        node = node_of(services, uuid)
        if node is None or not verdict.of(node.name)[0].is_open:
            continue
        disk = disk_spec(snapshot, instance, verdict.disk, uuid)
        args = DiskArgs(instance_name=instance.name, disk=disk)
        await services.rpc.call(node, BLOCKDEV_SHUTDOWN, args, key=f"{key}/close/{uuid}")
