"""Start, shutdown and reboot of instances."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.hypervisor_params import check_hypervisor_params
from ganeti.model.names import AdminState, AdminStateSource, DiskRole, RebootType
from ganeti.model.objects import Instance, InstanceUuid, Node
from ganeti.model.opcodes.instance import OpInstanceReboot, OpInstanceShutdown, OpInstanceStartup
from ganeti.model.param_checks import changed, check_backend_params
from ganeti.rpc.procedures.instances import (
    INSTANCE_INFO,
    INSTANCE_REBOOT,
    INSTANCE_SHUTDOWN,
    INSTANCE_START,
    InstanceArgs,
    RebootArgs,
    RunningInstance,
    ShutdownArgs,
    StartArgs,
)
from ganeti.units.allocation import PlacementRequest
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.hooks.environment import text
from ganeti.units.hooks.point import HookPoint
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    check_not_offline,
    check_shutdown_timeout,
    has_running_guest,
    is_running,
    primary_node,
    running_state,
    set_admin_state,
    spec_of,
)
from ganeti.units.instance.confinement import check_confinement
from ganeti.units.instance.disks import (
    close_secondaries,
    is_mirrored,
    open_disks,
    secondaries,
)
from ganeti.units.instance.grants import grant_primary, released
from ganeti.units.instance.hvparam_checks import check_hvparams_on_node
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.snapshot_checks import check_may_start, why_not_started
from ganeti.units.job_source import check_may_set
from ganeti.units.mirrors.opening import prepare_primary
from ganeti.units.node_choice import check_memory, check_online, free_resources
from ganeti.units.undo.disks import SetDiskRole
from ganeti.units.undo.instances import StartAgain, StopInstance


async def start_instance(
    ctx: UnitContext,
    instance: Instance,
    *,
    paused: bool = False,
    remember: bool = True,
    force: bool = False,
) -> None:
    """Start a guest on its primary node, and record that it should run.

    After a failure, or a crash before the record, the guest is stopped. With `force` it starts from mirrored disks
    that lack writes.
    """
    if why := why_not_started(instance):
        raise ExecError(f"{instance.name} cannot be started: {why}")
    instance = await grant_primary(ctx.config, instance)
    node = primary_node(ctx, instance)
    change = set_admin_state(instance.uuid, AdminState.UP) if remember else None
    async with ctx.undo_log() as undo:
        for other in secondaries(ctx, instance) if is_mirrored(instance) else ():
            await undo.push(SetDiskRole(node=other.uuid, instance=instance.uuid))
            await open_disks(ctx, instance, other, DiskRole.SECONDARY)
        await undo.push(StopInstance(node=node.uuid, instance=spec_of(ctx, instance)))
        if is_mirrored(instance):
            instance = await prepare_primary(ctx, instance, force=force)
        spec = spec_of(ctx, instance)
        await ctx.call(node, INSTANCE_START, StartArgs(instance=spec, paused=paused))
        undo.commit(change)
    ctx.services.placements.release(ctx.job_id)


@asynccontextmanager
async def stopped(ctx: UnitContext, instance: Instance, *, restart: bool) -> AsyncIterator[UndoLog]:
    """A block that stops a guest and starts it at the end, on the same or another node.

    If the block fails before its `commit`, or the master dies in it, the guest is started on its present node.
    """
    async with ctx.undo_log() as undo:
        if restart:
            await undo.push(StartAgain(instance=instance.uuid))
        yield undo


async def shut_down_source(
    ctx: UnitContext, instance: Instance, source: Node, timeout_s: int
) -> None:
    """Stop the guest, and have its node confirm it; a node that is marked offline counts as dead."""
    if source.offline:
        ctx.warn(f"node {source.name} is marked offline, so it is treated as dead")
        return
    ctx.step(f"shutting down the instance on {source.name} (at most {timeout_s} s)")
    args = ShutdownArgs(instance=spec_of(ctx, instance), timeout_s=timeout_s)
    await ctx.call(source, INSTANCE_SHUTDOWN, args)
    if await running_state(ctx, source, instance) is not None:
        raise ExecError(
            f"{instance.name} is still on {source.name} after it was shut down; nothing was moved"
        )


async def run_again(ctx: UnitContext, instance: Instance) -> None:
    """Start a guest that was stopped for a failed move, if it is still on its former node."""
    now = ctx.snapshot.instances.get(InstanceUuid(instance.uuid))
    if now is None or now.primary_node != instance.primary_node or now.migrating_to is not None:
        return
    try:
        if await running_state(ctx, primary_node(ctx, now), now) is None:
            await start_instance(ctx, now)
    except GanetiError as err:
        ctx.warn(f"{instance.name} could not be started again on its former node: {err}")


@dataclass(frozen=True)
class StartPlan:
    """The instance with its parameters for this start, and whether it is up already, or paused."""

    instance: Instance
    is_up: bool
    is_paused: bool
    needless: str = ""
    """The reason to do nothing, if the start is conditional."""


class LUInstanceStartup(InstanceUnit[OpInstanceStartup, StartPlan]):
    """Start an instance, optionally with parameters for this start only; resume a paused one."""

    hook = "instance-start"

    async def check_prereq(self, ctx: UnitContext) -> StartPlan:
        instance = self.instance(ctx.snapshot)
        if self.op.if_wanted and (why := await why_not_wanted(ctx, instance)):
            return StartPlan(instance, is_up=False, is_paused=False, needless=why)
        check_not_migrating(instance)
        check_not_offline(instance)
        node = primary_node(ctx, instance)
        check_online(node)
        check_may_set(ctx, instance.hypervisor, self.op.hvparams)
        instance = self._with_given_params(instance)
        state = await running_state(ctx, node, instance)
        is_up = has_running_guest(state)
        if not is_up:
            if self.op.hvparams:
                check_confinement(ctx, instance)
                await check_hvparams_on_node(ctx, node, instance)
            await check_can_start(ctx, node, instance)
        return StartPlan(instance, is_up, is_up and state is not None and state.state == "paused")

    def _with_given_params(self, instance: Instance) -> Instance:
        hvparams = check_hypervisor_params(
            instance.hypervisor, self.op.hvparams, of_instance=True, field="hvparams"
        )
        beparams = check_backend_params(self.op.beparams, "beparams")
        return replace(
            instance,
            hvparams={**instance.hvparams, **hvparams},
            beparams=changed(instance.beparams, beparams),
        )

    def hooks(self, snapshot: Snapshot, plan: StartPlan) -> HookPoint | None:
        return None if plan.needless else super().hooks(snapshot, plan)

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: StartPlan
    ) -> dict[str, str]:
        return {"FORCE": text(self.op.force)}

    async def execute(self, ctx: UnitContext, plan: StartPlan) -> Outcome:
        instance, remember = plan.instance, not self.op.no_remember
        if plan.needless:
            ctx.info(f"instance {instance.name} is not started: {plan.needless}")
            return Outcome()
        if not plan.is_up:
            ctx.step(f"starting instance {instance.name} on {primary_node(ctx, instance).name}")
            await start_instance(ctx, instance, paused=self.op.startup_paused, remember=remember)
            return Outcome()
        # Nothing to undo: a lost answer must not stop a guest that ran before.
        if not plan.is_paused:
            ctx.info(f"instance {instance.name} is running already")
        elif self.op.startup_paused:
            ctx.info(f"instance {instance.name} is paused")
        else:
            node = primary_node(ctx, instance)
            ctx.step(f"resuming instance {instance.name}, which is paused on {node.name}")
            await ctx.call(node, INSTANCE_START, StartArgs(instance=spec_of(ctx, instance)))
        return Outcome(change=set_admin_state(instance.uuid, AdminState.UP) if remember else None)


async def why_not_wanted(ctx: UnitContext, instance: Instance) -> str:
    """Return why the watcher must not start an instance; '' if it should run and runs nowhere (G5, G20).

    Called under the instance's lock. RpcError if its own node does not answer.
    """
    if instance.admin_state is not AdminState.UP:
        return f"its requested state is {instance.admin_state}"
    if instance.migrating_to is not None:
        return "an interrupted migration has not been resolved"
    if why := why_not_started(instance):
        return why
    home = primary_node(ctx, instance)
    check_online(home)
    state = await running_state(ctx, home, instance)
    if state is not None and state.state == "shutdown":
        return "its user has shut it down"
    if has_running_guest(state):
        return f"it is on {home.name} already"
    others = [node for node in ctx.snapshot.nodes.values() if node.vm_capable and node != home]
    args = InstanceArgs(instance=spec_of(ctx, instance))
    for uuid, found in (await ctx.call_all(others, INSTANCE_INFO, args)).items():
        if isinstance(found, RunningInstance):
            return f"something of it is on {ctx.snapshot.nodes[uuid].name}"
    return ""


async def check_can_start(ctx: UnitContext, node: Node, instance: Instance) -> None:
    """Refuse to start a guest if its node lacks memory or the networks."""
    check_may_start(instance)
    await check_links(ctx, node, instance)
    what = f"starting instance {instance.name}"
    demand = Demand.of(ctx.snapshot.cluster, instance)
    ctx.services.placements.place(PlacementRequest(demand).placed_on(ctx, node))
    info = await free_resources(ctx, node, what)
    check_memory(info, node, demand.memory, what)


class LUInstanceShutdown(InstanceUnit[OpInstanceShutdown, Instance]):
    """Shut the guest down, and kill it after the timeout."""

    hook = "instance-stop"

    def check_arguments(self) -> None:
        check_shutdown_timeout(self.op.timeout, "timeout")

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance, above_backup=True)
        if not self.op.force:
            check_not_offline(instance)
        node = primary_node(ctx, instance)
        if not self.op.ignore_offline_nodes:
            check_online(node)
        if self._by_user and await is_running(ctx, node, instance):
            raise PrereqError(
                f"{instance.name} runs on {node.name}, so its user has not shut it down",
                ErrorCode.WRONG_STATE,
            )
        return instance

    @property
    def _by_user(self) -> bool:
        return self.op.admin_state_source is AdminStateSource.USER

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: Instance
    ) -> dict[str, str]:
        return {"TIMEOUT": text(self.op.timeout)}

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        node = primary_node(ctx, plan)
        if node.offline:
            ctx.warn(f"node {node.name} is offline: {plan.name} is only marked as stopped")
        else:
            ctx.step(f"shutting down instance {plan.name} (at most {self.op.timeout} s)")
            args = ShutdownArgs(instance=spec_of(ctx, plan), timeout_s=self.op.timeout)
            await ctx.call(node, INSTANCE_SHUTDOWN, args)
        await close_secondaries(ctx, plan)
        # The offline mark stays, even if the guest is killed.
        is_remembered = not self.op.no_remember and plan.admin_state is not AdminState.OFFLINE
        source = self.op.admin_state_source or AdminStateSource.ADMIN
        down = set_admin_state(plan.uuid, AdminState.DOWN, source)

        def change(draft: Draft) -> None:
            now = draft.instances[plan.uuid]
            if not node.offline and (closed := released(draft, now)) != now:
                draft.put(closed)
            if is_remembered:
                down(draft)

        return Outcome(change=change)


@dataclass(frozen=True)
class RebootPlan:
    """The instance, and which of the three steps its reboot needs."""

    instance: Instance
    in_place: bool
    stop_first: bool


class LUInstanceReboot(InstanceUnit[OpInstanceReboot, RebootPlan]):
    """Reboot an instance; one that is down is started."""

    hook = "instance-reboot"

    def check_arguments(self) -> None:
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")

    async def check_prereq(self, ctx: UnitContext) -> RebootPlan:
        instance = self.instance(ctx.snapshot)
        is_full = self.op.reboot_type is RebootType.FULL
        check_not_migrating(instance, above_backup=not is_full)
        check_not_offline(instance)
        node = primary_node(ctx, instance)
        check_online(node)
        is_up = await is_running(ctx, node, instance)
        if not is_up:
            await check_can_start(ctx, node, instance)
        in_place = is_up and not is_full
        return RebootPlan(instance, in_place, stop_first=is_up and not in_place)

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: RebootPlan
    ) -> dict[str, str]:
        op = self.op
        return {
            "IGNORE_SECONDARIES": text(op.ignore_secondaries),
            "REBOOT_TYPE": text(op.reboot_type),
            "SHUTDOWN_TIMEOUT": text(op.shutdown_timeout),
        }

    async def execute(self, ctx: UnitContext, plan: RebootPlan) -> Outcome:
        instance, timeout_s = plan.instance, self.op.shutdown_timeout
        node, spec = primary_node(ctx, instance), spec_of(ctx, instance)
        if plan.in_place:
            ctx.step(f"rebooting instance {instance.name} ({self.op.reboot_type})")
            await ctx.call(
                node,
                INSTANCE_REBOOT,
                RebootArgs(instance=spec, reboot_type=self.op.reboot_type, timeout_s=timeout_s),
            )
            return Outcome(change=set_admin_state(instance.uuid, AdminState.UP))
        async with stopped(ctx, instance, restart=plan.stop_first) as restart:
            if plan.stop_first:
                ctx.step(f"shutting down instance {instance.name} (at most {timeout_s} s)")
                args = ShutdownArgs(instance=spec, timeout_s=timeout_s)
                await ctx.call(node, INSTANCE_SHUTDOWN, args)
            ctx.step(f"starting instance {instance.name}")
            restart.commit()
            await start_instance(ctx, instance)
        return Outcome()
