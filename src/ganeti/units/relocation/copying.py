"""Copying the data of a disk to another one, on another node or on the same one, while the guest is down."""

from dataclasses import dataclass

from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Node
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_SEND,
    DiskListenArgs,
    DiskSendArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.telling import MIB, showing


@dataclass(frozen=True)
class DiskOn:
    """A disk as one of its nodes sees it."""

    node: Node
    disk: DiskSpec


async def copy_disk(
    ctx: UnitContext,
    instance: str,
    source: DiskOn,
    target: DiskOn,
    *,
    compress: str = "none",
    leaves_out_zeros: bool | None = None,
) -> None:
    """Let the node of `source` send the data to the node of `target`; the two talk directly.

    A node talks to itself as two would, so that the data is checked by its digest, and the copy outlives a
    restart of the node daemon. `leaves_out_zeros` tells whether the new disk is sure to read as zeros where
    nothing is sent; None: as disks of its template do.
    """
    token, address = ctx.ids.token(), target.node.secondary_ip
    wanted = DiskListenArgs(
        instance_name=instance,
        disk=target.disk,
        address=address,
        peer=source.node.certificate,
        token=token,
    )
    listening = await ctx.call(target.node, DISK_LISTEN, wanted)
    order = DiskSendArgs(
        instance_name=instance,
        disk=source.disk,
        address=address,
        port=listening.port,
        peer=target.node.certificate,
        token=token,
        compress=compress,
        leaves_out_zeros=leaves_out_zeros,
    )
    async with showing(ctx, source.node, f"disk {source.disk.index}"):
        sent = await ctx.call(source.node, DISK_SEND, order)
    rate = sent.data_bytes / MIB / max(sent.seconds, 0.001)
    ctx.info(
        f"disk {source.disk.index}: {sent.data_bytes // MIB} MiB in {sent.seconds:.1f} s ({rate:.0f} MiB/s)"
    )
