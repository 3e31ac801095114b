"""What OS definitions the nodes have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.os_states import base_name
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Cluster
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

    def values(self, cluster: Cluster, nodes: set[str]) -> dict[str, Any]:
        """All fields."""
        first = next(iter(self.by_node.values()))
        return {
            "name": self.name,
            "valid": self.is_valid(nodes),
            "variants": self.variants(),
            "parameters": first.parameters,
            "api_versions": first.api_versions,
            "os_version": first.version,
            "hidden": self.name in cluster.hidden_os,
            "blacklisted": self.name in cluster.blacklisted_os,
            "os_hvp": _of_os(cluster.os_hvp, self.name),
            "osparams": _of_os(cluster.osparams, self.name),
            "trusted": True,
            "node_status": {
                name: [
                    [
                        info.path,
                        not info.problem,
                        info.problem,
                        info.variants,
                        info.parameters,
                        info.api_versions,
                        True,
                    ]
                ]
                for name, info in self.by_node.items()
            },
        }


FIELDS = frozenset(
    (
        *("name", "valid", "variants", "parameters", "api_versions", "os_version"),
        *("hidden", "blacklisted", "os_hvp", "osparams", "trusted", "node_status"),
    )
)
UNLESS_ASKED = {"hidden": False, "blacklisted": False, "valid": True}
"""What an OS must be to be listed, unless the field is asked for (S155, S156)."""


def _of_os(by_os: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The cluster's parameters for an OS, with those for its variants: NAME and NAME+VARIANT -> parameters."""
    return {os: params for os, params in by_os.items() if base_name(os) == name}


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
