"""The common part of the units that move one instance to another node."""

import abc
from typing import TypeVar

from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.opcodes.instance import OnInstance
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit
from ganeti.units.relocation.cleanup import clean_up
from ganeti.units.relocation.live import migrate
from ganeti.units.relocation.plan import LiveGuest, Plan
from ganeti.units.relocation.stopped import relocate_stopped
from ganeti.units.relocation.targets import TargetChoice

OpT = TypeVar("OpT", bound=OnInstance)


class RelocationUnit(InstanceUnit[OpT, Plan | None]):
    """A unit that makes a plan and carries it out; without a plan it only reconciles."""

    @property
    @abc.abstractmethod
    def choice(self) -> TargetChoice:
        """The opcode's arguments about the target."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return self.choice.locks(snapshot, self.instance(snapshot))

    async def execute(self, ctx: UnitContext, plan: Plan | None) -> Outcome:
        if plan is None:
            return await clean_up(ctx, self.instance(ctx.snapshot))
        what = plan.operation.of(plan.instance)
        ctx.log(f"{what[0].upper()}{what[1:]} from {plan.source.name} to {plan.target.name}")
        if isinstance(plan.guest, LiveGuest):
            await migrate(ctx, plan, plan.guest)
        else:
            await relocate_stopped(ctx, plan, plan.guest)
        return Outcome([plan.target.name])
