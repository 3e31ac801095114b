"""A query for values of the cluster, as a job."""

from ganeti.base.errors import InputError, PrereqError
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes.query import OpClusterConfigQuery
from ganeti.query.execute import QueryExecutor, kind_of, known_field
from ganeti.units.context import UnitContext
from ganeti.units.query.ask import Question


class LUClusterConfigQuery(Question[OpClusterConfigQuery]):
    """Query values of the cluster."""

    def check_arguments(self) -> None:
        for name in self.op.output_fields:
            try:
                known_field(kind_of("cluster"), name)
            except PrereqError as err:
                raise InputError(err.message, "output_fields") from err

    async def execute(self, ctx: UnitContext, plan: QueryExecutor) -> Outcome:
        return Outcome(await plan.config_values(self.op.output_fields))
