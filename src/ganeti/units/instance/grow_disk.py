"""Making a disk of an instance larger."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.fill import disk_spec
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.rpc.procedures.devices import HOTPLUG_DISK, DeviceAction, DiskChangeArgs
from ganeti.rpc.procedures.disks import BLOCKDEV_GROW, GrowDiskArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    is_running,
    primary_node,
    put_instance,
    spec_of,
)
from ganeti.units.instance.device_changes import position_of
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.instance.requests import MAX_DISK_MIB
from ganeti.units.node_choice import check_online, check_space, free_resources


@dataclass(frozen=True)
class GrowPlan:
    """The disk as it is, the instance as it will be, and whether a guest is to be told."""

    node: Node
    disk: DiskSpec
    size: int
    after: Instance
    is_up: bool


class LUInstanceGrowDisk(InstanceUnit[OpInstanceGrowDisk, GrowPlan]):
    """Grow a disk; what was grown stays so, and the same request again goes on where this one broke off."""

    def check_arguments(self) -> None:
        op = self.op
        if op.amount < 0 or (op.amount == 0 and not op.absolute):
            raise InputError("must be more than nothing; disks never shrink", "amount")

    async def check_prereq(self, ctx: UnitContext) -> GrowPlan:
        op, instance = self.op, self.instance(ctx.snapshot)
        check_not_migrating(instance)
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
            raise InputError(f"a disk has at most {MAX_DISK_MIB} MiB", "amount")
        grown = [replace(one, size=size) if one is disk else one for one in instance.disks]
        after = replace(instance, disks=tuple(grown))
        check_instance_policy(ctx, after, ignore=op.ignore_ipolicy)
        info = await free_resources(ctx, node, f"growing disk {at} of {instance.name}")
        more = replace(disk, size=size - disk.size)
        check_space(info, node, space_needed(ctx.snapshot.cluster, [more]))
        is_up = await is_running(ctx, node, instance)
        return GrowPlan(node, disk_spec(at, disk), size, after, is_up)

    async def execute(self, ctx: UnitContext, plan: GrowPlan) -> Outcome:
        """The node first: a disk that is larger than the configuration says harms nobody."""
        disk, name = plan.disk, plan.after.name
        ctx.step(f"growing disk {disk.index} of {name} from {disk.size} to {plan.size} MiB")
        args = GrowDiskArgs(instance_name=name, disk=disk, size=plan.size)
        await ctx.call(plan.node, BLOCKDEV_GROW, args)
        await ctx.config.change(put_instance(plan.after))
        if plan.is_up:
            await self._tell_guest(ctx, plan)
        return Outcome()

    async def _tell_guest(self, ctx: UnitContext, plan: GrowPlan) -> None:
        grown = replace(plan.disk, size=plan.size)
        told = DiskChangeArgs(
            instance=spec_of(ctx, plan.after), action=DeviceAction.GROW, disk=grown
        )
        try:
            await ctx.call(plan.node, HOTPLUG_DISK, told)
        except RpcError as err:
            ctx.warn(f"{err}; the guest sees the new size of the disk at its next start")

    def dry_run_result(self, ctx: UnitContext, plan: GrowPlan) -> Any:
        return plan.size
