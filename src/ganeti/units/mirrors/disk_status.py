"""How the disks of one instance are on all its nodes."""

import asyncio

from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.mirrors import OpInstanceDiskStatus
from ganeti.rpc.procedures.disks import BLOCKDEV_INFO, DiskArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit
from ganeti.units.instance.disks import disks_on, is_mirrored
from ganeti.units.mirrors.judge import DiskState, Seen, judge, row

OFFLINE = "the node is marked offline"


async def parts_of(ctx: UnitContext, instance: Instance) -> list[list[Seen]]:
    """Every disk: its parts, the primary node's first."""
    nodes = [ctx.snapshot.nodes[uuid] for uuid in holders(instance)]
    by_node = await asyncio.gather(*(_of_node(ctx, instance, node) for node in nodes))
    return [[parts[at] for parts in by_node] for at in range(len(instance.disks))]


async def _of_node(ctx: UnitContext, instance: Instance, node: Node) -> list[Seen]:
    found = disks_on(ctx, instance, NodeUuid(node.uuid))
    return list(await asyncio.gather(*(_part(ctx, instance, node, disk) for disk in found)))


async def _part(ctx: UnitContext, instance: Instance, node: Node, disk: DiskSpec) -> Seen:
    is_primary = node.uuid == instance.primary_node
    if node.offline:
        return Seen(disk.index, node.name, is_primary, None, OFFLINE)
    try:
        args = DiskArgs(instance_name=instance.name, disk=disk)
        info = await ctx.call(node, BLOCKDEV_INFO, args)
    except RpcError as err:
        return Seen(disk.index, node.name, is_primary, None, err.reason)
    return Seen(disk.index, node.name, is_primary, info)


class LUInstanceDiskStatus(InstanceUnit[OpInstanceDiskStatus, Instance]):
    """The status of each part, a node a row (S97)."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance = self.instance(snapshot)
        return [
            lock(Level.INSTANCE, instance.name, Mode.SHARED),
            lock(Level.NODE, instance.all_nodes, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        return self.instance(ctx.snapshot)

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        rows = []
        for parts in await parts_of(ctx, plan):
            states = judge(parts, mirrored=is_mirrored(plan))
            if DiskState.SPLIT_BRAIN in states:
                ctx.warn(
                    f"disk {parts[0].disk}: both copies were written to while they did not see each other; keep that"
                    f" of {parts[0].node}: gnt-instance replace-disks --on-secondary {plan.name}"
                )
            rows += [row(part, state) for part, state in zip(parts, states, strict=True)]
        return Outcome(rows)
