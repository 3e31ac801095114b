"""Balancing the cluster: the moves that the allocator finds, as jobs that wait for each other (S186)."""

from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import InputError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.iallocator import BUILT_IN
from ganeti.model.opcodes.placing import OpClusterBalance
from ganeti.protocols import iallocator_requests
from ganeti.protocols.iallocator_results import Moves
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.evacuation import Jobs, check_allocator_name, jobs_of, proposed_moves


@dataclass(frozen=True)
class BalancePlan:
    """The jobs, and what is shown of them."""

    jobs: Jobs
    shown: dict[str, Any]


class LUClusterBalance(LogicalUnit[OpClusterBalance, BalancePlan]):
    """Make the load of the nodes more even.

    The result has `moves`, each with instance, group, nodes before and after, opcodes, and the numbers of earlier
    moves that it waits for; and `info`, the allocator's words.
    """

    def check_arguments(self) -> None:
        check_allocator_name(self.op.iallocator)
        if self.op.max_moves is not None and self.op.max_moves < 1:
            raise InputError("must be at least 1", "max_moves")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> BalancePlan:
        op = self.op
        instances = sorted(ctx.snapshot.instances.values(), key=lambda one: one.name)
        request = iallocator_requests.balance(op.max_moves)
        found = await proposed_moves(ctx, request, instances, op.iallocator or BUILT_IN)
        shown = {"moves": _shown(ctx.snapshot, found), "info": found.info}
        return BalancePlan(jobs_of(ctx, found, op), shown)

    async def execute(self, ctx: UnitContext, plan: BalancePlan) -> Outcome:
        del ctx
        return Outcome(
            jobs=plan.jobs, result=plan.shown if plan.jobs else plan.shown | {"jobs": []}
        )

    def dry_run_result(self, ctx: UnitContext, plan: BalancePlan) -> Any:
        del ctx
        return plan.shown


def _shown(snapshot: Snapshot, found: Moves) -> list[dict[str, Any]]:
    """The moves in order; an instance may be moved more than once."""
    nodes = {
        one.name: [snapshot.nodes[uuid].name for uuid in one.all_nodes]
        for one in snapshot.instances.values()
    }
    shown = []
    for (name, group, after), job, needs in zip(found.moved, found.jobs, found.needs, strict=True):
        shown.append(
            {
                "instance": name,
                "group": group,
                "before": nodes[name],
                "after": after,
                "opcodes": [op.summary() for op in job],
                "needs": needs,
            }
        )
        nodes[name] = after
    return shown
