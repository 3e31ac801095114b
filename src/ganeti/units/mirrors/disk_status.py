"""The state of the disks of one instance on all its nodes."""

from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance
from ganeti.model.opcodes.mirrors import OpInstanceDiskStatus
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit
from ganeti.units.mirrors.judge import problem, row
from ganeti.units.mirrors.look import verdicts_of


class LUInstanceDiskStatus(InstanceUnit[OpInstanceDiskStatus, Instance]):
    """The status of each part, a node a row (S97)."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance = self.instance(snapshot)
        return [
            lock(Level.INSTANCE, instance.name, Mode.SHARED),
            lock(Level.NODE, instance.all_nodes, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        return self.instance(ctx.snapshot)

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        rows = []
        is_up = plan.admin_state is AdminState.UP
        for verdict in await verdicts_of(ctx, plan):
            if found := problem(verdict, plan.name, is_up=is_up):
                ctx.warn(str(found))
            parts = zip(verdict.parts, verdict.states, strict=True)
            rows += [row(part, state) for part, state in parts]
        return Outcome(rows)
