"""Forced restart of a node."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Node
from ganeti.model.opcodes.node import OpNodePowercycle
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.power import NODE_POWERCYCLE
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.node_choice import check_online


class LUNodePowercycle(LogicalUnit[OpNodePowercycle, Node]):
    """Restart a host at once. It takes no locks: it is the last resort if jobs hang on that node."""

    async def check_prereq(self, ctx: UnitContext) -> Node:
        node = resolve_node(ctx.snapshot, self.op.node_uuid or self.op.node_name)
        check_online(node)
        if node.uuid == ctx.snapshot.cluster.master_node and not self.op.force:
            raise PrereqError(
                f"node {node.name} is the master; --force restarts it nevertheless",
                ErrorCode.WRONG_INPUT,
            )
        return node

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        ctx.step(f"restarting node {plan.name}")
        await ctx.run.started()
        done = await ctx.call(plan, NODE_POWERCYCLE, Nothing())
        return Outcome(f"Reboot scheduled in {done.delay_s:g} seconds")
