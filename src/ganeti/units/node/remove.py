"""Removal of a node from the cluster."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GanetiError, PrereqError, RpcError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.objects import Node
from ganeti.model.opcodes.node import OpNodeRemove
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, LeaveArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import node_variables
from ganeti.units.hooks.point import HookPoint
from ganeti.units.node.candidate_pool import missing_candidates
from ganeti.units.node.promotion import make_fit

SHOWN = 5
"""How many names an error lists before it only counts."""


@dataclass(frozen=True)
class RemovalPlan:
    """The node to remove, and the nodes that become candidates instead."""

    node: Node
    promoted: tuple[Node, ...] = ()


class LUNodeRemove(LogicalUnit[OpNodeRemove, RemovalPlan]):
    """Remove a node without instances from the cluster, and order it to forget the cluster."""

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        node = self._node(snapshot)
        return [lock(Level.NODE, ALL if node.master_candidate else node.uuid)]

    async def check_prereq(self, ctx: UnitContext) -> RemovalPlan:
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
        only_here = sorted(
            one.name for one in ctx.snapshot.images.values() if set(one.nodes) == {node.uuid}
        )
        if only_here:
            raise PrereqError(
                f"node {node.name} has the only copy of image {only_here[0]}; copy it (gnt-image copy"
                f" {only_here[0]} NODE), or remove it (gnt-image remove {only_here[0]})",
                ErrorCode.WRONG_STATE,
            )
        if not node.master_candidate:
            return RemovalPlan(node)
        pool_size = ctx.snapshot.cluster.candidate_pool_size
        promoted = missing_candidates(ctx.snapshot, pool_size, without=node.uuid)
        return RemovalPlan(node, tuple(promoted))

    def hooks(self, snapshot: Snapshot, plan: RemovalPlan) -> HookPoint:
        """Run the hooks on the removed node before its removal."""
        others = tuple(node for node in snapshot.nodes_by_name() if node.uuid != plan.node.uuid)
        return HookPoint("node-remove", node_variables(plan.node), pre=others, post=others)

    async def execute(self, ctx: UnitContext, plan: RemovalPlan) -> Outcome:
        node = plan.node
        if node.master_candidate:
            await self._demote(ctx, plan)
        if ctx.hooks is not None:
            await ctx.hooks.run_now([node])
        await self._tell(ctx, node)
        ctx.log(f"Removing node {node.name} from the cluster config")

        def change(draft: Draft) -> None:
            for image in list(draft.images.values()):
                if node.uuid in image.nodes:
                    left = tuple(uuid for uuid in image.nodes if uuid != node.uuid)
                    draft.put(replace(image, nodes=left))
            draft.remove(draft.nodes[node.uuid])

        return Outcome(change=change)

    async def _demote(self, ctx: UnitContext, plan: RemovalPlan) -> None:
        """Remove the node from the state's holders first; others replace it."""
        await make_fit(ctx, [replace(one, master_candidate=True) for one in plan.promoted])

        def change(draft: Draft) -> None:
            draft.put(replace(draft.nodes[plan.node.uuid], master_candidate=False))
            for one in plan.promoted:
                draft.put(replace(draft.nodes[one.uuid], master_candidate=True))

        await ctx.run.record_undo((), change)
        try:
            await ctx.services.candidates.demote(plan.node)
        except GanetiError as err:
            ctx.warn(f"{plan.node.name} may still have the state of a candidate: {err.message}")

    async def _tell(self, ctx: UnitContext, plan: Node) -> None:
        if plan.offline:
            ctx.warn(f"{plan.name} is offline and still has the data of this cluster")
        else:
            try:
                await ctx.call(
                    plan, LEAVE_CLUSTER, LeaveArgs(cluster_uuid=ctx.snapshot.cluster.uuid)
                )
            except RpcError as err:
                ctx.warn(
                    f"{err}; it is removed nevertheless, and still has the data of this cluster:"
                    " run ganeti-node-join --reset there before it joins another one"
                )
