"""The OS definitions on the nodes."""

from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.os_summary import summarize
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes.os import OpOsDiagnose
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import OS_DIAGNOSE
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

FIELDS = frozenset(
    (
        *("name", "valid", "variants", "parameters", "api_versions", "os_version"),
        *("hidden", "blacklisted", "os_hvp", "osparams", "trusted", "node_status", "problems"),
    )
)
UNLESS_ASKED = {"hidden": False, "blacklisted": False, "valid": True}
"""The required values of an OS in the list, unless the request selects the field (S155, S156)."""


class LUOsDiagnose(LogicalUnit[OpOsDiagnose, None]):
    """Query all nodes for their OS definitions; a definition is valid if it is valid and equal everywhere."""

    def check_arguments(self) -> None:
        unknown = [name for name in self.op.output_fields if name not in FIELDS]
        if unknown:
            raise InputError(
                f"unknown fields {', '.join(unknown)}; known: {', '.join(sorted(FIELDS))}",
                "output_fields",
            )

    async def check_prereq(self, ctx: UnitContext) -> None:
        if not list(ctx.snapshot.online_nodes()):
            raise PrereqError("no node is online", ErrorCode.WRONG_STATE)

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        nodes = [node for node in ctx.snapshot.online_nodes() if node.vm_capable]
        answers = await ctx.call_all(nodes, OS_DIAGNOSE, Nothing())
        good = {}
        for node in nodes:
            answer = answers[node.uuid]
            if isinstance(answer, RpcError):
                ctx.warn(str(answer))
            else:
                good[node.name] = answer
        found = [
            summary.values(ctx.snapshot.cluster, set(good))
            for summary in summarize(good)
            if not self.op.names or summary.name in self.op.names
        ]
        return Outcome(
            [
                [one[field] for field in self.op.output_fields]
                for one in found
                if self._is_listed(one)
            ]
        )

    def _is_listed(self, values: dict[str, Any]) -> bool:
        return all(
            field in self.op.output_fields or values[field] is wanted
            for field, wanted in UNLESS_ASKED.items()
        )
