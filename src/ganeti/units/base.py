"""What every logical unit is: four phases; only the last one changes anything."""

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

    `check_arguments` sees only the opcode; `declare_locks` names what must not change meanwhile;
    `check_prereq` decides everything and changes nothing; `execute` carries the plan out and decides
    nothing. The first three raise PrereqError, after which nothing has happened.
    """

    def __init__(self, op: OpT) -> None:
        self.op = op

    def check_arguments(self) -> None:
        """Refuse what no cluster could run."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        """The locks for what `snapshot` says; asked again once they are held, in case it changed."""
        del snapshot
        return []

    async def before_locks(self, run: OpRun) -> None:
        """What comes first, while the job counts as waiting."""

    @abc.abstractmethod
    async def check_prereq(self, ctx: UnitContext) -> PlanT: ...

    @abc.abstractmethod
    async def execute(self, ctx: UnitContext, plan: PlanT) -> Outcome: ...

    def hooks(self, snapshot: Snapshot, plan: PlanT) -> HookPoint | None:
        """Return which hooks run around `execute`; asked again with what is true then. None: the unit has none."""
        del snapshot, plan
        return None

    async def hooks_ended(
        self, ctx: UnitContext, ran: Sequence[NodeResults], outcome: Outcome
    ) -> Outcome:
        """Return what the post hooks have done becomes of the outcome: the job tells it."""
        say(ctx, ran)
        return outcome

    def dry_run_result(self, ctx: UnitContext, plan: PlanT) -> Any:
        """Return what a dry run answers; the plan itself is not for users (S185)."""
        del ctx, plan
        return None
