"""Starting, stopping and rebooting instances."""

from typing import Any

from msgspec.structs import replace

from ganeti.config.fill import filled_beparams
from ganeti.jobs.executor import Outcome
from ganeti.model import wire
from ganeti.model.hypervisor_params import check_hypervisor_params
from ganeti.model.names import AdminState, RebootType
from ganeti.model.objects import Instance
from ganeti.model.opcodes.instance import OpInstanceReboot, OpInstanceShutdown, OpInstanceStartup
from ganeti.rpc.procedures import (
    INSTANCE_REBOOT,
    INSTANCE_SHUTDOWN,
    INSTANCE_START,
    RebootArgs,
    ShutdownArgs,
    StartArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_offline,
    primary_node,
    running_state,
    set_admin_state,
    spec_of,
)
from ganeti.units.instance.requests import check_backend_params
from ganeti.units.node_choice import check_memory, check_online


async def start_instance(ctx: UnitContext, instance: Instance, *, paused: bool = False) -> None:
    """Start a guest on its primary node; a failure, or a crash before the job's end, leaves it stopped."""
    node, spec = primary_node(ctx, instance), spec_of(ctx, instance)
    async with ctx.undo_log() as undo:
        await undo.push("stop_instance", node=node.uuid, instance=wire.plain(spec))
        await ctx.call(node, INSTANCE_START, StartArgs(instance=spec, paused=paused))
        undo.commit()


class LUInstanceStartup(InstanceUnit[OpInstanceStartup, Instance]):
    """Start an instance, with parameters for this one start if some are given."""

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        check_not_offline(instance)
        node = primary_node(ctx, instance)
        check_online(node)
        instance = self._with_given_params(instance)
        memory = filled_beparams(ctx.snapshot.cluster, instance)["maxmem"]
        if await running_state(ctx, node, instance) is None:
            await check_memory(ctx, node, memory, f"starting instance {instance.name}")
        return instance

    def _with_given_params(self, instance: Instance) -> Instance:
        hvparams = check_hypervisor_params(
            instance.hypervisor, self.op.hvparams, of_instance=True, field="hvparams"
        )
        beparams = check_backend_params(self.op.beparams, "beparams")
        return replace(
            instance,
            hvparams={**instance.hvparams, **hvparams},
            beparams={**instance.beparams, **beparams},
        )

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        ctx.step(f"starting instance {plan.name} on {primary_node(ctx, plan).name}")
        await start_instance(ctx, plan, paused=self.op.startup_paused)
        if self.op.no_remember:
            return Outcome()
        return Outcome(change=set_admin_state(plan.uuid, AdminState.UP))


class LUInstanceShutdown(InstanceUnit[OpInstanceShutdown, Instance]):
    """Ask the guest to shut down, and end it when its time is over."""

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        if not self.op.force:
            check_not_offline(instance)
        if not self.op.ignore_offline_nodes:
            check_online(primary_node(ctx, instance))
        return instance

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        node = primary_node(ctx, plan)
        if node.offline:
            ctx.warn(f"node {node.name} is offline: {plan.name} is only marked as stopped")
        else:
            ctx.step(f"shutting down instance {plan.name} (at most {self.op.timeout} s)")
            args = ShutdownArgs(instance=spec_of(ctx, plan), timeout_s=self.op.timeout)
            await ctx.call(node, INSTANCE_SHUTDOWN, args)
        if self.op.no_remember:
            return Outcome()
        return Outcome(change=set_admin_state(plan.uuid, AdminState.DOWN))


class LUInstanceReboot(InstanceUnit[OpInstanceReboot, Instance]):
    """Reboot an instance; one that is down is started."""

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        check_not_offline(instance)
        check_online(primary_node(ctx, instance))
        return instance

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        node, spec = primary_node(ctx, plan), spec_of(ctx, plan)
        is_running = await running_state(ctx, node, plan) is not None
        timeout_s = self.op.shutdown_timeout
        if is_running and self.op.reboot_type is not RebootType.FULL:
            ctx.step(f"rebooting instance {plan.name} ({self.op.reboot_type})")
            args: Any = RebootArgs(
                instance=spec, reboot_type=self.op.reboot_type, timeout_s=timeout_s
            )
            await ctx.call(node, INSTANCE_REBOOT, args)
        else:
            if is_running:
                ctx.step(f"shutting down instance {plan.name}")
                await ctx.call(
                    node, INSTANCE_SHUTDOWN, ShutdownArgs(instance=spec, timeout_s=timeout_s)
                )
            ctx.step(f"starting instance {plan.name}")
            await start_instance(ctx, plan)
        return Outcome(change=set_admin_state(plan.uuid, AdminState.UP))
