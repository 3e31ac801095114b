"""Replacement of the secondary node of mirrored disks, or of lost parts on one node."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.places import creation_order, holders
from ganeti.layouts.planner import placed_disks
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import put_instance, spec_of
from ganeti.units.instance.disks import (
    JobNames,
    close_disks,
    disks_on,
    open_disks,
    planner_of,
    wait_for_sync,
)
from ganeti.units.instance.grants import with_present_grants
from ganeti.units.mirrors.current import join_copies, leave_copies
from ganeti.units.relocation.plan import DiskPlan
from ganeti.units.relocation.steps import MakeDisks, RelocationStep, ReplacePart, course
from ganeti.units.undo.disks import SetDiskRole, removals
from ganeti.units.undo.mirrors import replaced_copies
from ganeti.units.undo.step import Step


def new_secondary(ctx: UnitContext, instance: Instance, node: Node, *, is_up: bool) -> DiskPlan:
    """Return the plan that makes `node` the secondary of a mirrored instance."""
    nodes = (instance.primary_node, NodeUuid(node.uuid))
    after = placed_disks(planner_of(instance), instance, nodes, JobNames(ctx))
    ctx.check_change(put_instance(after))
    disks = tuple(disk.uuid for disk in after.disks)
    return DiskPlan(before=instance, after=after, node=node, disks=disks, is_up=is_up)


async def replace_disks(ctx: UnitContext, plan: DiskPlan, *, early_release: bool) -> None:
    """Carry out a replacement; the old copy is removed when the new one is filled, or before with `early_release`."""
    if plan.moves or plan.node.uuid != plan.before.primary_node:
        before = await leave_copies(ctx, plan.before, is_up=plan.is_up)
        after = with_present_grants(ctx.config, plan.after)
        plan = dataclasses.replace(plan, before=before, after=after)
    if plan.moves:
        await _to_new_node(ctx, plan, early_release=early_release)
    else:
        await _beside(ctx, plan, early_release=early_release)
    if early_release:
        await _synchronise(ctx, plan)


async def _to_new_node(ctx: UnitContext, plan: DiskPlan, *, early_release: bool) -> None:
    """Record the change before the fill: later writes are missing in the old copy, which has no record of that."""
    ctx.step(f"making its disks on {plan.node.name}")
    old = _old_nodes(ctx, plan, early_release=early_release)
    async with course(ctx) as steps:
        await steps.take(MakeDisks(plan.after, [NodeUuid(plan.node.uuid)], superfluous=old))
        if early_release:
            steps.commit(put_instance(plan.after))
        else:
            await steps.turn(put_instance(plan.after))
            await _synchronise(ctx, plan)


async def _beside(ctx: UnitContext, plan: DiskPlan, *, early_release: bool) -> None:
    """Record the change last: the device must release its old parts before they are removed.

    After an undo it synchronises the old parts from the other node.
    """
    ctx.step(f"making new parts on {plan.node.name}")
    async with course(ctx) as steps:
        for new, old in _parts(ctx, plan):
            await steps.take(ReplacePart(plan.after.name, plan.node, new, old))
        await steps.take(_FillParts(plan, waits=not early_release))
        steps.commit(put_instance(plan.after))


def _parts(ctx: UnitContext, plan: DiskPlan) -> Iterator[tuple[DiskSpec, DiskSpec]]:
    """Return the new layers, each with the one that it replaces."""
    uuid = NodeUuid(plan.node.uuid)
    pairs = zip(disks_on(ctx, plan.after, uuid), disks_on(ctx, plan.before, uuid), strict=True)
    for new, old in pairs:
        if new.uuid in plan.disks:
            yield from zip(new.children, old.children, strict=True)


def _old_nodes(ctx: UnitContext, plan: DiskPlan, *, early_release: bool) -> list[Step]:
    """Return the steps that remove the copy of the former node: last, unless `early_release` is set."""
    make = removals if early_release else replaced_copies
    left = [uuid for uuid in holders(plan.before) if uuid not in holders(plan.after)]
    nodes = [ctx.snapshot.nodes[uuid] for uuid in left]
    return [
        step
        for node in nodes
        for step in make(NodeUuid(node.uuid), spec_of(ctx, plan.before, node))
    ]


@dataclass(frozen=True)
class _FillParts(RelocationStep[None]):
    """Let the disks use their new parts; wait until these have all data, unless the request does not wait."""

    plan: DiskPlan
    waits: bool

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        del ctx
        return [SetDiskRole(node=self.plan.node.uuid, instance=self.plan.after.uuid)]

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        del undo
        await (_synchronise if self.waits else _open)(ctx, self.plan)


async def _open(ctx: UnitContext, plan: DiskPlan) -> None:
    """Open all copies with their new parts and peers."""
    for uuid in creation_order(plan.after):
        role = DiskRole.PRIMARY if uuid == plan.after.primary_node else DiskRole.SECONDARY
        await open_disks(ctx, plan.after, ctx.snapshot.nodes[uuid], role)


async def _synchronise(ctx: UnitContext, plan: DiskPlan) -> None:
    await _open(ctx, plan)
    ctx.step("waiting for the copies to be the same")
    await wait_for_sync(ctx, plan.after)
    if not plan.is_up:
        await join_copies(ctx, plan.after)
        for uuid in holders(plan.after):
            await close_disks(ctx, plan.after, ctx.snapshot.nodes[uuid])
