"""An administrator's confirmation that a lost node is off."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.jobs.executor import Outcome
from ganeti.model.job import REMOTE_PREFIX, is_remote
from ganeti.model.objects import Node
from ganeti.model.opcodes.node import OpNodeFenced
from ganeti.model.recovery import NodeState
from ganeti.recovery.status import NodeStatus
from ganeti.recovery.times import LOST_S
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.services import NOT_LOST

_ANSWERS = frozenset({NodeState.HEALTHY, NodeState.RETURNING})


@dataclass(frozen=True)
class Confirmation:
    """The node, and why it is fenced already ('' if it is not)."""

    node: Node
    already: str


class LUNodeFenced(LogicalUnit[OpNodeFenced, Confirmation]):
    """Tell automatic recovery that a node is off. It takes no locks: jobs may hang on that node."""

    def check_arguments(self) -> None:
        if not self.op.confirm:
            raise InputError(
                "must be set, to state that the node is certainly off (gnt-node fenced --confirm NODE)",
                "confirm",
            )

    async def check_prereq(self, ctx: UnitContext) -> Confirmation:
        node = resolve_node(ctx.snapshot, self.op.node_uuid or self.op.node_name)
        watched = {one.name: one for one in ctx.services.recovery.status().nodes}
        if node.name not in watched:
            raise PrereqError(NOT_LOST, ErrorCode.WRONG_STATE)
        status = watched[node.name]
        if status.is_off:
            return Confirmation(node, status.why)
        _check_lost(status)
        return Confirmation(node, "")

    async def execute(self, ctx: UnitContext, plan: Confirmation) -> Outcome:
        name = plan.node.name
        if plan.already:
            return Outcome(f"Node {name} is fenced already: {plan.already}")
        await ctx.run.started()
        await ctx.services.recovery.confirm_fenced(plan.node.uuid, _person(ctx))
        return Outcome(
            f"Node {name} counts as off: its protected instances are recovered now, and the others can be failed over"
        )


def _check_lost(status: NodeStatus) -> None:
    """Refuse a node that may still run guests, as far as the master can see."""
    seconds = f"{status.silent_s:.0f} s ago"
    if status.state in _ANSWERS:
        raise PrereqError(
            f"node {status.name} is not off: it is {status.state.value}, and its last answer came {seconds}",
            ErrorCode.WRONG_STATE,
        )
    if status.silent_s < LOST_S:
        raise PrereqError(
            f"node {status.name} may still answer: its last answer came {seconds}, and it counts as lost after"
            f" {LOST_S:g} s; try again then",
            ErrorCode.WRONG_STATE,
        )


def _person(ctx: UnitContext) -> str:
    """Return who confirms; the job's number leads to the audit log."""
    source = ctx.run.source
    user = f"user {source.removeprefix(REMOTE_PREFIX)}" if is_remote(source) else "an administrator"
    return f"{user} (job {ctx.job_id})"
