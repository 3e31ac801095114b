"""Making the plan of a migration, a failover or a move: asks both nodes, changes nothing."""

from dataclasses import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import filled_beparams, filled_hvparams
from ganeti.config.storage_units import space_needed
from ganeti.layouts.places import Way, relocate
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, OpInstanceMigrate
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.rpc.procedures.host import NodeInfo
from ganeti.rpc.procedures.instances import InstanceArgs, RunningInstance
from ganeti.rpc.procedures.migration import MIGRATION_INFO
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    check_not_migrating,
    check_nothing_there,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.pending import check_nothing_pending
from ganeti.units.mirrors.opening import check_copy, check_source
from ganeti.units.node_choice import check_memory, check_space, free_resources
from ganeti.units.relocation.fit import shrinking_to_fit
from ganeti.units.relocation.plan import (
    LIVE,
    LiveGuest,
    Operation,
    Plan,
    StoppedGuest,
    refuse_hypervisor,
    refuse_operation,
    refuse_read_only,
    refuse_source,
)
from ganeti.units.relocation.replace import new_secondary
from ganeti.units.relocation.targets import TargetChoice
from ganeti.units.spindles import check_spindles


async def plan_migration(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, op: OpInstanceMigrate
) -> Plan:
    """Decide a migration, or the failover in its place; PrereqError if it cannot be done."""
    operation = Operation.MIGRATE
    _check_settled(ctx, instance, operation)
    source = primary_node(ctx, instance)
    if op.allow_failover and await _must_fail_over(ctx, instance, source):
        return await plan_failover(ctx, instance, choice, DEFAULT_SHUTDOWN_TIMEOUT_S)
    refuse_operation(operation, instance, source)
    present = refuse_source(operation, instance, source, await running_state(ctx, source, instance))
    info = await ctx.call(source, MIGRATION_INFO, InstanceArgs(instance=spec_of(ctx, instance)))
    refuse_hypervisor(instance, info)
    target, way = await _choose(ctx, operation, instance, source, choice)
    if way is Way.COPY:
        refuse_read_only(instance, info)
    resources = await _check_target(ctx, operation, instance, target, way, will_run=True)
    shrinking = shrinking_to_fit(
        ctx,
        instance,
        present,
        target,
        resources,
        may_change=op.allow_runtime_changes,
        what=operation.of(instance),
    )
    default = filled_hvparams(ctx.snapshot.cluster, instance).get("migration_mode", LIVE)
    is_live = (op.mode or default) == LIVE if op.live is None else op.live
    return Plan(
        operation=operation,
        instance=instance,
        source=source,
        target=target,
        way=way,
        guest=LiveGuest(is_live, info, shrinking),
    )


async def plan_failover(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, shutdown_timeout_s: int
) -> Plan:
    """Decide a failover; PrereqError if it cannot be done or would not be safe."""
    operation = Operation.FAIL_OVER
    _check_settled(ctx, instance, operation)
    source = primary_node(ctx, instance)
    refuse_operation(operation, instance, source)
    if not source.offline:
        state = await _state_or_refusal(ctx, instance, source)
        refuse_source(operation, instance, source, state)
    return await _stopped(
        ctx, operation, instance, source, choice, shutdown_timeout_s=shutdown_timeout_s
    )


async def plan_move(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, op: OpInstanceMove
) -> Plan:
    """Decide a move; PrereqError if it cannot be done or would not be safe."""
    operation = Operation.MOVE
    _check_settled(ctx, instance, operation)
    source = primary_node(ctx, instance)
    refuse_operation(operation, instance, source)
    plan = await _stopped(
        ctx, operation, instance, source, choice, shutdown_timeout_s=op.shutdown_timeout
    )
    return replace(plan, compress=op.compress)


def _check_settled(ctx: UnitContext, instance: Instance, operation: Operation) -> None:
    check_not_migrating(instance)
    check_nothing_pending(ctx, instance, to=operation)


async def _must_fail_over(ctx: UnitContext, instance: Instance, source: Node) -> bool:
    """Whether there is no guest that could be sent, or the instance always fails over."""
    if source.offline or filled_beparams(ctx.snapshot.cluster, instance)["always_failover"]:
        return True
    if instance.admin_state is not AdminState.UP:
        return True
    state = await running_state(ctx, source, instance)
    return state is None or state.state == "shutdown"


async def _state_or_refusal(
    ctx: UnitContext, instance: Instance, source: Node
) -> RunningInstance | None:
    try:
        return await running_state(ctx, source, instance)
    except RpcError as err:
        raise PrereqError(
            f"cannot tell whether {instance.name} runs: {err}; make sure that the node is dead, mark it:"
            f" gnt-node modify --offline yes {source.name}, and try again",
            ErrorCode.ENVIRONMENT,
        ) from err


async def _stopped(
    ctx: UnitContext,
    operation: Operation,
    instance: Instance,
    source: Node,
    choice: TargetChoice,
    *,
    shutdown_timeout_s: int,
) -> Plan:
    """The plan for a guest that is stopped first."""
    target, way = await _choose(ctx, operation, instance, source, choice)
    start = instance.admin_state is AdminState.UP
    info = await _check_target(ctx, operation, instance, target, way, will_run=start)
    memory = filled_beparams(ctx.snapshot.cluster, instance)["maxmem"]
    check_memory(info, target, memory if start else 0, operation.of(instance))
    replaced = None
    if way is Way.REPLACE:
        await check_source(ctx, instance, source, range(len(instance.disks)))
        # Its guest is stopped before the copies are made the same, so nothing else writes to them.
        replaced = new_secondary(ctx, instance, target, is_up=False)
    return Plan(
        operation=operation,
        instance=instance,
        source=source,
        target=target,
        way=way,
        guest=StoppedGuest(shutdown_timeout_s, start),
        force=choice.ignore_consistency,
        new_secondary=replaced,
    )


async def _choose(
    ctx: UnitContext,
    operation: Operation,
    instance: Instance,
    source: Node,
    choice: TargetChoice,
) -> tuple[Node, Way]:
    """The target, whose copy of the disks may be used, and what becomes of the disks."""
    target = await choice.choose(ctx, instance, source, operation)
    way = relocate(instance, NodeUuid(target.uuid)).way
    if way is Way.SWAP and is_mirrored(instance):
        await check_copy(ctx, instance, target, to=operation, force=choice.ignore_consistency)
    return target, way


async def _check_target(
    ctx: UnitContext,
    operation: Operation,
    instance: Instance,
    target: Node,
    way: Way,
    *,
    will_run: bool,
) -> NodeInfo:
    """What the target has free; PrereqError unless it has what the disks and the networks need."""
    makes_disks = way in (Way.COPY, Way.REPLACE)
    needs = space_needed(ctx.snapshot.cluster, instance.disks) if makes_disks else {}
    info = await free_resources(ctx, target, operation.of(instance), needs)
    if makes_disks:
        check_space(info, target, needs)
        check_spindles(ctx.snapshot, info, target, instance.disks)
    if will_run:
        await check_links(ctx, target, instance)
    check_nothing_there(await running_state(ctx, target, instance), target, instance)
    return info
