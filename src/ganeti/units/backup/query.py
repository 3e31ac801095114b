"""The list of exports, and their removal."""

from collections.abc import Sequence
from typing import TypeVar

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError, RpcError
from ganeti.config.resolve import resolve_node
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Node, NodeUuid
from ganeti.model.opcodes.backup import OpBackupQuery, OpBackupRemove
from ganeti.model.opcodes.instance import OnInstance
from ganeti.rpc.procedures.exports import EXPORT_LIST, EXPORT_REMOVE, ExportArgs, ExportListing
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.backup.named import OnName
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext


async def all_exports(
    ctx: UnitContext, nodes: Sequence[Node]
) -> dict[NodeUuid, ExportListing | RpcError]:
    """Return the exports of each node, or the reason why they are unknown."""
    return await ctx.call_all(nodes, EXPORT_LIST, Nothing())


class LUBackupQuery(LogicalUnit[OpBackupQuery, list[Node]]):
    """List the exports of nodes."""

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        given = [resolve_node(ctx.snapshot, name) for name in self.op.nodes]
        return given or list(ctx.snapshot.nodes.values())

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        answers = await all_exports(ctx, plan)
        found = {node.name: answers[NodeUuid(node.uuid)] for node in plan}
        return Outcome(
            {
                name: False if isinstance(answer, RpcError) else answer.names
                for name, answer in found.items()
            }
        )


OpT = TypeVar("OpT", bound=OnInstance)


class OnExports(OnName[OpT, list[Node]]):
    """A unit on the exports of one name, on all nodes that answer."""

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        self.check_uuid(ctx.snapshot)
        nodes = list(ctx.snapshot.online_nodes())
        answers = await all_exports(ctx, nodes)
        found = []
        for node in nodes:
            answer = answers[NodeUuid(node.uuid)]
            if isinstance(answer, RpcError):
                ctx.warn(f"{answer}; exports on that node are left out")
            elif self.name in answer.names:
                found.append(node)
        if not found:
            raise PrereqError(
                f"no node that answers has an export of {self.name}; gnt-backup list shows all",
                ErrorCode.UNKNOWN_ENTITY,
            )
        return found


class LUBackupRemove(OnExports[OpBackupRemove]):
    """Remove the exports of one name from all nodes that answer."""

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        failed = []
        for node in plan:
            ctx.step(f"removing the export of {self.name} on {node.name}")
            try:
                await ctx.call(node, EXPORT_REMOVE, ExportArgs(export=self.name))
            except GanetiError as err:
                ctx.warn(str(err))
                failed.append(node.name)
        if failed:
            raise ExecError(
                f"the export of {self.name} could not be removed on {', '.join(failed)}"
            )
        return Outcome()
