"""The plan of a migration, a failover or a move: queries both nodes, changes nothing."""

from dataclasses import dataclass, replace

from msgspec.structs import replace as struct_replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError, RpcFailed
from ganeti.config.fill import filled_beparams, filled_hvparams
from ganeti.config.storage_units import space_needed
from ganeti.layouts.places import Way, relocate
from ganeti.model.compression import NONE
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, OpInstanceMigrate
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.host import NodeInfo
from ganeti.rpc.procedures.instances import InstanceArgs, RunningInstance
from ganeti.rpc.procedures.migration import MIGRATION_INFO, MIGRATION_OBSTACLES, FitArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    check_not_migrating,
    check_nothing_there,
    has_running_guest,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.pending import check_nothing_pending
from ganeti.units.instance.snapshot_checks import check_no_snapshots, why_unfinished
from ganeti.units.mirrors.opening import check_copy, check_source
from ganeti.units.node_choice import check_memory, check_space, free_resources
from ganeti.units.relocation.location import record_location
from ganeti.units.relocation.plan import (
    LIVE,
    LiveGuest,
    Operation,
    Plan,
    Shrinking,
    StoppedGuest,
    refuse_operation,
    refuse_source,
    why_not_sent,
)
from ganeti.units.relocation.replace import new_secondary
from ganeti.units.relocation.targets import TargetChoice
from ganeti.units.spindles import check_spindles


async def plan_migration(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, op: OpInstanceMigrate
) -> Plan:
    """Plan a migration, or the failover instead of it; PrereqError if it is impossible."""
    decision = _Decision(ctx, Operation.MIGRATE, instance, choice)
    decision.check_settled()
    if op.allow_failover and await decision.has_no_guest_to_send():
        return await plan_failover(ctx, instance, choice, DEFAULT_SHUTDOWN_TIMEOUT_S)
    refuse_operation(Operation.MIGRATE, instance, decision.source)
    state = await running_state(ctx, decision.source, instance)
    present = refuse_source(Operation.MIGRATE, instance, decision.source, state)
    asked = InstanceArgs(instance=spec_of(ctx, instance))
    info = await ctx.call(decision.source, MIGRATION_INFO, asked)
    if why := why_not_sent(instance, info):
        raise PrereqError(
            f"{why}; this stops it for the move: gnt-instance move -n NODE {instance.name}",
            ErrorCode.WRONG_STATE,
        )
    target, way = await decision.target()
    free = await decision.check_target(target, way, will_run=True)
    shrinking = decision.shrinking(present, target, free, may_change=op.allow_runtime_changes)
    default = filled_hvparams(ctx.snapshot.cluster, instance).get("migration_mode", LIVE)
    is_live = (op.mode or default) == LIVE if op.live is None else op.live
    plan = decision.plan(target, way, LiveGuest(is_live, info, shrinking))
    return replace(plan, bandwidth_mib_s=op.bandwidth)


async def plan_failover(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, shutdown_timeout_s: int
) -> Plan:
    """Plan a failover; PrereqError if it is impossible or not safe."""
    instance = _without_lost_switch(ctx, instance, choice)
    decision = _Decision(ctx, Operation.FAIL_OVER, instance, choice)
    decision.check_settled()
    refuse_operation(Operation.FAIL_OVER, instance, decision.source)
    if not decision.source.offline:
        state = await decision.state_or_refusal()
        refuse_source(Operation.FAIL_OVER, instance, decision.source, state)
    return await decision.stopped(*await decision.target(), shutdown_timeout_s)


def _without_lost_switch(ctx: UnitContext, instance: Instance, choice: TargetChoice) -> Instance:
    """Return the instance with its old disks if only a lost node knows whether its guest used the new ones.

    The old disks have everything up to the switch; the new ones may lack any block, if there was no switch.
    """
    source = primary_node(ctx, instance)
    if instance.switching is None or not (source.offline and choice.ignore_consistency):
        return instance
    ctx.warn(
        f"a move of the disks of {instance.name} was interrupted on {source.name}, which is marked offline: it gets its"
        f" old disks (template {instance.disk_template}), and loses what its guest wrote to the new ones"
    )
    return struct_replace(instance, switching=None, migrating_to=None)


async def plan_move(
    ctx: UnitContext, instance: Instance, choice: TargetChoice, op: OpInstanceMove
) -> Plan:
    """Plan a move; PrereqError if it is impossible or not safe.

    A guest that runs is sent, if it can be, as by a migration; otherwise the job warns that it is shut down.
    """
    decision = _Decision(ctx, Operation.MOVE, instance, choice)
    decision.check_settled()
    refuse_operation(Operation.MOVE, instance, decision.source)
    state, present_mib = None, 0
    if instance.admin_state is AdminState.UP and not op.stop:
        state = await decision.state_or_refusal()
        present_mib = refuse_source(Operation.MOVE, instance, decision.source, state)
    target, way = await decision.target()
    if has_running_guest(state):
        found = await decision.sent(target, way, present_mib)
        if isinstance(found, Plan):
            if op.compress != NONE:
                ctx.info(f"the guest of {instance.name} runs, so its data is not compressed")
            return replace(found, bandwidth_mib_s=op.bandwidth)
        ctx.warn(f"{instance.name} is shut down while its disks are copied: {found}")
    plan = await decision.stopped(target, way, op.shutdown_timeout)
    return replace(plan, compress=op.compress, bandwidth_mib_s=op.bandwidth)


@dataclass(frozen=True)
class _Decision:
    """The request, and the queries to both nodes that it needs."""

    ctx: UnitContext
    operation: Operation
    instance: Instance
    choice: TargetChoice

    @property
    def source(self) -> Node:
        return primary_node(self.ctx, self.instance)

    @property
    def what(self) -> str:
        return self.operation.of(self.instance)

    def check_settled(self) -> None:
        """Refuse while an earlier operation of the instance is unfinished."""
        # The data of a guest above a backup is only on its node, and lost with a dead one.
        check_not_migrating(self.instance, above_backup=self.source.offline)
        check_nothing_pending(self.ctx, self.instance, to=self.operation)

    async def has_no_guest_to_send(self) -> bool:
        """Return whether a migration has no running guest to send, or the instance must always fail over."""
        beparams = filled_beparams(self.ctx.snapshot, self.instance)
        if self.source.offline or beparams["always_failover"]:
            return True
        if self.instance.admin_state is not AdminState.UP:
            return True
        state = await running_state(self.ctx, self.source, self.instance)
        return state is None or state.state == "shutdown"

    async def state_or_refusal(self) -> RunningInstance | None:
        """Return the source's report about the guest; PrereqError if the source does not answer."""
        try:
            return await running_state(self.ctx, self.source, self.instance)
        except RpcError as err:
            raise PrereqError(
                f"cannot tell whether {self.instance.name} runs: {err}; make sure that the node is dead, mark it:"
                f" gnt-node modify --offline yes {self.source.name}, and try again",
                ErrorCode.ENVIRONMENT,
            ) from err

    async def target(self) -> tuple[Node, Way]:
        """Return the target, whose copy of the disks may be used, and the way of the disks."""
        ctx, instance, choice = self.ctx, self.instance, self.choice
        target = await choice.choose(ctx, instance, self.source, self.operation)
        way = relocate(instance, NodeUuid(target.uuid)).way
        if way is Way.SWAP and is_mirrored(instance):
            force = choice.ignore_consistency
            await check_copy(ctx, instance, target, to=self.operation, force=force)
        return target, way

    async def check_target(self, target: Node, way: Way, *, will_run: bool) -> NodeInfo:
        """Return the target's free resources; PrereqError unless it has those that the disks and the networks need."""
        ctx, instance = self.ctx, self.instance
        makes_disks = way in (Way.COPY, Way.REPLACE)
        if makes_disks:
            check_no_snapshots(instance, "moved", "only the present data is copied")
        needs = space_needed(ctx.snapshot.cluster, instance.disks) if makes_disks else {}
        info = await free_resources(ctx, target, self.what, needs)
        if makes_disks:
            check_space(info, target, needs)
            check_spindles(ctx.snapshot, info, target, instance.disks)
        if will_run:
            await check_links(ctx, target, instance)
        check_nothing_there(await running_state(ctx, target, instance), target, instance)
        return info

    def shrinking(
        self, present_mib: int, target: Node, free: NodeInfo, *, may_change: bool
    ) -> Shrinking | None:
        """Return the memory that a running guest must give back to fit on the target; None if it fits.

        The result is at least its minimum memory (minmem). PrereqError if it does not fit and `may_change` is false.
        """
        if free.memory_free >= present_mib:
            return None
        minmem = filled_beparams(self.ctx.snapshot, self.instance)["minmem"]
        least = min(minmem, present_mib)
        check_memory(free, target, least, self.what)
        if not may_change:
            raise PrereqError(
                f"{self.what}: node {target.name} has {free.memory_free} MiB of memory free but needs {present_mib} MiB;"
                f" the guest could give memory back, down to {least} MiB, but that is not allowed"
                " (--no-runtime-changes)",
                ErrorCode.NO_RESOURCES,
            )
        return Shrinking(present_mib, free.memory_free)

    async def sent(self, target: Node, way: Way, present_mib: int) -> Plan | str:
        """Return the plan for a guest that keeps running, or the reason why it must be stopped."""
        ctx, instance = self.ctx, self.instance
        if filled_beparams(ctx.snapshot, instance)["always_failover"]:
            return "its backend parameter always_failover is set"
        spec = spec_of(ctx, instance)
        try:
            info = await ctx.call(self.source, MIGRATION_INFO, InstanceArgs(instance=spec))
            if why := why_not_sent(instance, info) or info.obstacle:
                return why
            fit = FitArgs(instance=spec_of(ctx, instance, target), info=info)
            obstacles = await ctx.call(target, MIGRATION_OBSTACLES, fit)
        except RpcFailed as err:
            if err.wire_error == UNREACHABLE:
                raise
            return str(err)
        if obstacles:
            return f"{target.name}: {'; '.join(obstacles)}"
        if way is Way.SWAP and self.choice.ignore_consistency:
            try:
                await check_copy(ctx, instance, target, to=self.operation)
            except PrereqError as err:
                return err.message
        free = await self.check_target(target, way, will_run=True)
        shrinking = self.shrinking(present_mib, target, free, may_change=True)
        plan = self.plan(target, way, LiveGuest(is_live=True, info=info, shrinking=shrinking))
        return await self.with_new_secondary(plan, is_up=True)

    async def stopped(self, target: Node, way: Way, shutdown_timeout_s: int) -> Plan:
        """Return the plan for a guest that is stopped first."""
        ctx, instance = self.ctx, self.instance
        start = instance.admin_state is AdminState.UP
        if start and (why := why_unfinished(instance)):
            ctx.warn(f"{instance.name} is not started: {why}")
            start = False
        free = await self.check_target(target, way, will_run=start)
        memory = filled_beparams(ctx.snapshot, instance)["maxmem"]
        check_memory(free, target, memory if start else 0, self.what)
        plan = self.plan(target, way, StoppedGuest(shutdown_timeout_s, start))
        if self.source.offline:
            force = self.choice.ignore_consistency
            ctx.check_change(
                record_location(instance.uuid, target.uuid, is_closed=False, force=force)
            )
        # Its guest is stopped before the copies are synchronised, so no other writer exists.
        return await self.with_new_secondary(plan, is_up=False)

    async def with_new_secondary(self, plan: Plan, *, is_up: bool) -> Plan:
        """Return the plan with the replacement that its way needs; PrereqError if no copy is complete."""
        ctx, instance = self.ctx, self.instance
        if plan.way is not Way.REPLACE:
            return plan
        await check_source(ctx, instance, self.source, range(len(instance.disks)))
        new = new_secondary(ctx, instance, plan.target, is_up=is_up)
        return replace(plan, new_secondary=new)

    def plan(self, target: Node, way: Way, guest: LiveGuest | StoppedGuest) -> Plan:
        return Plan(
            operation=self.operation,
            instance=self.instance,
            source=self.source,
            target=target,
            way=way,
            guest=guest,
            force=self.choice.ignore_consistency,
        )
