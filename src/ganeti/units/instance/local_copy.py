"""Copying the data of one disk to another one on the same node, while the guest is down."""

from ganeti.config.fill import instance_spec
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_SEND,
    DiskListenArgs,
    DiskSendArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.telling import showing

MIB = 1024 * 1024


async def copy_disks(ctx: UnitContext, node: Node, before: Instance, after: Instance) -> None:
    """Copy every disk to the one at its place; both are open on the node.

    The node talks to itself as two would, so that the data is checked by its digest, and the copy
    outlives a restart of the node daemon. What reads as zeros is left out only where the new disk
    is sure to read so.
    """
    old, new = (instance_spec(ctx.snapshot, one) for one in (before, after))
    for source, target in zip(old.disks, new.disks, strict=True):
        ctx.step(f"copying disk {source.index} ({source.size} MiB)")
        token, address = ctx.ids.token(), node.secondary_ip
        wanted = DiskListenArgs(
            instance_name=before.name,
            disk=target,
            address=address,
            peer=node.certificate,
            token=token,
        )
        listening = await ctx.call(node, DISK_LISTEN, wanted)
        order = DiskSendArgs(
            instance_name=before.name,
            disk=source,
            address=address,
            port=listening.port,
            peer=node.certificate,
            token=token,
            leaves_out_zeros=target.wipe or DISK_TEMPLATES[target.template].in_files,
        )
        async with showing(ctx, node, f"disk {source.index}"):
            sent = await ctx.call(node, DISK_SEND, order)
        rate = sent.data_bytes / MIB / max(sent.seconds, 0.001)
        ctx.info(
            f"disk {source.index}: {sent.data_bytes // MIB} MiB in {sent.seconds:.1f} s ({rate:.0f} MiB/s)"
        )
