"""Removing instances."""

from ganeti.base.errors import GanetiError
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Instance
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.rpc.procedures import BLOCKDEV_REMOVE, INSTANCE_SHUTDOWN, DiskArgs, ShutdownArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, primary_node, spec_of
from ganeti.units.node_choice import check_online


class LUInstanceRemove(InstanceUnit[OpInstanceRemove, Instance]):
    """Shut an instance down and remove its disks and its entry; a removal that broke off can be repeated."""

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        if not self.op.ignore_failures:
            check_online(primary_node(ctx, instance))
        return instance

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        node, spec = primary_node(ctx, plan), spec_of(ctx, plan)
        try:
            ctx.step(f"shutting down instance {plan.name} on node {node.name}")
            await ctx.call(
                node,
                INSTANCE_SHUTDOWN,
                ShutdownArgs(instance=spec, timeout_s=self.op.shutdown_timeout),
            )
            if spec.disks:
                ctx.step("removing its disks")
            for disk in spec.disks:
                await ctx.call(node, BLOCKDEV_REMOVE, DiskArgs(instance_name=plan.name, disk=disk))
        except GanetiError as err:
            if not self.op.ignore_failures:
                raise
            ctx.warn(
                f"{err}; going on, as asked: something of {plan.name} may be left on {node.name}"
            )
        ctx.step(f"removing instance {plan.name} from the cluster config")

        def forget(draft: Draft) -> None:
            draft.remove(draft.instances[plan.uuid])

        return Outcome(change=forget)
