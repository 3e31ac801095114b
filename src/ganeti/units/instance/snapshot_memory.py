"""The memory of a running guest as a part of a snapshot: saved on a disk of its own, and continued from it."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, PrereqError, RpcError
from ganeti.config.fill import filled_beparams, group_of, memory_spec
from ganeti.config.transaction import Draft
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.planner import NewDisk, Site
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState, AdminStateSource, Consistency
from ganeti.model.objects import Disk, Instance, InstanceSnapshot, Node, SavedMemory
from ganeti.rpc.procedures.disks import DiskArgs
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.rpc.procedures.snapshots import (
    RESTORE_GUEST,
    SAVE_GUEST,
    SAVED_GUEST_MISFITS,
    SavedGuestArgs,
    SaveGuestArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    check_not_offline,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.disks import JobNames, make_disk, planner_of
from ganeti.units.instance.grants import grant_primary
from ganeti.units.instance.power import check_can_start
from ganeti.units.telling import showing
from ganeti.units.undo.instances import ContinueGuest, StopInstance
from ganeti.units.undo.transfers import memory_removal, snapshot_removals

DEVICES_MIB = 128
"""Space for the memory of devices, and for facts about the guest."""


async def memory_disk(ctx: UnitContext, instance: Instance, node: Node) -> Disk:
    """Return the plan of a disk for the memory of a running guest; PrereqError if it does not run.

    It has twice the space: the guest runs while all of its memory is written, and what it has changed meanwhile follows.
    """
    state = await running_state(ctx, node, instance)
    if state is None or state.state != "running":
        raise PrereqError(
            f"{instance.name} does not run, so it has no memory to save; run: gnt-instance snapshot create"
            f" {instance.name}, without --memory",
            ErrorCode.WRONG_STATE,
        )
    size = 2 * max(state.memory, filled_beparams(ctx.snapshot, instance)["maxmem"]) + DEVICES_MIB
    own = DISK_TEMPLATES[instance.disk_template].own_params
    params = {name: value for name, value in instance.disks[0].params.items() if name not in own}
    site = Site(
        ctx.snapshot.cluster,
        instance.name,
        len(instance.disks),
        others=instance.disks,
        use="memory",
        group=group_of(ctx.snapshot, instance.primary_node),
    )
    return planner_of(instance).new_disk(NewDisk(size=size, params=params), site, JobNames(ctx))


async def save(
    ctx: UnitContext, undo: UndoLog, instance: Instance, wanted: InstanceSnapshot, disk: Disk
) -> InstanceSnapshot:
    """Save the guest's memory and take the snapshots of its disks; return the snapshot. `undo` removes everything."""
    node = primary_node(ctx, instance)
    made = memory_removal(ctx.snapshot, instance, disk)
    unsure = replace(made, unsure=True)
    await undo.push(unsure)
    spec = memory_spec(ctx.snapshot, instance, disk)
    await make_disk(ctx, node, DiskArgs(instance_name=instance.name, disk=spec))
    undo.amend(unsure, made)
    for step in snapshot_removals(ctx.snapshot, instance, [wanted], unsure=True):
        await undo.push(step)
    names = [one.name for one in wanted.disks]
    args = SaveGuestArgs(instance=spec_of(ctx, instance), names=names, memory=spec)
    async with showing(ctx, node, "memory of the guest"):
        saved = await ctx.call(node, SAVE_GUEST, args)
    ctx.info(f"the guest was paused for {saved.paused_ms} ms")
    memory = SavedMemory(disk=disk, length=saved.length, sha256=saved.sha256)
    return replace(wanted, consistency=Consistency.MEMORY, memory=memory)


def _args(ctx: UnitContext, instance: Instance, memory: SavedMemory) -> SavedGuestArgs:
    return SavedGuestArgs(
        instance=spec_of(ctx, instance),
        memory=memory_spec(ctx.snapshot, instance, memory.disk),
        length=memory.length,
        sha256=memory.sha256,
    )


async def check_fits(
    ctx: UnitContext,
    instance: Instance,
    node: Node,
    snapshot: InstanceSnapshot,
    state: RunningInstance | None,
) -> None:
    """Refuse if the guest cannot continue from the memory of a snapshot; before anything is changed."""
    if snapshot.memory is None:
        return
    check_not_offline(instance)
    try:
        why = await ctx.call(node, SAVED_GUEST_MISFITS, _args(ctx, instance, snapshot.memory))
    except RpcError as err:
        why = [str(err)]
    if why:
        raise PrereqError(
            f"{instance.name} cannot continue from the memory of snapshot {snapshot.name}: {'; '.join(why)}. To roll"
            f" back only its disks, run: gnt-instance snapshot rollback --no-memory {instance.name} {snapshot.name}",
            ErrorCode.WRONG_STATE,
        )
    if state is None:
        await check_can_start(ctx, node, replace(instance, rolling_back=None))


async def restore(
    ctx: UnitContext, undo: UndoLog, instance: Instance, node: Node, snapshot: InstanceSnapshot
) -> None:
    """Start the guest from its memory, its disks being rolled back already; the end of `undo` lets it continue."""
    if snapshot.memory is None:
        return
    ctx.step(f"restoring the memory of {instance.name} from snapshot {snapshot.name}")
    granted = await grant_primary(ctx.config, instance)
    await undo.push(StopInstance(node=node.uuid, instance=spec_of(ctx, granted)))
    try:
        async with showing(ctx, node, "memory of the guest"):
            await ctx.call(node, RESTORE_GUEST, _args(ctx, granted, snapshot.memory))
    except RpcError as err:
        raise ExecError(
            f"{err}; the disks of {instance.name} are rolled back, and it cannot be started before the rollback is"
            f" complete: repeat it, or complete it without the memory: gnt-instance snapshot rollback --no-memory"
            f" {instance.name} {snapshot.name}"
        ) from err

    def complete(draft: Draft) -> None:
        now = draft.instances[instance.uuid]
        draft.put(
            replace(
                now,
                rolling_back=None,
                admin_state=AdminState.UP,
                admin_state_source=AdminStateSource.ADMIN,
            )
        )

    undo.commit(complete, then=[ContinueGuest(instance=instance.uuid)])
