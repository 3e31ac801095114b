"""Taking a node out of the cluster."""

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Node
from ganeti.model.opcodes.node import OpNodeRemove
from ganeti.rpc.procedures import LEAVE_CLUSTER, LeaveArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

SHOWN = 5
"""How many names an error lists before it only counts."""


class LUNodeRemove(LogicalUnit[OpNodeRemove, Node]):
    """Take a node without instances out of the cluster, and tell it to forget us."""

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE, self._node(snapshot).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Node:
        node = self._node(ctx.snapshot)
        if node.uuid == ctx.snapshot.cluster.master_node:
            raise PrereqError(
                f"node {node.name} is the master and cannot be removed", ErrorCode.WRONG_INPUT
            )
        here = sorted(
            instance.name
            for instance in ctx.snapshot.instances.values()
            if node.uuid in (*instance.all_nodes, instance.migrating_to)
        )
        if here:
            shown = ", ".join(here[:SHOWN]) + (
                f" and {len(here) - SHOWN} more" if len(here) > SHOWN else ""
            )
            raise PrereqError(
                f"node {node.name} has instances ({shown}): migrate or remove them first",
                ErrorCode.WRONG_STATE,
            )
        return node

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        def forget(draft: Draft) -> None:
            draft.remove(plan)

        if plan.offline:
            ctx.warn(f"{plan.name} is offline and still believes that it belongs to this cluster")
        else:
            try:
                await ctx.call(
                    plan, LEAVE_CLUSTER, LeaveArgs(cluster_uuid=ctx.snapshot.cluster.uuid)
                )
            except RpcError as err:
                ctx.warn(
                    f"{err}; it is removed all the same, and still believes that it belongs to this cluster:"
                    " run ganeti-node-join --reset there before it joins another one"
                )
        ctx.log(f"Removing node {plan.name} from the cluster config")
        return Outcome(change=forget)
