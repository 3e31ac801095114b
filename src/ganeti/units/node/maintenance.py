"""Maintenance of nodes: the way out for their instances, and the way back."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError
from ganeti.config.fill import filled_beparams
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Maintenance, Node
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceMigrate, OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks
from ganeti.model.opcodes.maintenance import OpNodeMaintenanceBegin, OpNodeMaintenanceEnd
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.protocols import iallocator_requests
from ganeti.protocols.iallocator_requests import PRIMARY_ONLY
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import VERSION
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.point import HookPoint
from ganeti.units.node.modify import LUNodeSetParams, ModifyPlan
from ganeti.units.node_choice import check_online
from ganeti.units.relocation.evacuation import AFTER_SUCCESS, Jobs, proposed_moves, say_moves

ASK_EVERY_S = 2.0
"""The interval at which a node that does not answer is asked again."""


@dataclass(frozen=True)
class MaintenancePlan:
    """A change of a node's role, and the jobs about its instances."""

    node: Node
    maintenance: Maintenance | None
    moved_away: tuple[InstanceUuid, ...]
    role: ModifyPlan | None
    """None: the role stays."""
    jobs: Jobs
    """Each begins after the success of the one before it."""

    def mark(self, draft: Draft) -> None:
        """Record the maintenance, or its end."""
        node = draft.nodes[self.node.uuid]
        draft.put(replace(node, maintenance=self.maintenance, moved_away=self.moved_away))


class LUNodeMaintenanceBegin(LogicalUnit[OpNodeMaintenanceBegin, MaintenancePlan]):
    """Drain a node and mark it; then submit the jobs that move its instances off."""

    def _role(self, node: Node) -> LUNodeSetParams:
        return LUNodeSetParams(
            OpNodeSetParams(node_name=node.name, drained=True, auto_promote=node.master_candidate)
        )

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return self._role(_node(snapshot, self.op)).declare_locks(snapshot)

    async def check_prereq(self, ctx: UnitContext) -> MaintenancePlan:
        node = _node(ctx.snapshot, self.op)
        check_online(node)
        role = await self._role(node).check_prereq(ctx)
        leaving, tied, resting = _by_way(ctx.snapshot, node)
        self._check_tied(node, tied)
        jobs = await self._departures(ctx, node, leaving)
        jobs += [[OpInstanceShutdown(instance_name=one.name)] for one in tied]
        for one in resting:
            ctx.info(f"{one.name} does not run, and stays: only {node.name} has its disks")
        before = node.maintenance or Maintenance(ctx.now, has_drained=not node.drained)
        return MaintenancePlan(
            node=node,
            maintenance=Maintenance(
                before.began_at, before.has_drained, _merged(before.stopped, tied)
            ),
            moved_away=_merged([one.uuid for one in ctx.snapshot.moved_away_from(node)], leaving),
            role=role,
            jobs=_one_by_one(jobs, self.op),
        )

    def _check_tied(self, node: Node, tied: list[Instance]) -> None:
        if tied and not self.op.shutdown:
            raise PrereqError(
                f"only {node.name} has the disks of {_names(tied)}: pass --shutdown to shut them down until the"
                " maintenance ends, or move them first (gnt-instance migrate --target-node)",
                ErrorCode.WRONG_STATE,
            )

    async def _departures(self, ctx: UnitContext, node: Node, leaving: list[Instance]) -> Jobs:
        """Return the jobs that move instances: those with a mirror to their secondary node, others as proposed."""
        stopping = [one for one in leaving if _must_stop(ctx.snapshot, one)]
        if stopping and not self.op.allow_failover:
            raise PrereqError(
                f"{_names(stopping)} cannot leave {node.name} live (always_failover): pass --allow-failover to stop"
                " them and start them on other nodes",
                ErrorCode.WRONG_STATE,
            )
        jobs: Jobs = []
        free = [one for one in leaving if not one.secondary_nodes]
        for one in leaving:
            if one.secondary_nodes:
                jobs.append([_migration(one, _secondary(ctx.snapshot, one))])
        if free:
            request = iallocator_requests.node_evacuate([one.name for one in free], PRIMARY_ONLY)
            found = await proposed_moves(ctx, request, free, self.op.iallocator)
            say_moves(ctx, found)
            jobs += [list(opcodes) for opcodes in found.jobs]
        return jobs

    def hooks(self, snapshot: Snapshot, plan: MaintenancePlan) -> HookPoint | None:
        return self._role(plan.node).hooks(snapshot, plan.role) if plan.role else None

    def dry_run_result(self, ctx: UnitContext, plan: MaintenancePlan) -> Any:
        del ctx
        return _summaries(plan)

    async def execute(self, ctx: UnitContext, plan: MaintenancePlan) -> Outcome:
        ctx.step(f"putting {plan.node.name} into maintenance")
        # The mark comes first: repeating the command after a crash must not find a drained node without it.
        await ctx.run.record_undo((), plan.mark)
        return await _finish(ctx, self._role(plan.node), plan)


class LUNodeMaintenanceEnd(LogicalUnit[OpNodeMaintenanceEnd, MaintenancePlan]):
    """Wait for the node, take its marks away, and submit the jobs that bring its instances back."""

    def check_arguments(self) -> None:
        if self.op.wait < 0:
            raise InputError("must not be negative", "wait")

    def _role(self, node: Node) -> LUNodeSetParams:
        return LUNodeSetParams(OpNodeSetParams(node_name=node.name, drained=False))

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return self._role(_node(snapshot, self.op)).declare_locks(snapshot)

    async def check_prereq(self, ctx: UnitContext) -> MaintenancePlan:
        node = _node(ctx.snapshot, self.op)
        check_online(node)
        away = ctx.snapshot.moved_away_from(node) if self.op.failback else []
        is_over = node.maintenance is None
        if is_over and not (away if self.op.failback else node.moved_away):
            raise PrereqError(
                f"node {node.name} is not in maintenance"
                + (", and no instance has left it for one" if self.op.failback else ""),
                ErrorCode.WRONG_STATE,
            )
        maintenance = node.maintenance or Maintenance(ctx.now)
        has_role = maintenance.has_drained and node.drained
        returning = [one for one in away if _can_return(ctx, one, node)]
        jobs = [
            *_restarts(ctx.snapshot, node, maintenance.stopped),
            *(_return_job(one, node) for one in returning),
        ]
        if returning:
            # Once all are back, none of them may be brought back again, wherever it goes later.
            jobs.append([OpNodeMaintenanceEnd(node_name=node.name)])
        return MaintenancePlan(
            node=node,
            maintenance=None,
            moved_away=tuple(one.uuid for one in returning),
            role=await self._role(node).check_prereq(ctx) if has_role else None,
            jobs=_one_by_one(jobs, self.op),
        )

    def hooks(self, snapshot: Snapshot, plan: MaintenancePlan) -> HookPoint | None:
        return self._role(plan.node).hooks(snapshot, plan.role) if plan.role else None

    def dry_run_result(self, ctx: UnitContext, plan: MaintenancePlan) -> Any:
        del ctx
        return _summaries(plan)

    async def execute(self, ctx: UnitContext, plan: MaintenancePlan) -> Outcome:
        with ctx.run.interruptible():
            await self._wait(ctx, plan.node)
        ctx.step(f"ending the maintenance of {plan.node.name}")
        return await _finish(ctx, self._role(plan.node), plan)

    async def _wait(self, ctx: UnitContext, node: Node) -> None:
        """Return once the node answers; ExecError if it stays silent."""
        left_s, is_told = float(self.op.wait), False
        while True:
            try:
                await ctx.call(node, VERSION, Nothing())
            except RpcError as err:
                ctx.run.check_canceled()
                if left_s <= 0:
                    raise ExecError(
                        f"node {node.name} does not answer ({err.reason}), and stays in maintenance; start the host,"
                        f" then run again: gnt-node maintenance off {node.name}"
                    ) from err
                if not is_told:
                    ctx.step(f"waiting for {node.name} to answer, at most {self.op.wait} seconds")
                    is_told = True
            else:
                return
            left_s -= ASK_EVERY_S
            await asyncio.sleep(ASK_EVERY_S)


async def _finish(ctx: UnitContext, role: LUNodeSetParams, plan: MaintenancePlan) -> Outcome:
    """Change the role; the queue commits the mark and submits the jobs in one transaction."""
    change: Change | None = None
    if plan.role is not None:
        change = (await role.execute(ctx, plan.role)).change

    def both(draft: Draft) -> None:
        if change is not None:
            change(draft)
        plan.mark(draft)

    return Outcome(None if plan.jobs else {"jobs": []}, change=both, jobs=plan.jobs)


def _node(snapshot: Snapshot, op: OpNodeMaintenanceBegin | OpNodeMaintenanceEnd) -> Node:
    return resolve_node(snapshot, op.node_uuid or op.node_name)


def _by_way(
    snapshot: Snapshot, node: Node
) -> tuple[list[Instance], list[Instance], list[Instance]]:
    """Return the instances that can run elsewhere, those that only run here, and those that stay because they are down."""
    here = snapshot.instances_on(node.uuid)
    local = [one for one in here if DISK_TEMPLATES[one.disk_template].is_local]
    leaving = [one for one in here if one not in local]
    tied = [one for one in local if one.admin_state is AdminState.UP]
    return leaving, tied, [one for one in local if one not in tied]


def _must_stop(snapshot: Snapshot, instance: Instance) -> bool:
    is_up = instance.admin_state is AdminState.UP
    return is_up and bool(filled_beparams(snapshot, instance)["always_failover"])


def _migration(instance: Instance, target: Node) -> OpCode:
    """Return the move to a node. It names the target, so that a repetition never moves the instance away again."""
    return OpInstanceMigrate(
        instance_name=instance.name, target_node=target.name, allow_failover=True
    )


def _secondary(snapshot: Snapshot, instance: Instance) -> Node:
    """Return the node that has the other copy of the disks; PrereqError if it is not in service."""
    [other] = (snapshot.nodes[uuid] for uuid in instance.secondary_nodes)
    if other.offline or other.maintenance is not None:
        state = "marked offline" if other.offline else "in maintenance, too"
        raise PrereqError(
            f"{instance.name} cannot leave: its secondary node {other.name} is {state};"
            " choose another one (gnt-instance replace-disks --new-secondary)",
            ErrorCode.WRONG_STATE,
        )
    return other


def _can_return(ctx: UnitContext, instance: Instance, node: Node) -> bool:
    """Return whether the node still has the data; the job warns if it has not, or if the guest had to be stopped."""
    if instance.secondary_nodes and node.uuid not in instance.secondary_nodes:
        ctx.warn(f"{instance.name} stays: {node.name} has no copy of its disks any more")
        return False
    if DISK_TEMPLATES[instance.disk_template].is_local:
        ctx.warn(f"{instance.name} stays: its disks have been moved")
        return False
    if _must_stop(ctx.snapshot, instance):
        ctx.warn(
            f"{instance.name} stays, because it cannot migrate live (always_failover);"
            f" gnt-instance failover {instance.name} brings it back"
        )
        return False
    return True


def _return_job(instance: Instance, node: Node) -> list[OpCode]:
    """Return the opcodes that bring an instance back, its mirrors first brought up to date."""
    back = _migration(instance, node)
    if not instance.secondary_nodes:
        return [back]
    fill = OpInstanceActivateDisks(instance_name=instance.name, wait_for_sync=True, if_wanted=True)
    return [fill, back]


def _restarts(snapshot: Snapshot, node: Node, stopped: Iterable[InstanceUuid]) -> Jobs:
    """Return the jobs that start what the maintenance has shut down, unless it was started or moved meanwhile."""
    found = (snapshot.instances.get(uuid) for uuid in stopped)
    return [
        [OpInstanceStartup(instance_name=one.name)]
        for one in found
        if one is not None and one.primary_node == node.uuid and one.admin_state is AdminState.DOWN
    ]


def _one_by_one(jobs: Jobs, op: OpCode) -> Jobs:
    """Return jobs with the reason and priority of `op`, each of which begins after the success of the one before it."""
    chained: Jobs = []
    for opcodes in jobs:
        first, *others = [replace(one, reason=op.reason, priority=op.priority) for one in opcodes]
        depends = [(-1, AFTER_SUCCESS)] if chained else None
        chained.append([replace(first, depends=depends), *others])
    return chained


def _merged(
    before: Iterable[InstanceUuid], instances: Iterable[Instance]
) -> tuple[InstanceUuid, ...]:
    return tuple(dict.fromkeys([*before, *(one.uuid for one in instances)]))


def _summaries(plan: MaintenancePlan) -> list[list[str]]:
    return [[op.summary() for op in job] for job in plan.jobs]


def _names(instances: list[Instance]) -> str:
    return ", ".join(one.name for one in instances)
