"""Replacement of the secondary node of mirrored disks, or of lost parts on one node."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.iallocator import RequestType, named_allocators
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.instance_changes import OpInstanceReplaceDisks
from ganeti.rpc.procedures.disks import BLOCKDEV_INFO, DiskArgs
from ganeti.units.allocation import PlacementRequest, allocators_for, choose_nodes
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.hooks.environment import node_names, text
from ganeti.units.instance.access import (
    HookNodes,
    InstanceUnit,
    check_not_migrating,
    is_running,
    primary_node,
    put_instance,
)
from ganeti.units.instance.disks import (
    JobNames,
    disks_on,
    is_mirrored,
    planner_of,
)
from ganeti.units.instance.pending import check_nothing_pending
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.mirrors.judge import problem
from ganeti.units.mirrors.look import verdicts_of
from ganeti.units.mirrors.opening import check_source
from ganeti.units.node_choice import check_can_host, check_online, check_space, free_resources
from ganeti.units.relocation.plan import DiskPlan
from ganeti.units.relocation.replace import new_secondary, replace_disks
from ganeti.units.spindles import check_spindles


class ReplaceMode(StrEnum):
    """The kind of replacement, in Ganeti's words."""

    PRIMARY = "replace_on_primary"
    SECONDARY = "replace_on_secondary"
    NEW_SECONDARY = "replace_new_secondary"
    AUTO = "replace_auto"


async def _check_well(ctx: UnitContext, instance: Instance) -> None:
    """Refuse to report that nothing needs replacement if disks need another repair."""
    is_up = instance.admin_state is AdminState.UP
    verdicts = await verdicts_of(ctx, instance)
    found = [one for verdict in verdicts if (one := problem(verdict, instance.name, is_up=is_up))]
    if found:
        raise PrereqError(
            f"no disk of {instance.name} is missing or damaged, so none is replaced, but"
            f" {'; '.join(map(str, found))}",
            ErrorCode.WRONG_STATE,
        )


class LUInstanceReplaceDisks(InstanceUnit[OpInstanceReplaceDisks, DiskPlan | None]):
    """Replace the secondary node of mirrored disks, or their parts on one of their nodes."""

    hook = "mirrors-replace"

    def check_arguments(self) -> None:
        op = self.op
        if op.mode not in tuple(ReplaceMode):
            raise InputError(f"must be one of {', '.join(ReplaceMode)}", "mode")
        remote = op.remote_node_uuid or op.remote_node
        if remote and op.iallocator:
            raise InputError("pass either a node or an allocator, not both", "iallocator")
        if (remote or op.iallocator) and op.mode != ReplaceMode.NEW_SECONDARY:
            raise InputError(f"only {ReplaceMode.NEW_SECONDARY} has a new node", "mode")
        named_allocators(op.iallocator)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance, op = self.instance(snapshot), self.op
        remote = op.remote_node_uuid or op.remote_node
        nodes: Any = instance.all_nodes
        if remote:
            nodes = {*nodes, resolve_node(snapshot, remote).uuid}
        elif op.mode == ReplaceMode.NEW_SECONDARY:
            nodes = ALL
        return [lock(Level.INSTANCE, instance.name), lock(Level.NODE, nodes, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> DiskPlan | None:
        instance, op = self.instance(ctx.snapshot), self.op
        check_not_migrating(instance)
        if not is_mirrored(instance):
            raise PrereqError(
                f"the disks of {instance.name} (template {instance.disk_template}) have no copy that could be replaced",
                ErrorCode.WRONG_STATE,
            )
        chosen = self._chosen(instance)
        if op.mode == ReplaceMode.NEW_SECONDARY and op.disks:
            raise InputError("a new secondary node gets all disks", "disks")
        primary = primary_node(ctx, instance)
        check_online(primary)
        is_up = await is_running(ctx, primary, instance)
        if op.mode == ReplaceMode.NEW_SECONDARY:
            node = await self._new_secondary(ctx, instance)
            check_nothing_pending(ctx, instance, to="give a new secondary node to", node=node)
            await check_source(ctx, instance, primary, range(len(instance.disks)))
            await self._check_space(ctx, node, instance, instance.disks)
            return new_secondary(ctx, instance, node, is_up=is_up)
        if op.mode == ReplaceMode.AUTO:
            found = await self._faulty(ctx, instance, chosen)
            if found is None:
                await _check_well(ctx, instance)
                ctx.info(f"no disk of {instance.name} needs to be replaced")
                return None
            node, chosen = found
        else:
            at_primary = op.mode == ReplaceMode.PRIMARY
            node = primary if at_primary else ctx.snapshot.nodes[instance.secondary_nodes[0]]
        check_online(node)
        await self._check_other_copy(ctx, instance, node, chosen)
        planner, names = planner_of(instance), JobNames(ctx)
        disks = tuple(
            planner.renewed(disk, NodeUuid(node.uuid), names) if at in chosen else disk
            for at, disk in enumerate(instance.disks)
        )
        after = replace(instance, disks=disks)
        ctx.check_change(put_instance(after))
        await self._check_space(ctx, node, instance, [disks[at] for at in chosen])
        parts = tuple(disks[at].uuid for at in chosen)
        return DiskPlan(before=instance, after=after, node=node, disks=parts, is_up=is_up)

    def _chosen(self, instance: Instance) -> list[int]:
        count = len(instance.disks)
        for at in self.op.disks:
            if not 0 <= at < count:
                raise InputError(f"disk {at} does not exist: the instance has {count}", "disks")
        return sorted(set(self.op.disks)) or list(range(count))

    async def _new_secondary(self, ctx: UnitContext, instance: Instance) -> Node:
        op = self.op
        secondary = ctx.snapshot.nodes[instance.secondary_nodes[0]]
        remote = op.remote_node_uuid or op.remote_node
        request = PlacementRequest(
            Demand.of(ctx.snapshot.cluster, instance),
            will_run=False,
            relocate_from=secondary,
            ignore_policy=op.ignore_ipolicy,
        )
        if remote:
            node = resolve_node(ctx.snapshot, remote)
        else:
            allocators = allocators_for(ctx.snapshot.cluster, RequestType.RELOCATE, op.iallocator)
            if not allocators:
                raise PrereqError(
                    "name a node (--new-secondary) or an allocator (--iallocator): the cluster has no"
                    " default allocator",
                    ErrorCode.WRONG_INPUT,
                )
            node = (await choose_nodes(ctx, allocators, request)).nodes[0]
            ctx.info(f"Selected new secondary for instance {instance.name}: {node.name}")
        if node.uuid in instance.all_nodes:
            raise PrereqError(
                f"{node.name} has a copy of {instance.name} already", ErrorCode.WRONG_STATE
            )
        check_can_host(node)
        group = ctx.snapshot.groups[node.group]
        check_instance_policy(ctx, instance, ignore=op.ignore_ipolicy, groups=[group])
        return node

    async def _check_space(
        self, ctx: UnitContext, node: Node, instance: Instance, disks: Sequence[Any]
    ) -> None:
        needs = space_needed(ctx.snapshot.cluster, disks)
        info = await free_resources(ctx, node, f"replacing disks of {instance.name}", needs)
        check_space(info, node, needs)
        check_spindles(ctx.snapshot, info, node, disks)

    async def _faulty(
        self, ctx: UnitContext, instance: Instance, chosen: Sequence[int]
    ) -> tuple[Node, list[int]] | None:
        """Return the one node with broken disks, and these disks; None if there are none."""
        broken = {}
        for uuid in holders(instance):
            node = ctx.snapshot.nodes[uuid]
            check_online(node)
            found = await self._broken_on(ctx, instance, node, chosen)
            if found:
                broken[uuid] = found
        if len(broken) > 1:
            raise PrereqError(
                f"disks of {instance.name} are broken on both nodes; lost disks can only be recreated empty:"
                f" gnt-instance recreate-disks {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        return next(((ctx.snapshot.nodes[uuid], at) for uuid, at in broken.items()), None)

    async def _broken_on(
        self, ctx: UnitContext, instance: Instance, node: Node, chosen: Sequence[int]
    ) -> list[int]:
        disks = disks_on(ctx, instance, NodeUuid(node.uuid))
        found = []
        for at in chosen:
            what = DiskArgs(instance_name=instance.name, disk=disks[at])
            info = await ctx.call(node, BLOCKDEV_INFO, what)
            if not info.exists or info.problem:
                found.append(at)
        return found

    async def _check_other_copy(
        self, ctx: UnitContext, instance: Instance, node: Node, chosen: Sequence[int]
    ) -> None:
        """Refuse unless the other node, from which the new parts are filled, is complete."""
        (other,) = (ctx.snapshot.nodes[uuid] for uuid in holders(instance) if uuid != node.uuid)
        check_online(other)
        await check_source(ctx, instance, other, chosen)

    def hook_nodes(self, before: Instance, plan: DiskPlan | None) -> HookNodes:
        """The old secondary may be dead, so hooks run only on the remaining and the new nodes."""
        nodes = (plan.after if plan else before).all_nodes
        return nodes, nodes

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: DiskPlan | None
    ) -> dict[str, str]:
        before, after = (plan.before, plan.after) if plan else (instance, instance)
        return {
            "MODE": text(self.op.mode),
            "OLD_SECONDARY": node_names(snapshot, before.secondary_nodes),
            "NEW_SECONDARY": node_names(snapshot, after.secondary_nodes),
        }

    async def execute(self, ctx: UnitContext, plan: DiskPlan | None) -> Outcome:
        if plan is not None:
            await replace_disks(ctx, plan, early_release=self.op.early_release)
        return Outcome()

    def dry_run_result(self, ctx: UnitContext, plan: DiskPlan | None) -> Any:
        return (
            [] if plan is None else [ctx.snapshot.nodes[one].name for one in plan.after.all_nodes]
        )
