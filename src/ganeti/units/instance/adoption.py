"""Making the disks of a new instance of what lies on its node already."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import disk_spec
from ganeti.model.objects import Disk, Instance, Node
from ganeti.model.opcodes.base import DiskRequest
from ganeti.rpc.procedures.disks import BLOCKDEV_ADOPTABLE, AdoptDiskArgs
from ganeti.units.context import UnitContext


def sources(requests: Sequence[DiskRequest], disks: Sequence[Disk]) -> dict[str, str]:
    """UUID of a disk -> what it is made of; those that are made anew are not there."""
    return {
        disk.uuid: request.adopt
        for request, disk in zip(requests, disks, strict=True)
        if request.adopt is not None
    }


async def with_adopted_sizes(
    ctx: UnitContext, instance: Instance, node: Node, adopted: Mapping[str, str]
) -> Instance:
    """The instance with the sizes that the adopted disks have on its node; PrereqError says why one cannot be."""
    others = [
        str(disk.logical_id[-1])
        for one in ctx.snapshot.instances.values()
        if one.disk_template == instance.disk_template
        for disk in one.disks
        if disk.logical_id
    ]
    disks = []
    for index, disk in enumerate(instance.disks):
        if disk.uuid not in adopted:
            disks.append(disk)
            continue
        spec = disk_spec(ctx.snapshot, instance, index, instance.primary_node)
        args = AdoptDiskArgs(
            instance_name=instance.name, disk=spec, source=adopted[disk.uuid], others=others
        )
        try:
            found = await ctx.call(node, BLOCKDEV_ADOPTABLE, args)
        except RpcError as err:
            raise PrereqError(str(err), ErrorCode.WRONG_STATE) from err
        disks.append(replace(disk, size=found.size))
    return replace(instance, disks=tuple(disks))
