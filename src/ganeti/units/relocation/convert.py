"""Conversion of an instance's disks to another template: `gnt-instance modify -t TEMPLATE`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import group_of, instance_spec
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.places import creation_order, holders
from ganeti.layouts.planner import NewDisk, Site, placed_disks
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Disk, Instance, Node, NodeUuid
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.rpc.procedures.disks import DiskArgs
from ganeti.units.bandwidth import check_bandwidth
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import is_running, primary_node, put_instance
from ganeti.units.instance.disks import (
    JobNames,
    create_disks,
    disks_on,
    disks_opened,
    is_mirrored,
    make_disk,
    sync_of,
    wait_for_sync,
)
from ganeti.units.instance.grants import check_recovery
from ganeti.units.instance.image_disks import check_no_images, is_image
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.instance.requests import check_template
from ganeti.units.instance.snapshot_checks import check_no_snapshots
from ganeti.units.mirrors.opening import check_copy, disks_ready
from ganeti.units.node_choice import check_can_host, check_online, check_space, free_resources
from ganeti.units.relocation.copying import DiskCopies
from ganeti.units.relocation.live_disks import (
    check_can_move_live,
    check_protection,
    with_same_uuids,
)
from ganeti.units.relocation.plan import DiskPlan
from ganeti.units.relocation.steps import RelocationStep, course
from ganeti.units.spindles import check_asked, check_spindles
from ganeti.units.undo.disks import CloseDisk, RemoveDisk, SetDiskRole
from ganeti.units.undo.step import Step

ALONE = (
    *("nics", "disks", "beparams", "runtime_mem", "hvparams", "os_name", "osparams"),
    *("osparams_private", "clear_osparams", "clear_osparams_private", "remove_osparams"),
    *("remove_osparams_private", "offline"),
)
"""Fields that must not change together with the template: a failure undoes all, or nothing."""


def check_conversion(op: OpInstanceSetParams) -> None:
    """Refuse arguments that are wrong in any cluster; InputError names the field."""
    for field in ALONE:
        if getattr(op, field):
            raise InputError("cannot be changed together with the disk template", field)
    if op.iallocator:
        raise InputError("name the secondary node (--node)", "iallocator")
    check_bandwidth(op.bandwidth)


def other_node(op: OpInstanceSetParams, snapshot: Snapshot) -> Node | None:
    """The node of the second copy."""
    given = op.remote_node_uuid or op.remote_node
    return resolve_node(snapshot, given) if given else None


async def plan_conversion(ctx: UnitContext, before: Instance, op: OpInstanceSetParams) -> DiskPlan:
    """Return the new disks, beside the old ones; PrereqError or InputError if that is impossible."""
    template = check_template(op.disk_template, ctx.snapshot.cluster)
    _check_templates(before, template)
    check_no_snapshots(before, "converted", "only the present data is copied")
    node = primary_node(ctx, before)
    check_online(node)
    is_up = await is_running(ctx, node, before)
    if is_up:
        shut_down = f"first run: gnt-instance shutdown {before.name}"
        check_no_images(before.name, before.disks, "converted while it runs", shut_down)
        await check_can_move_live(ctx, before, node, template)
    elif before.admin_state == "up":
        raise PrereqError(
            f"{before.name} should run, but does not; first run: gnt-instance shutdown {before.name}, or startup",
            ErrorCode.WRONG_STATE,
        )
    nodes = _nodes(ctx, before, template, other_node(op, ctx.snapshot))
    unplaced = replace(
        before,
        disk_template=template.name,
        disks=_new_disks(ctx, before, template, op, in_place=not is_up),
        secondary_nodes=(),
    )
    if is_up:
        check_no_images(
            before.name,
            unplaced.disks,
            "converted to images while it runs",
            f"{shut_down}, or use --ext-params format=raw",
        )
    uuids = [NodeUuid(one.uuid) for one in nodes]
    after = placed_disks(PLANNERS[template.name], unplaced, uuids, JobNames(ctx))
    _check_places(before, after)
    if is_up:
        after = with_same_uuids(before, after)
        check_protection(ctx, before, after)
    check_instance_policy(ctx, after, ignore=op.ignore_ipolicy)
    ctx.check_change(put_instance(after))
    for one in nodes:
        new = [
            layer
            for disk in after.disks
            for layer in _but(disk, _unchanged_layers(before, after, one))
        ]
        if needs := space_needed(ctx.snapshot.cluster, new):
            info = await free_resources(ctx, one, f"converting {before.name}", needs)
            check_space(info, one, needs)
            check_asked(ctx.snapshot, one, after.disks)
            check_spindles(ctx.snapshot, info, one, after.disks)
    check_recovery(after)
    return DiskPlan(before=before, after=after, node=node, is_up=is_up)


def _check_places(before: Instance, after: Instance) -> None:
    """Refuse if the new disks would be where the old ones are."""
    if before.disk_template != after.disk_template:
        return
    planner = PLANNERS[after.disk_template]
    for old, new in zip(before.disks, after.disks, strict=True):
        if planner.place(old) != planner.place(new) or is_image(old) != is_image(new):
            return
    place = planner.place(before.disks[0])
    where = (
        f" in {place} already; name another place (-e vg=GROUP, -e thin_pool=POOL, -e pool=POOL,"
        " --file-storage-dir=NAME)"
    )
    raise PrereqError(
        f"{before.name} has disk template {after.disk_template}{where if place else ' already'}",
        ErrorCode.WRONG_STATE,
    )


def _check_templates(before: Instance, template: DiskTemplate) -> None:
    if not before.disks or not template.has_disks or template.only_adopts:
        raise PrereqError(
            f"disks of template {before.disk_template} cannot become those of {template.name}",
            ErrorCode.WRONG_STATE,
        )


def _nodes(
    ctx: UnitContext, before: Instance, template: DiskTemplate, other: Node | None
) -> list[Node]:
    """Return the nodes of the new disks, the primary first."""
    primary = primary_node(ctx, before)
    if not template.mirrored:
        if other is not None:
            raise InputError(f"disk template {template.name} has no secondary node", "remote_node")
        return [primary]
    if other is None:
        raise InputError(
            f"disk template {template.name} needs a secondary node (--node)", "remote_node"
        )
    if other.uuid == primary.uuid:
        raise InputError("is the primary node of the instance", "remote_node")
    check_can_host(other)
    return [primary, other]


def _new_disks(
    ctx: UnitContext,
    before: Instance,
    template: DiskTemplate,
    op: OpInstanceSetParams,
    *,
    in_place: bool,
) -> tuple[Disk, ...]:
    """Return the new disks; with `in_place`, those that have the data already where possible."""
    planner, names = PLANNERS[template.name], JobNames(ctx)
    if op.file_storage_dir is not None and not template.in_files:
        raise InputError(f"template {template.name} has no files", "file_storage_dir")
    given = check_disk_params(template.name, op.ext_params, "ext_params", of_disk=True)
    params = {name: value for name, value in given.items() if value is not None}
    node, disks = before.primary_node, list[Disk]()
    cluster, group = ctx.snapshot.cluster, group_of(ctx.snapshot, node)
    for index, old in enumerate(before.disks):
        site = Site(cluster, before.name, index, op.file_storage_dir, tuple(disks), group=group)
        planner.check_site(site)
        new = NewDisk(size=old.size, mode=old.mode, name=old.name, params=params)
        within = PLANNERS[before.disk_template].within(old, node) if in_place else None
        if within is not None and within.template == template.name and not params:
            disks.append(within)
        else:
            around = planner.around(old, node, new, site, names) if in_place else None
            disks.append(around or planner.new_disk(new, site, names))
    return tuple(disks)


def _unchanged_layers(before: Instance, after: Instance, node: Node) -> set[str]:
    """Return the layers (UUIDs) that a node has already and keeps; their data is unchanged."""
    uuid = NodeUuid(node.uuid)
    old, new = (
        {layer.uuid: layer.part(uuid) for disk in one.disks for layer in disk.layers()}
        if uuid in holders(one)
        else {}
        for one in (before, after)
    )
    return {layer for layer, part in old.items() if new.get(layer) == part}


Layer = TypeVar("Layer", Disk, DiskSpec)


def _but(disk: Layer, kept: Collection[str]) -> list[Layer]:
    """Return a disk without its kept layers: all of it, the other layers, or None."""
    if disk.uuid in kept:
        return []
    if any(child.uuid in kept for child in disk.children):
        return [layer for child in disk.children for layer in _but(child, kept)]
    return [disk]


async def convert(ctx: UnitContext, plan: DiskPlan, *, wait: bool) -> Outcome:
    """Make new layers, copy the others, record the change, remove the old layers.

    A failure leaves everything unchanged.
    """
    before, after = plan.before, plan.after
    in_place = bool(_unchanged_layers(before, after, plan.node))
    async with course(ctx) as steps:
        await steps.take(_RestoreRoles(before))
        if in_place:
            await _check_own_copy(ctx, plan)
        ctx.step(f"making the new disks (template {after.disk_template})")
        await steps.take(_MakeConverted(plan))
        if in_place:
            async with disks_opened(ctx, after, plan.node):
                await _synchronise(ctx, after, wait=wait)
        else:
            async with (
                disks_ready(ctx, before),
                disks_opened(ctx, before, plan.node),
                disks_opened(ctx, after, plan.node),
            ):
                await steps.take(_CopyConverted(plan))
                await _synchronise(ctx, after, wait=wait)
        steps.commit(put_instance(after))
    return Outcome([["disk_template", after.disk_template]])


@dataclass(frozen=True)
class _CopyConverted(RelocationStep[None]):
    """Copy every disk to the new one of the same index; both are open on the primary node."""

    plan: DiskPlan

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        node, both = self.plan.node, (self.plan.before, self.plan.after)
        old, new = (instance_spec(ctx.snapshot, one) for one in both)
        copies = DiskCopies(ctx, undo, old, node, node)
        for source, target in zip(old.disks, new.disks, strict=True):
            ctx.step(f"copying disk {source.index} ({source.size} MiB)")
            await copies.copy(source, target)


async def _check_own_copy(ctx: UnitContext, plan: DiskPlan) -> None:
    """Refuse unless the copy on the primary node, whose data is kept, has all data, also by its peer's records."""
    if not is_mirrored(plan.before):
        return
    async with disks_ready(ctx, plan.before), disks_opened(ctx, plan.before, plan.node):
        seen = [sync for _disk, sync in await sync_of(ctx, plan.before, plan.node)]
        if any(sync and not sync.up_to_date and sync.percent is not None for sync in seen):
            await _synchronise(ctx, plan.before, wait=True)
        await check_copy(ctx, plan.before, plan.node, to="convert", is_last=True)


@dataclass(frozen=True)
class _RestoreRoles(RelocationStep[None]):
    """Let a failure restore the disks on all nodes to the configuration's state."""

    instance: Instance

    def undo(self, ctx: UnitContext) -> Sequence[Step]:
        del ctx
        return [
            SetDiskRole(node=uuid, instance=self.instance.uuid) for uuid in holders(self.instance)
        ]

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        """Do nothing: the next steps open the disks."""


@dataclass(frozen=True)
class _MakeConverted(RelocationStep[None]):
    """Make the new disks on their nodes, around kept layers; the undo closes and removes them."""

    plan: DiskPlan

    async def act(self, ctx: UnitContext, undo: UndoLog) -> None:
        after = self.plan.after
        for uuid in creation_order(after):
            node = ctx.snapshot.nodes[uuid]
            kept = _unchanged_layers(self.plan.before, after, node)
            if not kept:
                await create_disks(ctx, undo, after, nodes=[uuid])
            for disk in disks_on(ctx, after, uuid):
                if disk.uuid in kept:
                    continue
                for layer in _but(disk, kept) if kept else ():
                    await undo.push(RemoveDisk(node=uuid, instance=after.name, disk=layer.public))
                await undo.push(CloseDisk(node=uuid, instance=after.name, disk=disk.public))
                if kept:
                    ctx.info(f"disk {disk.index} on {node.name}, around the data that is there")
                    await make_disk(ctx, node, DiskArgs(instance_name=after.name, disk=disk))

    def deferred(self, ctx: UnitContext) -> Sequence[Step]:
        """Return the steps that remove the old disks from their nodes, without layers that the new ones use."""
        before = self.plan.before
        return [
            RemoveDisk(node=uuid, instance=before.name, disk=layer.public)
            for uuid in holders(before)
            for disk in disks_on(ctx, before, uuid)
            for layer in _but(
                disk, _unchanged_layers(before, self.plan.after, ctx.snapshot.nodes[uuid])
            )
        ]


async def _synchronise(ctx: UnitContext, instance: Instance, *, wait: bool) -> None:
    if wait and is_mirrored(instance):
        ctx.step("waiting for the copies to be the same")
        await wait_for_sync(ctx, instance)
