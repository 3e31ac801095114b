"""Activation and deactivation of the disks of an instance on its node, without its guest."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.jobs.executor import Outcome
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
)
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_SHUTDOWN,
    DiskArgs,
    OpenDiskArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.disks import (
    close_secondaries,
    is_mirrored,
    open_secondaries,
    wait_for_sync,
)
from ganeti.units.instance.grants import grant_primary
from ganeti.units.mirrors.current import await_current
from ganeti.units.mirrors.look import settled_verdicts
from ganeti.units.mirrors.opening import prepare_primary, warn_of
from ganeti.units.node_choice import check_online


@dataclass(frozen=True)
class DisksPlan:
    """An instance's disks, and their nodes."""

    instance: Instance
    node: Node
    disks: tuple[DiskSpec, ...]


class LUInstanceActivateDisks(InstanceUnit[OpInstanceActivateDisks, DisksPlan]):
    """Make the disks usable; disks of a running guest are usable already."""

    async def check_prereq(self, ctx: UnitContext) -> DisksPlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        node = primary_node(ctx, instance)
        if self.op.if_wanted and instance.admin_state is not AdminState.UP:
            return DisksPlan(instance, node, ())
        check_online(node)
        disks = spec_of(ctx, instance).disks
        if self.op.ignore_size:
            disks = tuple(replace(disk, size=1) for disk in disks)
        return DisksPlan(instance, node, disks)

    async def execute(self, ctx: UnitContext, plan: DisksPlan) -> Outcome:
        paths: list[list[str]] = []
        if self.op.if_wanted and not plan.disks:
            return Outcome(paths)
        instance = await grant_primary(ctx.config, plan.instance)
        mirrored = is_mirrored(instance)
        await open_secondaries(ctx, instance)
        if mirrored:
            instance = await prepare_primary(ctx, instance)
        for disk, granted in zip(plan.disks, instance.disks, strict=True):
            opened = replace(disk, grant=granted.grant)
            args = OpenDiskArgs(instance_name=instance.name, disk=opened)
            made = await ctx.call(plan.node, BLOCKDEV_ASSEMBLE, args)
            paths.append([plan.node.name, f"disk/{disk.index}", made.path])
        if self.op.wait_for_sync:
            await wait_for_sync(ctx, plan.instance)
            if why := await await_current(ctx, plan.instance):
                ctx.warn(f"{plan.instance.name}: {why}")
        elif mirrored:
            warn_of(ctx, plan.instance, await settled_verdicts(ctx, plan.instance))
        return Outcome(paths)


class LUInstanceDeactivateDisks(InstanceUnit[OpInstanceDeactivateDisks, DisksPlan]):
    """Deactivate the disks; with force also if a node does not know whether they are in use."""

    async def check_prereq(self, ctx: UnitContext) -> DisksPlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        node = primary_node(ctx, instance)
        check_online(node)
        if not self.op.force and await running_state(ctx, node, instance) is not None:
            raise PrereqError(
                f"{instance.name} runs on {node.name} and uses its disks;"
                f" first run: gnt-instance shutdown {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        return DisksPlan(instance, node, spec_of(ctx, instance).disks)

    async def execute(self, ctx: UnitContext, plan: DisksPlan) -> Outcome:
        for disk in reversed(plan.disks):
            args = DiskArgs(instance_name=plan.instance.name, disk=disk)
            await ctx.call(plan.node, BLOCKDEV_SHUTDOWN, args)
        await close_secondaries(ctx, plan.instance)
        return Outcome()
