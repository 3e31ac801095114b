"""The providers of external storage on the nodes."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.ext_summary import PROVIDER_FIELDS, provider_rows
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes.external import OpExtStorageDiagnose
from ganeti.rpc.procedures.external import EXT_PROVIDERS, ProviderInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext


class LUExtStorageDiagnose(LogicalUnit[OpExtStorageDiagnose, None]):
    """List the providers of external storage of all nodes."""

    def check_arguments(self) -> None:
        unknown = [name for name in self.op.output_fields if name not in PROVIDER_FIELDS]
        if unknown:
            raise InputError(
                f"unknown fields {', '.join(unknown)}; known: {', '.join(PROVIDER_FIELDS)}",
                "output_fields",
            )

    async def check_prereq(self, ctx: UnitContext) -> None:
        if not list(ctx.snapshot.online_nodes()):
            raise PrereqError("no node is online", ErrorCode.WRONG_STATE)

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        nodes = [node for node in ctx.snapshot.online_nodes() if node.vm_capable]
        answers = await ctx.call_all(nodes, EXT_PROVIDERS, Nothing())
        found: dict[str, list[ProviderInfo]] = {}
        for node in nodes:
            answer = answers[node.uuid]
            if isinstance(answer, RpcError):
                ctx.warn(str(answer))
            else:
                found[node.uuid] = answer
        rows = (
            row
            for row in provider_rows(ctx.snapshot, nodes, found)
            if not self.op.names or row["name"] in self.op.names
        )
        return Outcome([[row[field] for field in self.op.output_fields] for row in rows])
