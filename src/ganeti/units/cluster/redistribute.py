"""Distribution of the cluster's files to all nodes."""

import asyncio

from ganeti.base.errors import ExecError, GanetiError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.objects import Node
from ganeti.model.opcodes.cluster import OpClusterRedistConf
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.shared_files import distribute_files, let_count

AT_ONCE = 30


class LUClusterRedistConf(LogicalUnit[OpClusterRedistConf, list[Node]]):
    """Send all nodes the ssconf files, and the files that they must have (S65-S68).

    Master candidates follow every change of the configuration automatically.
    """

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        return ctx.snapshot.online_nodes()

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        await ctx.run.started()
        if self.op.renewed:
            await let_count(ctx, self.op.renewed)
        slots = asyncio.Semaphore(AT_ONCE)

        async def push(node: Node) -> bool:
            try:
                async with slots:
                    await ctx.services.ssconf.push_now(node)
            except GanetiError as err:
                ctx.warn(f"{node.name} does not get its ssconf files: {err.message}")
                return False
            return True

        ctx.step("sending the ssconf files to all nodes")
        pushed = await asyncio.gather(*(push(node) for node in plan))
        ctx.step("sending all nodes the files that they must have")
        is_whole = await distribute_files(ctx, plan)
        ctx.step("removing from other nodes what only master candidates may have")

        async def enforce(node: Node) -> bool:
            try:
                async with slots:
                    await ctx.services.candidates.enforce(node)
            except GanetiError as err:
                ctx.warn(f"{node.name} may hold files that its role does not allow: {err.message}")
                return False
            return True

        enforced = await asyncio.gather(*(enforce(node) for node in plan))
        if not (is_whole and all(pushed) and all(enforced)):
            raise ExecError("not all files are up to date on all nodes; the job's log says which")
        return Outcome()
