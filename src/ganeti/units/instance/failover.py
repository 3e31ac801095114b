"""Failover: an instance is stopped where it is, and started on another node that has its data.

A node that does not answer may still run it. So either the old copy is proven down, or an
administrator has marked the node offline and so promised that it is dead (G5, F21).
"""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError, RpcError
from ganeti.config.fill import filled_beparams
from ganeti.config.nvram import has_nvram_on_its_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import relocated
from ganeti.locking.requests import LockRequest
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN, ShutdownArgs
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import node_names, text
from ganeti.units.instance.access import (
    HookNodes,
    InstanceUnit,
    check_not_migrating,
    check_nothing_there,
    check_shutdown_timeout,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.cleanup import clean_up
from ganeti.units.instance.disks import close_secondaries, is_mirrored
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.nvram import copy_nvram, forget_nvram_step
from ganeti.units.instance.pending import check_nothing_pending
from ganeti.units.instance.power import start_instance, stopped
from ganeti.units.instance.reconcile_migration import record_primary
from ganeti.units.instance.targets import TargetChoice
from ganeti.units.mirrors.opening import check_copy
from ganeti.units.node_choice import check_memory, free_resources


@dataclass(frozen=True)
class FailoverPlan:
    """Which instance goes from where to where, and whether it is to run there."""

    instance: Instance
    source: Node
    target: Node
    shutdown_timeout_s: int
    start: bool
    force: bool
    """Whether the target's disks may lack writes."""


def moves(plan: object) -> tuple[Node, ...]:
    """From where to where a plan goes; nothing if it only reconciles."""
    source, target = getattr(plan, "source", None), getattr(plan, "target", None)
    return (source, target) if isinstance(source, Node) and isinstance(target, Node) else ()


async def plan_failover(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, shutdown_timeout_s: int
) -> FailoverPlan:
    """Decide a failover; PrereqError if it cannot be done or would not be safe."""
    check_not_migrating(instance)
    check_nothing_pending(ctx, instance, to="fail over")
    template = DISK_TEMPLATES[instance.disk_template]
    if not template.can_fail_over:
        raise PrereqError(
            f"disk template {template.name} of {instance.name} keeps its data on one node, so it cannot fail"
            " over; while that node lives: gnt-instance move",
            ErrorCode.WRONG_STATE,
        )
    source = primary_node(ctx, instance)
    await _check_source(ctx, instance, source)
    target = await choice.choose(ctx, instance, source, verb="fail over")
    if is_mirrored(instance):
        await check_copy(ctx, instance, target, to="fail over", force=choice.ignore_consistency)
    start = instance.admin_state is AdminState.UP
    what = f"failing over instance {instance.name}"
    info = await free_resources(ctx, target, what)
    memory = filled_beparams(ctx.snapshot.cluster, instance)["maxmem"]
    check_memory(info, target, memory if start else 0, what)
    if start:
        await check_links(ctx, target, instance)
    check_nothing_there(await running_state(ctx, target, instance), target, instance)
    force = choice.ignore_consistency
    return FailoverPlan(instance, source, target, shutdown_timeout_s, start, force)


async def _check_source(ctx: UnitContext, instance: Instance, source: Node) -> None:
    if source.offline:
        return
    try:
        state = await running_state(ctx, source, instance)
    except RpcError as err:
        raise PrereqError(
            f"cannot tell whether {instance.name} runs: {err}; make sure that the node is dead, mark it:"
            f" gnt-node modify --offline yes {source.name}, and try again",
            ErrorCode.ENVIRONMENT,
        ) from err
    if state is not None and state.state in ("incoming", "postmigrate", "migrating"):
        raise PrereqError(
            f"an earlier migration of {instance.name} is not finished on {source.name} ({state.state});"
            f" run: gnt-instance migrate --cleanup {instance.name}",
            ErrorCode.WRONG_STATE,
        )


async def fail_over(ctx: UnitContext, plan: FailoverPlan) -> None:
    """Carry a failover out; until the old copy is proven down nothing is changed."""
    instance, source, target = plan.instance, plan.source, plan.target
    moved = relocated(instance, NodeUuid(target.uuid))
    async with stopped(ctx, instance, restart=plan.start) as restart:
        await shut_down_source(ctx, instance, source, plan.shutdown_timeout_s)
        await _compare_again(ctx, plan)
        await _switch(ctx, plan)
        restart.commit()
        if plan.start:
            await _start(ctx, moved, target, force=plan.force)
        else:
            await close_secondaries(ctx, moved)


async def _compare_again(ctx: UnitContext, plan: FailoverPlan) -> None:
    """Refuse if the link was cut since the copies were compared; the guest starts again where it was."""
    if plan.force or not is_mirrored(plan.instance):
        return
    try:
        await check_copy(ctx, plan.instance, plan.target, to="fail over")
    except PrereqError:
        if plan.start and not plan.source.offline:
            await run_again(ctx, plan.instance)
        raise


async def _start(ctx: UnitContext, moved: Instance, target: Node, *, force: bool) -> None:
    ctx.step(f"starting the instance on {target.name}")
    try:
        await start_instance(ctx, moved, force=force)
    except (RpcError, ExecError) as err:
        raise ExecError(
            f"{moved.name} is on {target.name} now, but did not start: {err}; when the cause is mended:"
            f" gnt-instance startup {moved.name}"
        ) from err


async def _switch(ctx: UnitContext, plan: FailoverPlan) -> None:
    """From here on it is the target's: if it cannot start there, it is down, and known to be so."""
    instance, source, target = plan.instance, plan.source, plan.target
    switch = record_primary(InstanceUuid(instance.uuid), NodeUuid(target.uuid))
    has_variables = has_nvram_on_its_node(ctx.snapshot.cluster, instance)
    if not has_variables or source.offline:
        if has_variables:
            ctx.warn(f"its NVRAM is on {source.name}; it begins with a new one")
        await ctx.run.started()
        await ctx.config.change(switch)
        return
    async with ctx.undo_log() as undo:
        await copy_nvram(ctx, undo, instance, source, target)
        undo.commit(switch, then=[forget_nvram_step(ctx, instance, source)])


async def shut_down_source(
    ctx: UnitContext, instance: Instance, source: Node, timeout_s: int
) -> None:
    """Stop the guest, and have its node prove it; a node marked offline counts as dead."""
    if source.offline:
        ctx.warn(f"node {source.name} is offline: it is taken for dead, as it was marked")
        return
    ctx.step(f"shutting down the instance on {source.name} (at most {timeout_s} s)")
    args = ShutdownArgs(instance=spec_of(ctx, instance), timeout_s=timeout_s)
    await ctx.call(source, INSTANCE_SHUTDOWN, args)
    if await running_state(ctx, source, instance) is not None:
        raise ExecError(
            f"{instance.name} is still on {source.name} after it was shut down; nothing was moved"
        )


async def run_again(ctx: UnitContext, instance: Instance) -> None:
    """Start a guest that was stopped for a move that failed, if it is still where it was."""
    now = ctx.snapshot.instances.get(InstanceUuid(instance.uuid))
    if now is None or now.primary_node != instance.primary_node or now.migrating_to is not None:
        return
    try:
        if await running_state(ctx, primary_node(ctx, now), now) is None:
            await start_instance(ctx, now)
    except GanetiError as err:
        ctx.warn(f"{instance.name} could not be started again where it was: {err}")


def places(snapshot: Snapshot, instance: Instance, *move: Node) -> dict[str, str]:
    """What hooks are told of a move: `source, target`, or nothing if the instance stays."""
    source, target = move or [snapshot.nodes[instance.primary_node]] * 2
    others = [uuid for uuid in instance.secondary_nodes if uuid not in (source.uuid, target.uuid)]
    mirrored = bool(instance.secondary_nodes)
    return {
        "OLD_PRIMARY": source.name,
        "NEW_PRIMARY": target.name,
        "OLD_SECONDARY": node_names(snapshot, [target.uuid, *others]) if mirrored else "",
        "NEW_SECONDARY": node_names(snapshot, [source.uuid, *others]) if mirrored else "",
    }


class LUInstanceFailover(InstanceUnit[OpInstanceFailover, FailoverPlan | Instance]):
    """Stop an instance where it is, which may be dead, and start it on another node that has its data."""

    hook = "instance-failover"

    @property
    def _choice(self) -> TargetChoice:
        op = self.op
        given = op.target_node_uuid or op.target_node
        return TargetChoice(
            given,
            op.iallocator,
            ignore_policy=op.ignore_ipolicy,
            ignore_consistency=op.ignore_consistency,
        )

    def check_arguments(self) -> None:
        self._choice.check()
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return self._choice.locks(snapshot, self.instance(snapshot))

    async def check_prereq(self, ctx: UnitContext) -> FailoverPlan | Instance:
        instance = self.instance(ctx.snapshot)
        if self.op.cleanup:
            return instance
        return await plan_failover(ctx, instance, self._choice, self.op.shutdown_timeout)

    def hook_nodes(self, before: Instance, plan: FailoverPlan | Instance) -> HookNodes:
        """The primary node may be dead, so hooks run on it only afterwards."""
        others = [*before.secondary_nodes, *(node.uuid for node in moves(plan)[1:])]
        return others, [*others, before.primary_node]

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: FailoverPlan | Instance
    ) -> dict[str, str]:
        op = self.op
        return {
            **places(snapshot, instance, *moves(plan)),
            "IGNORE_CONSISTENCY": text(op.ignore_consistency),
            "SHUTDOWN_TIMEOUT": text(op.shutdown_timeout),
            "FAILOVER_CLEANUP": text(op.cleanup),
        }

    async def execute(self, ctx: UnitContext, plan: FailoverPlan | Instance) -> Outcome:
        if isinstance(plan, Instance):
            return await clean_up(ctx, plan)
        names = f"{plan.instance.name} from {plan.source.name} to {plan.target.name}"
        ctx.log(f"Failing over instance {names}")
        await fail_over(ctx, plan)
        return Outcome([plan.target.name])
