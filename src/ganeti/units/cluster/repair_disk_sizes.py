"""Correction of the sizes of disks in the configuration."""

from msgspec.structs import replace

from ganeti.base.errors import RpcError
from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.layouts.planner import Planner
from ganeti.layouts.registry import PLANNERS
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.objects import Disk, Instance, InstanceUuid
from ganeti.model.opcodes.storage import OpClusterRepairDiskSizes
from ganeti.rpc.procedures.disks import BLOCKDEV_INFO, DiskArgs, DiskInfo
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.disks import disks_on

Sizes = dict[tuple[InstanceUuid, int], int]
"""(instance, index of a disk) -> the real size in MiB, or spindles."""


class LUClusterRepairDiskSizes(LogicalUnit[OpClusterRepairDiskSizes, list[Instance]]):
    """Query the primary nodes for the sizes of disks, and record differences; no disk is changed."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        chosen = self._chosen(snapshot)
        names = sorted(one.name for one in chosen) if self.op.instances else ALL
        nodes = sorted({one.primary_node for one in chosen}) if self.op.instances else ALL
        return [lock(Level.INSTANCE, names), lock(Level.NODE, nodes, Mode.SHARED)]

    def _chosen(self, snapshot: Snapshot) -> list[Instance]:
        if not self.op.instances:
            return list(snapshot.instances.values())
        return [resolve_instance(snapshot, name) for name in self.op.instances]

    async def check_prereq(self, ctx: UnitContext) -> list[Instance]:
        return sorted(self._chosen(ctx.snapshot), key=lambda one: one.name)

    async def execute(self, ctx: UnitContext, plan: list[Instance]) -> Outcome:
        sizes: Sizes = {}
        spindles: Sizes = {}
        changed = []
        for instance in plan:
            for index, info in (await _looked_at(ctx, instance)).items():
                disk, at = instance.disks[index], (InstanceUuid(instance.uuid), index)
                what = f"disk {index} of {instance.name} has"
                if info.size != disk.size:
                    sizes[at] = info.size
                    changed.append([instance.name, index, "size", info.size])
                    ctx.info(f"{what} {info.size} MiB instead of the recorded {disk.size} MiB")
                if info.spindles and info.spindles != disk.spindles:
                    spindles[at] = info.spindles
                    changed.append([instance.name, index, "spindles", info.spindles])
                    ctx.info(
                        f"{what} {info.spindles} spindles instead of the recorded {disk.spindles or 'none'}"
                    )
        return Outcome(changed, change=_recorded(sizes, spindles) if changed else None)


async def _looked_at(ctx: UnitContext, instance: Instance) -> dict[int, DiskInfo]:
    """Return index -> its node's report, of the disks that could be examined."""
    node = ctx.snapshot.nodes[instance.primary_node]
    if node.offline:
        ctx.warn(f"node {node.name} is marked offline; disks of {instance.name} are skipped")
        return {}
    found = {}
    for disk in disks_on(ctx, instance, instance.primary_node):
        what = DiskArgs(instance_name=instance.name, disk=disk)
        try:
            info = await ctx.call(node, BLOCKDEV_INFO, what)
        except RpcError as err:
            ctx.warn(f"disk {disk.index} of {instance.name} is skipped: {err}")
            continue
        if not info.exists or info.size <= 0:
            why = info.problem or "it is missing"
            ctx.warn(f"disk {disk.index} of {instance.name} is skipped: {why}")
            continue
        found[disk.index] = info
    return found


def _recorded(sizes: Sizes, spindles: Sizes) -> Change:
    def changed(planner: Planner, disk: Disk, at: tuple[InstanceUuid, int]) -> Disk:
        if size := sizes.get(at):
            disk = planner.grown(disk, size)
        if count := spindles.get(at):
            disk = replace(disk, params={**disk.params, "spindles": count})
        return disk

    def change(draft: Draft) -> None:
        for uuid in dict.fromkeys(uuid for uuid, _index in (*sizes, *spindles)):
            instance = draft.instances[uuid]
            planner = PLANNERS[instance.disk_template]
            disks = tuple(
                changed(planner, disk, (uuid, index)) for index, disk in enumerate(instance.disks)
            )
            draft.put(replace(instance, disks=disks))

    return change
