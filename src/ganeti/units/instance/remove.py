"""Removal of instances."""

import contextlib
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from ganeti.base.errors import RpcError
from ganeti.config.fill import memory_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.model.objects import Instance, LiveRestore, Node, NodeUuid
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.figures import HISTORY_FORGET, HistoryForgetArgs
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN, ShutdownArgs
from ganeti.rpc.procedures.live_restores import (
    LIVE_END,
    LIVE_SERVE_END,
    LiveEndArgs,
    LiveServerArgs,
)
from ganeti.rpc.procedures.streams import SNAPSHOT_DROP
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import (
    HookNodes,
    InstanceUnit,
    check_not_migrating,
    check_shutdown_timeout,
    primary_node,
    spec_of,
)
from ganeti.units.instance.disks import disks_on
from ganeti.units.instance.nvram import forget_nvram
from ganeti.units.node_choice import check_online
from ganeti.units.undo.transfers import snapshot_removals

T = TypeVar("T")


class LUInstanceRemove(InstanceUnit[OpInstanceRemove, Instance]):
    """Shut an instance down and remove its disks and its entry; an interrupted removal can be repeated."""

    hook = "instance-remove"

    def check_arguments(self) -> None:
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        if not self.op.ignore_failures:
            check_not_migrating(instance, above_backup=True)
            check_online(primary_node(ctx, instance))
            # A copy on a dead node is kept there: when the node returns, verify reports it.
        return instance

    def hook_nodes(self, before: Instance, plan: Instance) -> HookNodes:
        """Its nodes may be dead, so hooks run on them only afterwards."""
        return (), before.all_nodes

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: Instance
    ) -> dict[str, str]:
        return {"SHUTDOWN_TIMEOUT": text(self.op.shutdown_timeout)}

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        node, spec = primary_node(ctx, plan), spec_of(ctx, plan)
        limit_s = self.op.shutdown_timeout
        ctx.step(f"shutting down instance {plan.name} on node {node.name} (at most {limit_s} s)")
        args = ShutdownArgs(instance=spec, timeout_s=self.op.shutdown_timeout)
        stopped = await self._try(ctx, plan, ctx.call(node, INSTANCE_SHUTDOWN, args))
        await self._try(ctx, plan, forget_nvram(ctx, plan, node))
        if plan.restoring is not None and plan.restoring.live:
            await self._end_live_restore(ctx, plan, node, plan.restoring.live)
        if plan.snapshots:
            ctx.step(f"removing its {len(plan.snapshots)} snapshots")
        for step in snapshot_removals(ctx.snapshot, plan, plan.snapshots):
            await self._try(ctx, plan, ctx.call(node, SNAPSHOT_DROP, step.args))
        for memory in plan.memory_disks:
            disk = memory_spec(ctx.snapshot, plan, memory)
            what = DiskArgs(instance_name=plan.name, disk=disk)
            await self._try(ctx, plan, ctx.call(node, BLOCKDEV_REMOVE, what))
        if spec.disks:
            ctx.step("removing its disks")
        for uuid in holders(plan):
            holder = ctx.snapshot.nodes[uuid]
            if holder.offline and uuid != plan.primary_node:
                ctx.warn(f"node {holder.name} is offline: its copies of {plan.name} remain there")
                continue
            for disk in disks_on(ctx, plan, uuid):
                what = DiskArgs(instance_name=plan.name, disk=disk)
                await self._try(ctx, plan, ctx.call(holder, BLOCKDEV_REMOVE, what))
        recorded = stopped is None or stopped.has_history
        await self._forget_history(ctx, plan.all_nodes if recorded else plan.secondary_nodes, plan)
        ctx.step(f"removing instance {plan.name} from the cluster config")

        def forget(draft: Draft) -> None:
            draft.remove(draft.instances[plan.uuid])

        return Outcome(change=forget)

    async def _end_live_restore(
        self, ctx: UnitContext, plan: Instance, node: Node, live: LiveRestore
    ) -> None:
        end = LiveEndArgs(instance=spec_of(ctx, plan), token=live.token)
        await self._try(ctx, plan, ctx.call(node, LIVE_END, end))
        if server := ctx.snapshot.nodes.get(NodeUuid(live.node)):
            args = LiveServerArgs(token=live.token)
            await self._try(ctx, plan, ctx.call(server, LIVE_SERVE_END, args))

    async def _forget_history(
        self, ctx: UnitContext, nodes: Iterable[NodeUuid], plan: Instance
    ) -> None:
        """Remove the history of its figures; nodes remove one that remains, also on former nodes, after a month."""
        for uuid in nodes:
            node = ctx.snapshot.nodes[uuid]
            if not node.offline:
                with contextlib.suppress(RpcError):
                    await ctx.call(node, HISTORY_FORGET, HistoryForgetArgs(uuid=plan.uuid))

    async def _try(self, ctx: UnitContext, plan: Instance, act: Awaitable[T]) -> T | None:
        """Do one step and return its result; a failure, None, ends the removal unless failures are ignored."""
        try:
            return await act
        except RpcError as err:
            if not self.op.ignore_failures:
                raise
            ctx.warn(f"{err}; ignored on request: parts of {plan.name} may remain there")
            return None
