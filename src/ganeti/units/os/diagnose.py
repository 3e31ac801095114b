"""What OS definitions the nodes have."""

from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.jobs.executor import Outcome
from ganeti.model.opcodes.os import OpOsDiagnose
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import OS_DIAGNOSE, OsInfo
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext


@dataclass
class OsSummary:
    """One OS definition across nodes."""

    name: str
    by_node: dict[str, OsInfo] = field(default_factory=dict)
    """Node name -> what it has."""

    def is_valid(self, nodes: set[str]) -> bool:
        """Usable, and the same, on all of `nodes`."""
        infos = list(self.by_node.values())
        agree = (
            len({(info.version, tuple(info.variants), tuple(info.api_versions)) for info in infos})
            == 1
        )
        return set(self.by_node) == nodes and agree and not any(info.problem for info in infos)

    def variants(self) -> list[str]:
        """The variants that every node has."""
        sets = [set(info.variants) for info in self.by_node.values()]
        return sorted(set.intersection(*sets)) if sets else []

    def row(self, fields: list[str], nodes: set[str]) -> list[Any]:
        first = next(iter(self.by_node.values()))
        values: dict[str, Any] = {
            "name": self.name,
            "valid": self.is_valid(nodes),
            "variants": self.variants(),
            "parameters": first.parameters,
            "api_versions": first.api_versions,
            "os_version": first.version,
            "hidden": False,
            "blacklisted": False,
            "node_status": {
                name: [
                    [
                        info.path,
                        not info.problem,
                        info.problem,
                        info.variants,
                        info.parameters,
                        info.api_versions,
                    ]
                ]
                for name, info in self.by_node.items()
            },
        }
        return [values[name] for name in fields]


FIELDS = frozenset(
    (
        "name",
        "valid",
        "variants",
        "parameters",
        "api_versions",
        "os_version",
        "hidden",
        "blacklisted",
        "node_status",
    )
)


def summarize(answers: dict[str, list[OsInfo]]) -> list[OsSummary]:
    """Node name -> its definitions, as one summary for each OS, by name."""
    found: dict[str, OsSummary] = {}
    for node_name, infos in answers.items():
        for info in infos:
            found.setdefault(info.name, OsSummary(info.name)).by_node[node_name] = info
    return [found[name] for name in sorted(found)]


class LUOsDiagnose(LogicalUnit[OpOsDiagnose, None]):
    """Ask all nodes for their OS definitions; a definition is valid if it is so, and equal, everywhere."""

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
        rows = [
            summary.row(self.op.output_fields, set(good))
            for summary in summarize(good)
            if not self.op.names or summary.name in self.op.names
        ]
        return Outcome(rows)
