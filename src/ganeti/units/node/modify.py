"""Changes of a node's role and parameters."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GanetiError, PrereqError
from ganeti.config.fill import filled_beparams
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import CLUSTER_LOCK, Level
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.names import AdminState
from ganeti.model.objects import InstanceUuid, Node
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.param_checks import changed, check_single_node_params
from ganeti.model.recovery import NodeState, Recovery
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import node_variables
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.instance.requests import check_address
from ganeti.units.job_source import check_may_set_of_nodes
from ganeti.units.node.candidate_pool import can_be_candidate, missing_candidates
from ganeti.units.node.catch_up import (
    bring_up_to_date,
    check_can_return,
    end_misplaced,
    tell_of_return,
)
from ganeti.units.node.promotion import make_fit
from ganeti.units.node.roles import check_master, check_request, with_role
from ganeti.units.oob.command import check_powered

SHOWN_NAMES = 5
"""The number of instances that a warning names."""


@dataclass(frozen=True)
class ModifyPlan:
    """The node before and after, and others that become candidates instead."""

    old: Node
    new: Node
    promoted: tuple[Node, ...] = ()

    @property
    def returns(self) -> bool:
        """True if the node was away and takes part again."""
        return self.old.offline and not self.new.offline

    @property
    def resigns(self) -> bool:
        """True if the node votes or is a candidate, and is to lose that."""
        leaves = self.new.offline and not self.old.offline
        return leaves or (self.old.master_candidate and not self.new.master_candidate)

    @property
    def fit(self) -> list[Node]:
        """All new candidates, in their new form."""
        becomes = self.new.master_candidate and not self.old.master_candidate
        others = [replace(node, master_candidate=True) for node in self.promoted]
        return [*([self.new] if becomes else []), *others]


class LUNodeSetParams(LogicalUnit[OpNodeSetParams, ModifyPlan]):
    """Change a node's role and parameters."""

    def check_arguments(self) -> None:
        op = self.op
        check_request(op)
        if op.secondary_ip is not None:
            check_address(op.secondary_ip, "secondary_ip")
        check_single_node_params(op.ndparams or {})

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        op = self.op
        wanted = [lock(Level.NODE, ALL if op.auto_promote else self._node(snapshot).uuid)]
        if op.offline or op.drained or False in (op.master_candidate, op.master_capable):
            # Nodes lose their state one at a time: with many at once it would still need nodes that are no longer called.
            wanted.append(lock(Level.CLUSTER, CLUSTER_LOCK))
        return wanted

    async def check_prereq(self, ctx: UnitContext) -> ModifyPlan:
        op, old = self.op, self._node(ctx.snapshot)
        check_may_set_of_nodes(ctx, op.ndparams)
        if op.powered is not None:
            check_powered(ctx.snapshot, old)
        if old.uuid == ctx.snapshot.cluster.master_node:
            check_master(op, old)
        if op.offline and op.awaits_return:
            _check_has_not_returned(ctx, old)
        new = replace(
            with_role(old, op),
            secondary_ip=op.secondary_ip or old.secondary_ip,
            ndparams=changed(old.ndparams, check_single_node_params(op.ndparams or {})),
        )
        self._check_instances(ctx.snapshot, old, new)
        promoted = self._promoted(ctx, old, new)
        new = self._filled_pool(ctx.snapshot, old, new)
        plan = ModifyPlan(old, new, promoted)
        if plan.returns:
            await check_can_return(ctx, old, ends_misplaced=op.end_misplaced)
        ctx.check_change(lambda draft: _apply(draft, plan))
        return plan

    def _check_instances(self, snapshot: Snapshot, old: Node, new: Node) -> None:
        here = snapshot.instances_of(old.uuid)
        if here and old.vm_capable and not new.vm_capable:
            raise PrereqError(
                f"node {old.name} has {len(here)} instances, for example {here[0].name}:"
                " it cannot stop being vm_capable",
                ErrorCode.WRONG_STATE,
            )
        mirrored = [one for one in here if one.secondary_nodes]
        if mirrored and old.secondary_ip != new.secondary_ip:
            raise PrereqError(
                f"node {old.name} has {len(mirrored)} mirrored instances, for example {mirrored[0].name}:"
                " its secondary address cannot change",
                ErrorCode.WRONG_STATE,
            )

    def _promoted(self, ctx: UnitContext, old: Node, new: Node) -> tuple[Node, ...]:
        """Return the node that replaces a former candidate; PrereqError if no node can."""
        if new.master_candidate or not (old.master_candidate or self.op.auto_promote):
            return ()
        pool_size = ctx.snapshot.cluster.candidate_pool_size
        missing = missing_candidates(ctx.snapshot, pool_size, without=old.uuid)
        if self.op.auto_promote:
            return tuple(missing)
        if missing and not self.op.force:
            raise PrereqError(
                f"without {old.name} there would be too few master candidates: replace it by"
                f" {missing[0].name} (--auto-promote), or force it (--force)",
                ErrorCode.WRONG_STATE,
            )
        return ()

    def _filled_pool(self, snapshot: Snapshot, old: Node, new: Node) -> Node:
        """Promote a node that becomes eligible if the pool is not full."""
        becomes_fit = can_be_candidate(new) and not can_be_candidate(old)
        if self.op.master_candidate is not None or new.master_candidate or not becomes_fit:
            return new
        have = len(snapshot.master_candidates())
        return replace(new, master_candidate=have < snapshot.cluster.candidate_pool_size)

    def hooks(self, snapshot: Snapshot, plan: ModifyPlan) -> HookPoint:
        """Return the requested roles in upstream's form; `None` stands for an unchanged or implied role."""
        op = self.op
        requested = {
            "MASTER_CANDIDATE": op.master_candidate,
            "OFFLINE": op.offline,
            "DRAINED": op.drained,
            "MASTER_CAPABLE": op.master_capable,
            "VM_CAPABLE": op.vm_capable,
        }
        variables = {name: str(value) for name, value in requested.items()}
        variables = {**node_variables(plan.new), **variables}
        return on_nodes("node-modify", variables, snapshot, [plan.old.uuid])

    async def execute(self, ctx: UnitContext, plan: ModifyPlan) -> Outcome:
        if plan.returns and self.op.end_misplaced:
            await end_misplaced(ctx, plan.old)
        if plan.returns:
            ctx.step(f"bringing {plan.new.name} up to date")
            await bring_up_to_date(ctx, plan.old)
        _warn_of_instances(ctx, plan)
        await make_fit(ctx, plan.fit, files_for=[plan.new] if plan.returns else [])
        result = _differences(plan)
        if not (plan.resigns or plan.returns):
            return Outcome(result, change=lambda draft: _apply(draft, plan))
        # The node is notified of its new role only after that is recorded.
        await ctx.run.record_undo((), lambda draft: _apply(draft, plan))
        if plan.returns:
            await tell_of_return(ctx, plan.new)
        if plan.resigns or (plan.returns and not plan.new.master_candidate):
            await _demote(ctx, plan.new)
        if plan.returns and self.op.end_misplaced and (jobs := _reconnecting(ctx, plan.new)):
            return Outcome(jobs=jobs)
        return Outcome(result)


def _check_has_not_returned(ctx: UnitContext, node: Node) -> None:
    """Refuse to mark a node offline that has answered since it was fenced.

    Guests may have been started on it while the job waited for its lock. A failover trusts the mark, so they would run
    twice.
    """
    for one in ctx.services.recovery.status().nodes:
        if one.name == node.name and one.state in (NodeState.HEALTHY, NodeState.RETURNING):
            raise PrereqError(
                f"node {node.name} answers again, so automatic recovery does not mark it offline;"
                " there is nothing to do",
                ErrorCode.WRONG_STATE,
            )


def _reconnecting(ctx: UnitContext, node: Node) -> list[list[OpCode]]:
    """Return the jobs that synchronise the copies on a returning node from the present writers (D9)."""
    return [
        [OpInstanceActivateDisks(instance_name=one.name, instance_uuid=one.uuid, if_wanted=True)]
        for one in ctx.snapshot.instances.values()
        if node.uuid in one.secondary_nodes
        and one.admin_state is AdminState.UP
        and not ctx.snapshot.nodes[one.primary_node].offline
    ]


def _warn_of_instances(ctx: UnitContext, plan: ModifyPlan) -> None:
    """Warn about instances that may keep running on a node that is marked offline."""
    if plan.old.offline or not plan.new.offline:
        return
    primaries = ctx.snapshot.instances_on(plan.new.uuid)
    running = sorted(one.name for one in primaries if one.admin_state is AdminState.UP)
    if running:
        more = f" and {len(running) - SHOWN_NAMES} more" if len(running) > SHOWN_NAMES else ""
        ctx.warn(
            f"{plan.new.name} is marked offline with {len(running)} instances that are to run there"
            f" ({', '.join(running[:SHOWN_NAMES])}{more}); the mark stops none of them: switch the host off"
            " before they are failed over, or they may run twice"
        )


async def _demote(ctx: UnitContext, node: Node) -> None:
    """Remove a node from the state's holders, and a candidate's data from the node."""
    try:
        await ctx.services.candidates.demote(node)
    except GanetiError as err:
        ctx.warn(f"{node.name} may still vote, or have the state of a candidate: {err.message}")


_SHOWN = {
    "master_candidate": "master_candidate",
    "offline": "offline",
    "awaits_return": "awaits_return",
    "drained": "drained",
    "master_capable": "master_capable",
    "vm_capable": "vm_capable",
    "secondary_ip": "secondary_ip",
    "powered": "powered",
}


def _differences(plan: ModifyPlan) -> list[list[Any]]:
    """Return the changes as pairs of a name and the new value."""
    pairs = [(name, getattr(plan.old, name), getattr(plan.new, name)) for name in _SHOWN]
    found = [[name, after] for name, before, after in pairs if before != after]
    old, new = plan.old.ndparams, plan.new.ndparams
    found += [
        [f"nd/{name}", new.get(name, "default")]
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    return found + [["auto_promoted", node.name] for node in plan.promoted]


def _moved_away(draft: Draft, plan: ModifyPlan) -> tuple[InstanceUuid, ...]:
    """Return the instances that may return to the node: of a fenced one those whose recovery begins with the mark."""
    current = draft.nodes[plan.old.uuid]
    row = current.recovery
    if plan.returns:  # some may not have been moved
        return tuple(one.uuid for one in draft.moved_away_from(current))
    if plan.old.offline or not plan.new.offline or not row or row.state is not NodeState.FENCED:
        return current.moved_away
    leaving = (
        one.uuid
        for one in draft.instances_on(current.uuid)
        if (filled := filled_beparams(draft, one))["recovery_failback"]
        and filled["recovery"] == Recovery.FAILOVER
    )
    return tuple(dict.fromkeys((*current.moved_away, *leaving)))


def _apply(draft: Draft, plan: ModifyPlan) -> None:
    """Make the change, only of the requested fields, because tags may have changed meanwhile."""
    current = draft.nodes[plan.old.uuid]
    draft.put(
        replace(
            current,
            ndparams=plan.new.ndparams,
            moved_away=_moved_away(draft, plan),
            **{name: getattr(plan.new, name) for name in _SHOWN},
        )
    )
    for node in plan.promoted:
        draft.put(replace(draft.nodes[node.uuid], master_candidate=True))
