"""Queries as jobs."""

from typing import Any, Generic, TypeVar

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes.query import OpClusterConfigQuery, OpQuery, OpQueryFields
from ganeti.query.execute import QueryExecutor, definitions, kind_of
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

OpT = TypeVar("OpT", OpQuery, OpQueryFields, OpClusterConfigQuery)


class Question(LogicalUnit[OpT, QueryExecutor], Generic[OpT]):
    """A unit that returns the answer of LUXI; no locks, because an answer is of one moment in any case."""

    async def check_prereq(self, ctx: UnitContext) -> QueryExecutor:
        queries = ctx.services.queries()
        if queries is None:
            raise PrereqError("the master is still starting", ErrorCode.TEMP_NO_RESOURCES)
        return queries


class LUQuery(Question[OpQuery]):
    """Query objects of a kind that match a filter."""

    def check_arguments(self) -> None:
        kind_of(self.op.what)

    async def execute(self, ctx: UnitContext, plan: QueryExecutor) -> Outcome:
        found = await plan.query(self.op.what, self.op.fields, self.op.qfilter)
        return Outcome(found.to_wire())


class LUQueryFields(Question[OpQueryFields]):
    """Query definitions of fields."""

    def check_arguments(self) -> None:
        kind_of(self.op.what)

    async def execute(self, ctx: UnitContext, plan: QueryExecutor) -> Outcome:
        found: list[dict[str, Any]] = definitions(kind_of(self.op.what), self.op.fields or None)
        return Outcome({"fields": found})
