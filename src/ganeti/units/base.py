"""The base of all logical units: four phases, of which only the last one changes anything."""

import abc
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.opcodes import OpCode
from ganeti.units.context import UnitContext
from ganeti.units.hooks.point import HookPoint
from ganeti.units.hooks.results import NodeResults, say

OpT = TypeVar("OpT", bound=OpCode)
PlanT = TypeVar("PlanT")


class LogicalUnit(abc.ABC, Generic[OpT, PlanT]):
    """Runs one kind of opcode.

    `check_arguments` sees only the opcode; `declare_locks` names the objects that must not change meanwhile;
    `check_prereq` decides everything and changes nothing; `execute` carries out the plan and decides
    nothing. An error of the first three (PrereqError) leaves everything unchanged.
    """

    def __init__(self, op: OpT) -> None:
        self.op = op

    def check_arguments(self) -> None:
        """Refuse arguments that are wrong in any cluster."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        """Return the locks for `snapshot`; called again once they are held, in case the configuration changed."""
        del snapshot
        return []

    async def before_locks(self, run: OpRun) -> None:
        """Do work before the locks, while the job counts as waiting."""

    @abc.abstractmethod
    async def check_prereq(self, ctx: UnitContext) -> PlanT: ...

    @abc.abstractmethod
    async def execute(self, ctx: UnitContext, plan: PlanT) -> Outcome: ...

    def hooks(self, snapshot: Snapshot, plan: PlanT) -> HookPoint | None:
        """Return the hooks around `execute`.

        Called again with the final facts afterwards. None: the unit has no hooks.
        """
        del snapshot, plan
        return None

    async def hooks_ended(
        self, ctx: UnitContext, ran: Sequence[NodeResults], outcome: Outcome
    ) -> Outcome:
        """Return the outcome after the post hooks; the job shows it."""
        say(ctx, ran)
        return outcome

    def dry_run_result(self, ctx: UnitContext, plan: PlanT) -> Any:
        """Return the result of a dry run; the plan itself is not for users (S185)."""
        del ctx, plan
        return None
