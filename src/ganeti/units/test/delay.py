"""A delay, for tests."""

import asyncio

from ganeti.base.errors import InputError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Node
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.rpc.procedures.host import TEST_DELAY, TestDelayArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

MAX_REPEAT = 1_000_000
CHECK_INTERVAL_S = 0.5
"""The interval at which a delay checks whether its job was killed, or an interruptible one cancelled."""


class LUTestDelay(LogicalUnit[OpTestDelay, list[Node]]):
    """Sleep on the master, then on the named nodes, `repeat` more times; zero seconds are accepted."""

    def check_arguments(self) -> None:
        if not 0 <= self.op.duration <= 7 * 86400:
            raise InputError("must be from 0 seconds to 7 days", "duration")
        if not 0 <= self.op.repeat <= MAX_REPEAT:
            raise InputError(f"must be from 0 to {MAX_REPEAT}", "repeat")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        nodes = self._nodes(snapshot)
        return (
            []
            if self.op.no_locks or not nodes
            else [lock(Level.NODE, [node.uuid for node in nodes])]
        )

    def _nodes(self, snapshot: Snapshot) -> list[Node]:
        return [resolve_node(snapshot, name) for name in self.op.on_node_uuids or self.op.on_nodes]

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        return self._nodes(ctx.snapshot)

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        if not self.op.interruptible:
            return await self._delay(ctx, plan)
        with ctx.run.interruptible():
            return await self._delay(ctx, plan)

    async def _delay(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        op = self.op
        for turn in range(op.repeat + 1):
            if op.repeat:
                ctx.info(f"Test delay iteration {turn}/{op.repeat}")
            if op.on_master:
                await self._sleep(ctx)
            for node in plan:
                await ctx.call(node, TEST_DELAY, TestDelayArgs(duration_s=op.duration))
            ctx.run.check_canceled()
        return Outcome()

    async def _sleep(self, ctx: UnitContext) -> None:
        left = self.op.duration
        while left > 0:
            slept = min(left, CHECK_INTERVAL_S)
            await asyncio.sleep(slept)
            left -= slept
            if self.op.interruptible or ctx.run.takes_kill():
                ctx.run.check_canceled()
