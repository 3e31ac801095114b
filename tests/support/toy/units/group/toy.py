"""The unit of the toy operation."""

from ganeti.config.resolve import resolve_group
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes.toy import OpGroupGreet  # type: ignore[import-not-found]  # only in the test
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext


class LUGroupGreet(LogicalUnit[OpGroupGreet, list[str]]):
    """Say something to each node of a group."""

    async def check_prereq(self, ctx: UnitContext) -> list[str]:
        group = resolve_group(ctx.snapshot, self.op.group_name)
        return sorted(node.name for node in ctx.snapshot.nodes.values() if node.group == group.uuid)

    async def execute(self, ctx: UnitContext, plan: list[str]) -> Outcome:
        return Outcome([f"{self.op.greeting}, {name}" for name in plan])
