"""What providers of external storage the nodes have."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Node
from ganeti.model.opcodes.external import OpExtStorageDiagnose
from ganeti.rpc.procedures.external import EXT_PROVIDERS, ProviderInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

FIELDS = ("name", "node_status", "nodegroup_status", "parameters")

Found = Mapping[str, Mapping[str, ProviderInfo]]
"""Name of a node -> name of a provider -> what the node says of it."""


class LUExtStorageDiagnose(LogicalUnit[OpExtStorageDiagnose, None]):
    """Ask all nodes for their providers of external storage."""

    def check_arguments(self) -> None:
        unknown = [name for name in self.op.output_fields if name not in FIELDS]
        if unknown:
            raise InputError(
                f"unknown fields {', '.join(unknown)}; known: {', '.join(FIELDS)}", "output_fields"
            )

    async def check_prereq(self, ctx: UnitContext) -> None:
        if not list(ctx.snapshot.online_nodes()):
            raise PrereqError("no node is online", ErrorCode.WRONG_STATE)

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        nodes = [node for node in ctx.snapshot.online_nodes() if node.vm_capable]
        answers = await ctx.call_all(nodes, EXT_PROVIDERS, Nothing())
        found: dict[str, dict[str, ProviderInfo]] = {}
        for node in nodes:
            answer = answers[node.uuid]
            if isinstance(answer, RpcError):
                ctx.warn(str(answer))
            else:
                found[node.name] = {one.name: one for one in answer}
        names = sorted({name for known in found.values() for name in known})
        wanted = [name for name in names if not self.op.names or name in self.op.names]
        rows = (described(ctx.snapshot, nodes, name, found) for name in wanted)
        return Outcome([[row[field] for field in self.op.output_fields] for row in rows])


def described(snapshot: Snapshot, nodes: Iterable[Node], name: str, found: Found) -> dict[str, Any]:
    """All fields of one provider; statuses are those of Ganeti: `(path, usable, problem, parameters)` by node."""
    by_node = {node: known[name] for node, known in found.items() if name in known}
    by_group: dict[str, list[bool]] = {}
    for node in nodes:
        info = by_node.get(node.name)
        group = snapshot.groups[node.group].name
        by_group.setdefault(group, []).append(info is not None and not info.problem)
    return {
        "name": name,
        "node_status": {
            node: [[one.path, not one.problem, one.problem, [list(p) for p in one.parameters]]]
            for node, one in by_node.items()
        },
        "nodegroup_status": {group: all(good) for group, good in by_group.items()},
        "parameters": _shared(list(by_node.values())),
    }


def _shared(infos: Sequence[ProviderInfo]) -> list[list[str]]:
    """The parameters that every usable provider has."""
    usable = [dict(one.parameters) for one in infos if not one.problem]
    if not usable:
        return []
    return [[name, text] for name, text in usable[0].items() if all(name in one for one in usable)]
