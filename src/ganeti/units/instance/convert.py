"""Keeping the disks of an instance in another way: `gnt-instance modify -t TEMPLATE`."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.layouts.planner import NewDisk, Site, placed_disks
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.names import DiskRole
from ganeti.model.objects import Disk, Instance, Node, NodeUuid
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import is_running, primary_node, put_instance
from ganeti.units.instance.disks import (
    JobNames,
    close_disks,
    copies_open,
    create_disks,
    disks_on,
    is_mirrored,
    open_disks,
    wait_for_sync,
)
from ganeti.units.instance.local_copy import copy_disks
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.instance.requests import check_template
from ganeti.units.node_choice import check_can_host, check_online, check_space, free_resources
from ganeti.units.undo.disks import CloseDisk, removals

ALONE = (
    *("nics", "disks", "beparams", "runtime_mem", "hvparams", "os_name", "osparams"),
    *("osparams_private", "clear_osparams", "clear_osparams_private", "remove_osparams"),
    *("remove_osparams_private", "offline"),
)
"""What is not changed together with the template: a failure undoes all of it, or nothing."""


@dataclass(frozen=True)
class ConvertPlan:
    """The instance with its old disks, and with the new ones on their nodes."""

    before: Instance
    after: Instance
    node: Node


def check_conversion(op: OpInstanceSetParams) -> None:
    """Refuse what no cluster could convert; InputError names the field."""
    for field in ALONE:
        if getattr(op, field):
            raise InputError("cannot be changed together with the disk template", field)
    if op.iallocator:
        raise InputError("name the secondary node (--node)", "iallocator")


def other_node(op: OpInstanceSetParams, snapshot: Snapshot) -> Node | None:
    """The node that is to have the second copy."""
    given = op.remote_node_uuid or op.remote_node
    return resolve_node(snapshot, given) if given else None


async def plan_conversion(
    ctx: UnitContext, before: Instance, op: OpInstanceSetParams
) -> ConvertPlan:
    """The new disks, beside the old ones; PrereqError or InputError if there could be none."""
    template = check_template(op.disk_template, ctx.snapshot.cluster)
    _check_templates(before, template)
    node = primary_node(ctx, before)
    check_online(node)
    if before.admin_state == "up" or await is_running(ctx, node, before):
        raise PrereqError(
            f"{before.name} runs, or is to run; first run: gnt-instance shutdown {before.name}",
            ErrorCode.WRONG_STATE,
        )
    nodes = _nodes(ctx, before, template, other_node(op, ctx.snapshot))
    unplaced = replace(
        before,
        disk_template=template.name,
        disks=_new_disks(ctx, before, template, op),
        secondary_nodes=(),
    )
    uuids = [NodeUuid(one.uuid) for one in nodes]
    after = placed_disks(PLANNERS[template.name], unplaced, uuids, JobNames(ctx))
    check_instance_policy(ctx, after, ignore=op.ignore_ipolicy)
    ctx.check_change(put_instance(after))
    needs = space_needed(ctx.snapshot.cluster, after.disks)
    for one in nodes:
        info = await free_resources(ctx, one, f"converting {before.name}", needs)
        check_space(info, one, needs)
    return ConvertPlan(before, after, node)


def _check_templates(before: Instance, template: DiskTemplate) -> None:
    if template.name == before.disk_template:
        raise PrereqError(
            f"{before.name} has disk template {template.name} already", ErrorCode.WRONG_STATE
        )
    if not before.disks or not template.has_disks or template.only_adopts:
        raise PrereqError(
            f"disks of template {before.disk_template} cannot become those of {template.name}",
            ErrorCode.WRONG_STATE,
        )


def _nodes(
    ctx: UnitContext, before: Instance, template: DiskTemplate, other: Node | None
) -> list[Node]:
    """Where the new disks are, the primary node first."""
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
    ctx: UnitContext, before: Instance, template: DiskTemplate, op: OpInstanceSetParams
) -> tuple[Disk, ...]:
    planner, names = PLANNERS[template.name], JobNames(ctx)
    if op.file_storage_dir is not None and not template.in_files:
        raise InputError(f"template {template.name} has no files", "file_storage_dir")
    given = check_disk_params(template.name, op.ext_params, "ext_params")
    params = {name: value for name, value in given.items() if value is not None}
    disks: list[Disk] = []
    for index, old in enumerate(before.disks):
        site = Site(ctx.snapshot.cluster, before.name, index, op.file_storage_dir, tuple(disks))
        planner.check_site(site)
        new = NewDisk(size=old.size, mode=old.mode, name=old.name, params=params)
        disks.append(planner.new_disk(new, site, names))
    return tuple(disks)


async def convert(ctx: UnitContext, plan: ConvertPlan, *, wait: bool) -> Outcome:
    """Make the new disks, copy, record, remove the old ones; or leave everything as it was."""
    before, after = plan.before, plan.after
    async with ctx.undo_log() as undo:
        ctx.step(f"making {len(after.disks)} disks of template {after.disk_template}")
        await create_disks(ctx, undo, after)
        for uuid in holders(after):
            for disk in disks_on(ctx, after, uuid):
                await undo.push(CloseDisk(node=uuid, instance=after.name, disk=disk.public))
        async with (
            _opened(ctx, before, plan.node),
            _opened(ctx, after, plan.node),
        ):
            await copy_disks(ctx, plan.node, before, after)
            if wait and is_mirrored(after):
                ctx.step("waiting for the copies to be the same")
                await wait_for_sync(ctx, after)
        superfluous = [
            step
            for uuid in holders(before)
            for step in removals(uuid, instance_spec(ctx.snapshot, before, uuid))
        ]
        undo.commit(put_instance(after), then=superfluous)
    return Outcome([["disk_template", after.disk_template]])


@contextlib.asynccontextmanager
async def _opened(ctx: UnitContext, instance: Instance, node: Node) -> AsyncIterator[None]:
    """The disks, open on the primary node, and on the others for what is written, for the time of a block."""
    async with copies_open(ctx, instance):
        try:
            await open_disks(ctx, instance, node, DiskRole.PRIMARY)
            yield
        except BaseException:
            with contextlib.suppress(RpcError):
                await close_disks(ctx, instance, node)
            raise
        await close_disks(ctx, instance, node)
