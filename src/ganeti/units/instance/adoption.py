"""New disks of an instance from volumes or devices that exist on its node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import disk_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import DetachedDisk, Disk, Instance, Node, NodeUuid
from ganeti.model.opcodes.base import DiskRequest
from ganeti.rpc.procedures.disks import BLOCKDEV_ADOPTABLE, AdoptDiskArgs, OtherDisk
from ganeti.units.context import UnitContext


def sources(requests: Sequence[DiskRequest], disks: Sequence[Disk]) -> dict[str, str]:
    """UUID of a disk -> the existing volume or device; new disks have none."""
    return {
        disk.uuid: request.adopt
        for request, disk in zip(requests, disks, strict=True)
        if request.adopt is not None
    }


async def with_adopted_sizes(
    ctx: UnitContext, instance: Instance, node: Node, adopted: Mapping[str, str]
) -> Instance:
    """Return the instance with the sizes of the adopted disks on its node; PrereqError gives the fault of one."""
    in_use = list(_in_use(ctx.snapshot, instance, node))
    disks = []
    for index, disk in enumerate(instance.disks):
        if disk.uuid not in adopted:
            disks.append(disk)
            continue
        spec = disk_spec(ctx.snapshot, instance, index, instance.primary_node)
        args = AdoptDiskArgs(
            instance_name=instance.name, disk=spec, source=adopted[disk.uuid], in_use=list(in_use)
        )
        try:
            found = await ctx.call(node, BLOCKDEV_ADOPTABLE, args)
        except RpcError as err:
            raise PrereqError(str(err), ErrorCode.WRONG_STATE) from err
        disks.append(replace(disk, size=found.size))
        # The volume gets the disk's name only at its adoption.
        here = replace(spec, logical_id=(*spec.own_id[:1], adopted[disk.uuid]), part=())
        in_use.append(OtherDisk(owner=f"disk {index} of the same request", disk=here.public))
    return replace(instance, disks=tuple(disks))


def _in_use(snapshot: Snapshot, instance: Instance, node: Node) -> Iterator[OtherDisk]:
    """Yield every disk that `node` has or sees, of any template, in the node's form."""

    def seen(disk: Disk, nodes: Iterable[str], owner: str) -> Iterator[OtherDisk]:
        if node.uuid in nodes or DISK_TEMPLATES[disk.template].shared:
            alone = replace(instance, disks=(disk,))
            spec = disk_spec(snapshot, alone, 0, NodeUuid(node.uuid))
            yield OtherDisk(owner=owner, disk=spec.public)

    for one in snapshot.instances.values():
        for number, disk in enumerate(one.disks):
            yield from seen(disk, one.all_nodes, f"disk {number} of instance {one.name}")
    for free in snapshot.table(DetachedDisk).values():
        yield from seen(free.disk, free.nodes, f"{free.what}, which is detached")
