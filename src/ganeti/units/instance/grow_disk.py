"""Growth of a disk of an instance."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError
from ganeti.base.sizes import format_mib
from ganeti.config.fill import disk_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import Growth, growth, holders
from ganeti.model.limits import MAX_DISK_MIB
from ganeti.model.names import DiskRole
from ganeti.model.objects import Disk, Instance, Node
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.rpc.procedures.devices import HOTPLUG_DISK, DeviceAction, DiskChangeArgs
from ganeti.rpc.procedures.disks import BLOCKDEV_GROW, GrowDiskArgs
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    is_running,
    primary_node,
    put_instance,
    spec_of,
)
from ganeti.units.instance.device_changes import position_of
from ganeti.units.instance.disks import (
    close_disks,
    close_secondaries,
    is_mirrored,
    open_disks,
    open_secondaries,
    planner_of,
    wait_for_sync,
)
from ganeti.units.instance.image_disks import is_image
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.instance.snapshot_checks import check_no_snapshots
from ganeti.units.mirrors.judge import Verdict, problem
from ganeti.units.mirrors.look import settled_verdicts, verdicts_of
from ganeti.units.node_choice import check_online, check_space, free_resources
from ganeti.units.telling import showing


@dataclass(frozen=True)
class GrowPlan:
    """The present disk, the future instance, and whether a guest must be notified."""

    node: Node
    index: int
    disk: Disk
    size: int
    before: Instance
    after: Instance
    steps: tuple[Growth, ...]
    is_up: bool


def _why_not(instance: Instance, at: int, verdicts: list[Verdict]) -> str:
    """Return why a mirrored disk cannot grow: both copies grow together, so they must be connected; '' if it can."""
    verdict = verdicts[at]
    if all(part.is_connected for part in verdict.parts):
        return ""
    found = problem(verdict, instance.name, is_up=True)
    return f"disk {at} of {instance.name} cannot grow while its copies are not connected: {found}"


class LUInstanceGrowDisk(InstanceUnit[OpInstanceGrowDisk, GrowPlan]):
    """Grow a disk; growth is never undone, and a repeated request continues where the failed one stopped."""

    hook = "disk-grow"

    def check_arguments(self) -> None:
        op = self.op
        if op.amount < 0 or (op.amount == 0 and not op.absolute):
            raise InputError("must be more than 0; disks never shrink", "amount")

    async def check_prereq(self, ctx: UnitContext) -> GrowPlan:
        op, instance = self.op, self.instance(ctx.snapshot)
        check_not_migrating(instance)
        check_no_snapshots(instance, "grown", "a snapshot has the former size")
        node = primary_node(ctx, instance)
        check_online(node)
        at = position_of(instance.disks, op.disk, "disk")
        disk = instance.disks[at]
        size = op.amount if op.absolute else disk.size + op.amount
        if size < disk.size:
            raise PrereqError(
                f"disk {at} of {instance.name} has {disk.size} MiB already; disks never shrink",
                ErrorCode.WRONG_STATE,
            )
        if size > MAX_DISK_MIB:
            raise InputError(
                f"the disk would have {size} MiB, but at most {format_mib(MAX_DISK_MIB)} are possible",
                "amount",
            )
        grown = planner_of(instance).grown(disk, size)
        disks = [grown if one is disk else one for one in instance.disks]
        after = replace(instance, disks=tuple(disks))
        check_instance_policy(ctx, after, ignore=op.ignore_ipolicy)
        await self._check_space(ctx, after, disk, grown)
        steps = tuple(growth(instance, disk, grown))
        is_up = await is_running(ctx, node, instance)
        if is_up and is_mirrored(instance):
            why = _why_not(instance, at, await verdicts_of(ctx, instance))
            if why:
                raise PrereqError(why, ErrorCode.WRONG_STATE)
        return GrowPlan(node, at, disk, size, instance, after, steps, is_up)

    async def _check_space(
        self, ctx: UnitContext, instance: Instance, disk: Disk, grown: Disk
    ) -> None:
        cluster = ctx.snapshot.cluster
        present, needs = space_needed(cluster, [disk]), space_needed(cluster, [grown])
        more = {unit: size - present.get(unit, 0) for unit, size in needs.items()}
        for uuid in holders(instance):
            node = ctx.snapshot.nodes[uuid]
            check_online(node)
            info = await free_resources(ctx, node, f"growing a disk of {instance.name}", more)
            check_space(info, node, more)

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: GrowPlan
    ) -> dict[str, str]:
        op = self.op
        return {
            "DISK": text(plan.index),
            "AMOUNT": text(op.amount),
            "ABSOLUTE": text(op.absolute),
        }

    async def execute(self, ctx: UnitContext, plan: GrowPlan) -> Outcome:
        """Grow the disk on the nodes first: a disk that is larger than in the configuration does no harm."""
        name = plan.after.name
        ctx.step(f"growing disk {plan.index} of {name} from {plan.disk.size} to {plan.size} MiB")
        if is_mirrored(plan.before) and not plan.is_up:
            try:
                await self._open(ctx, plan)
                await self._grow(ctx, plan)
            finally:
                await close_disks(ctx, plan.after, plan.node)
                await close_secondaries(ctx, plan.after)
        elif plan.is_up and is_image(plan.disk):
            # QEMU alone writes an image that a guest uses; the node then finds it large enough.
            await self._tell_guest(ctx, plan, must_grow=True)
            await self._grow(ctx, plan)
            return Outcome()
        else:
            await self._grow(ctx, plan)
        if plan.is_up:
            await self._tell_guest(ctx, plan)
        return Outcome()

    async def _open(self, ctx: UnitContext, plan: GrowPlan) -> None:
        """Connect the copies, or refuse before any copy has grown."""
        await open_secondaries(ctx, plan.before)
        await open_disks(ctx, plan.before, plan.node, DiskRole.SECONDARY)
        why = _why_not(plan.before, plan.index, await settled_verdicts(ctx, plan.before))
        if why:
            raise ExecError(why)
        await open_disks(ctx, plan.before, plan.node, DiskRole.PRIMARY)

    async def _grow(self, ctx: UnitContext, plan: GrowPlan) -> None:
        name = plan.after.name
        for step in plan.steps:
            layer = disk_spec(ctx.snapshot, plan.before, plan.index, step.node)
            for at in step.path:
                layer = layer.children[at]
            args = GrowDiskArgs(instance_name=name, disk=layer, size=step.size)
            node = ctx.snapshot.nodes[step.node]
            async with showing(ctx, node, f"new space of disk {plan.index} on {node.name}"):
                await ctx.call(node, BLOCKDEV_GROW, args)
        await ctx.config.change(put_instance(plan.after))
        if self.op.wait_for_sync and is_mirrored(plan.after):
            await wait_for_sync(ctx, plan.after)

    async def _tell_guest(
        self, ctx: UnitContext, plan: GrowPlan, *, must_grow: bool = False
    ) -> None:
        grown = disk_spec(ctx.snapshot, plan.after, plan.index)
        told = DiskChangeArgs(
            instance=spec_of(ctx, plan.after), action=DeviceAction.GROW, disk=grown
        )
        try:
            await ctx.call(plan.node, HOTPLUG_DISK, told)
        except RpcError as err:
            if must_grow:
                raise
            ctx.warn(f"{err}; the guest sees the new size of the disk at its next start")

    def dry_run_result(self, ctx: UnitContext, plan: GrowPlan) -> Any:
        return plan.size
