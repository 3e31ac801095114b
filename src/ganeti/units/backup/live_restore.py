"""A restore during which the guest runs: `gnt-backup restore --live`.

serve the backup                              undo: end that, unless the guest has been started
mark: the guest is above the backup           undo: remove the mark, likewise
start the guest above the backup
begin to copy, wait until in step             undo: end the copy; if the guest has changed to its disks, finish
switch the guest to its own disks
remove the mark                               then: remove the overlays, end the programs

Everything is idempotent: after any failure the command is repeated, and continues with the overlays of the guest.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import Instance, LiveRestore, Node, NodeUuid, UnfinishedRestore
from ganeti.model.opcodes.points import OpBackupRestore
from ganeti.rpc.procedures.backup_keys import BackupKeys
from ganeti.rpc.procedures.backups import PointInfo
from ganeti.rpc.procedures.disk_moves import (
    DISK_MOVE_BEGIN,
    DISK_MOVE_SWITCH,
    BeginDiskMoveArgs,
    DiskMoveArgs,
)
from ganeti.rpc.procedures.live_restores import (
    LIVE_SERVE,
    LIVE_START,
    LiveStartArgs,
    ServePointArgs,
)
from ganeti.units.allocation import PlacementRequest
from ganeti.units.backup.points import Place
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.access import (
    is_running,
    running_state,
    set_admin_state,
    spec_of,
)
from ganeti.units.instance.disks import is_mirrored, open_disks, secondaries
from ganeti.units.instance.grants import grant_primary
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.power import start_instance
from ganeti.units.mirrors.opening import prepare_primary
from ganeti.units.node_choice import check_memory, free_resources
from ganeti.units.relocation.live_disks import until_in_step
from ganeti.units.transfers import make_route
from ganeti.units.undo.disks import SetDiskRole
from ganeti.units.undo.live_restores import (
    FinishLiveRestore,
    SettleLiveCopy,
    SettleLiveStart,
    unmarked,
)

MIB = 1024 * 1024


@dataclass(frozen=True)
class Live:
    """A live restore: the guest's node, the backup, and the mark in the configuration, perhaps of an earlier attempt."""

    instance: Instance
    node: Node
    place: Place
    mark: UnfinishedRestore
    live: LiveRestore
    keys: BackupKeys
    """Of the backup; only for the program that serves it."""

    @property
    def point(self) -> str:
        return self.live.point


def earlier(op: OpBackupRestore, instance: Instance) -> LiveRestore | None:
    """Return the unfinished live restore that the request continues; PrereqError if it cannot."""
    mark = instance.restoring
    if mark is None or mark.live is None:
        return None
    if op.point not in (None, mark.live.point):
        raise PrereqError(
            f"{instance.name} runs above backup {mark.live.point}, and a restore from {op.point} would lose what it has"
            f" written since; omit --point to complete the restore, or abandon that data: gnt-instance shutdown"
            f" {instance.name} && gnt-backup restore --point={op.point} {instance.name}",
            ErrorCode.WRONG_STATE,
        )
    return mark.live


def at_place(ctx: UnitContext, op: OpBackupRestore, live: LiveRestore) -> OpBackupRestore:
    """Return the request with the directory of the backup that an earlier attempt uses."""
    node = ctx.snapshot.nodes.get(NodeUuid(live.node))
    if node is None:
        raise PrereqError(
            f"the node with backup {live.point} has left the cluster, so this restore cannot be completed; to abandon what"
            f" {op.instance_name} has written since, run: gnt-instance shutdown {op.instance_name}, then gnt-backup restore"
            " with another backup",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return replace(op, node=node.name, target=live.target, point=live.point)


async def check_can_begin(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Raise PrereqError if the guest is down and its node lacks memory or networks."""
    if await is_running(ctx, node, instance):
        return
    await check_links(ctx, node, instance)
    what = f"starting instance {instance.name}"
    demand = Demand.of(ctx.snapshot.cluster, instance)
    ctx.services.placements.place(PlacementRequest(demand).placed_on(ctx, node))
    check_memory(await free_resources(ctx, node, what), node, demand.memory, what)


def planned(
    ctx: UnitContext,
    instance: Instance,
    node: Node,
    place: Place,
    point: PointInfo,
    *,
    keys: BackupKeys,
) -> Live:
    """Return the plan; InputError unless the backup has every disk of the instance."""
    sizes = {one.disk: one.size for one in point.disks}
    for disk in instance_spec(ctx.snapshot, instance).disks:
        if sizes.get(disk.uuid, disk.size * MIB + 1) > disk.size * MIB:
            raise InputError(
                f"backup {point.point} does not contain disk {disk.index} of {instance.name} ({disk.uuid}) in its"
                " present size; without --live, only the disks that it contains are restored",
                "live",
            )
    mark = instance.restoring
    if mark is not None and mark.live is not None:
        return Live(instance, node, place, mark, mark.live, keys)
    live = LiveRestore(
        node=place.node.uuid, target=place.target, point=point.point, token=ctx.ids.token()
    )
    return Live(instance, node, place, UnfinishedRestore(point=point.point, live=live), live, keys)


async def restore_live(ctx: UnitContext, plan: Live, *, bandwidth_mib_s: int) -> Outcome:
    """Start the guest above the backup, and give its disks the rest; or continue an earlier attempt."""
    name = plan.instance.name
    is_moved = await _start(ctx, plan)
    try:
        await _copy(ctx, plan, bandwidth_mib_s, is_moved=is_moved)
    except (RpcError, ExecError) as err:
        raise ExecError(
            f"{err}; what {name} writes is kept on {plan.node.name}, and nothing is lost: repair the cause, and run"
            f" gnt-backup restore --live {name}"
        ) from err
    now = ctx.snapshot.instances[plan.instance.uuid]
    if is_moved and await running_state(ctx, plan.node, now) is None:
        await start_instance(ctx, now)
    return Outcome({"point": plan.point})


async def _start(ctx: UnitContext, plan: Live) -> bool:
    """Start the guest, or let it continue; return whether it has changed to its own disks already."""
    instance, live = plan.instance, plan.live
    spec = spec_of(ctx, instance)
    had = instance.restoring
    settle = SettleLiveStart(
        node=plan.node.uuid,
        server=plan.place.node.uuid,
        instance=spec,
        token=live.token,
        before=None if had is None or had.live else had,
    )
    async with ctx.undo_log() as undo:
        await undo.push(settle)
        ctx.step(f"serving backup {plan.point} in {plan.place.words}")
        starting = await _serve(ctx, undo, plan)
        # Recorded before the guest can write: nothing else may start it from its own disks.
        await ctx.config.change(_marked(instance, plan.mark))
        ctx.step(f"starting {instance.name} above backup {plan.point}")
        started = await ctx.call(plan.node, LIVE_START, starting)
        undo.commit(set_admin_state(instance.uuid, AdminState.UP))
    ctx.services.placements.release(ctx.job_id)
    return started.is_moved


async def _serve(ctx: UnitContext, undo: UndoLog, plan: Live) -> LiveStartArgs:
    """Let the node of the backup serve it; return the request for the guest's node."""
    instance, place = plan.instance, plan.place
    spec = spec_of(ctx, instance)
    serving = ServePointArgs(
        target=place.target,
        instance_name=place.instance,
        keys=plan.keys,
        point=plan.point,
        token=plan.live.token,
        disks=[disk.uuid for disk in spec.disks],
        owner=instance.name,
        owner_uuid=instance.uuid,
    )
    starting = LiveStartArgs(instance=spec, token=plan.live.token)
    if place.node.uuid == plan.node.uuid:
        await ctx.call(place.node, LIVE_SERVE, serving)
        return starting
    route = await make_route(ctx, undo, instance.name, place.node, plan.node)
    address = place.node.secondary_ip
    serving = replace(
        serving,
        address=address,
        key_name=route.source.key_name,
        peer=route.target.certificate,
    )
    served = await ctx.call(place.node, LIVE_SERVE, serving)
    return replace(
        starting,
        address=address,
        port=served.port,
        key_name=route.target.key_name,
        peer=route.source.certificate,
    )


async def _copy(ctx: UnitContext, plan: Live, bandwidth_mib_s: int, *, is_moved: bool) -> None:
    node, live = plan.node, plan.live
    spec = spec_of(ctx, plan.instance)
    finish = FinishLiveRestore(
        node=node.uuid, server=plan.place.node.uuid, instance=spec, token=live.token
    )
    async with ctx.undo_log() as undo:
        if not is_moved:
            instance = await _open_copies(ctx, undo, plan.instance)
            spec = spec_of(ctx, instance)
            settle = SettleLiveCopy(
                node=node.uuid, server=plan.place.node.uuid, instance=spec, token=live.token
            )
            await undo.push(settle)
            ctx.step(f"copying the disks from backup {plan.point} while the guest runs")
            move = DiskMoveArgs(instance=spec, token=live.token)
            begin = BeginDiskMoveArgs(
                instance=spec,
                token=live.token,
                disks=spec.disks,
                bandwidth_mib_s=bandwidth_mib_s,
            )
            await ctx.call(node, DISK_MOVE_BEGIN, begin)
            await until_in_step(ctx, node, move)
            ctx.step("switching the guest to its own disks")
            switched = await ctx.call(node, DISK_MOVE_SWITCH, move)
            ctx.info(f"the guest was paused for {switched.paused_ms} ms")
        undo.commit(unmarked(plan.instance.uuid, live.token), then=[finish])


async def _open_copies(ctx: UnitContext, undo: UndoLog, instance: Instance) -> Instance:
    """Prepare mirrored disks for a guest on the primary node, as at its start; return the instance with its grants."""
    instance = await grant_primary(ctx.config, instance)
    if not is_mirrored(instance):
        return instance
    for other in secondaries(ctx, instance):
        await undo.push(SetDiskRole(node=other.uuid, instance=instance.uuid))
        await open_disks(ctx, instance, other, DiskRole.SECONDARY)
    return await prepare_primary(ctx, instance)


def _marked(instance: Instance, mark: UnfinishedRestore) -> Change:
    def change(draft: Draft) -> None:
        draft.put(replace(draft.instances[instance.uuid], restoring=mark))

    return change
