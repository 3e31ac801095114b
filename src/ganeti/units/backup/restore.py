"""The restore of an instance's disks from a backup, in place."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import ProofState
from ganeti.model.objects import Instance, Node, UnfinishedRestore
from ganeti.model.opcodes.points import OpBackupRestore
from ganeti.rpc.procedures.backup_keys import BackupKeys
from ganeti.rpc.procedures.backups import PointInfo
from ganeti.rpc.procedures.streams import DiskEnd, PointEnd
from ganeti.units.backup.keys import keys_to_read
from ganeti.units.backup.live_restore import (
    Live,
    at_place,
    check_can_begin,
    earlier,
    planned,
    restore_live,
)
from ganeti.units.backup.points import (
    Place,
    check_place,
    check_point_name,
    only_place,
)
from ganeti.units.bandwidth import check_bandwidth
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, check_down, check_not_migrating, primary_node
from ganeti.units.instance.snapshot_checks import why_unfinished
from ganeti.units.mirrors.opening import disks_ready
from ganeti.units.node_choice import check_online
from ganeti.units.transfers import Load, Route, carry, make_route
from ganeti.units.undo.live_restores import FinishLiveRestore

MIB = 1024 * 1024


@dataclass(frozen=True)
class RestorePlan:
    """The instance, its node, the backup, and the disks to restore."""

    instance: Instance
    node: Node
    place: Place
    point: PointInfo
    disks: list[DiskSpec]
    keys: BackupKeys
    live: Live | None = None


class LUBackupRestore(InstanceUnit[OpBackupRestore, RestorePlan]):
    """Restore disks; an interrupted restore blocks the guest's start until it is repeated."""

    hook = "instance-backup"

    def check_arguments(self) -> None:
        check_place(self.op)
        check_point_name(self.op.point)
        check_bandwidth(self.op.bandwidth)
        if self.op.live and self.op.disk is not None:
            raise InputError("--live restores all disks; omit --disk, or --live", "disk")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [
            lock(Level.INSTANCE, self.instance(snapshot).name),
            lock(Level.NODE, ALL, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> RestorePlan:
        instance, op = self.instance(ctx.snapshot), self.op
        had = earlier(op, instance) if op.live else None
        if had is None:
            await check_down(ctx, instance, "restored", above_backup=True)
        else:
            check_not_migrating(instance, above_backup=True)
            op = at_place(ctx, op, had)
        unfinished = instance.restoring
        other_disk = unfinished is not None and self.op.disk not in (None, unfinished.disk)
        if instance.rolling_back is not None or other_disk:
            raise PrereqError(f"{instance.name}: {why_unfinished(instance)}", ErrorCode.WRONG_STATE)
        node = primary_node(ctx, instance)
        check_online(node)
        place = await only_place(ctx, op, instance.name)
        check_online(place.node)
        point = place.find(op.point)
        if point.proof.state is ProofState.FAILED:
            ctx.warn(f"the last check or drill of backup {point.point} failed: {point.proof.why}")
        keys = keys_to_read(ctx.snapshot, point, allow_unencrypted=op.allow_unencrypted)
        if op.live:
            await check_can_begin(ctx, instance, node)
            live = planned(ctx, instance, node, place, point, keys=keys)
            return RestorePlan(instance, node, place, point, [], keys, live)
        disks = self._disks(ctx, instance, point)
        return RestorePlan(instance, node, place, point, disks, keys)

    def _disks(self, ctx: UnitContext, instance: Instance, point: PointInfo) -> list[DiskSpec]:
        """Return the disks that the backup has, or the requested one."""
        sizes = {one.disk: one.size for one in point.disks}
        chosen = []
        for disk in instance_spec(ctx.snapshot, instance).disks:
            if self.op.disk not in (None, disk.index):
                continue
            size = sizes.get(disk.uuid)
            if size is None:
                ctx.warn(f"disk {disk.index} is not in backup {point.point}, and keeps its content")
            elif size > disk.size * MIB:
                raise PrereqError(
                    f"disk {disk.index} of {instance.name} has {disk.size} MiB, and {size // MIB} in the backup",
                    ErrorCode.WRONG_STATE,
                )
            else:
                chosen.append(disk)
        if not chosen:
            raise InputError(f"backup {point.point} has no such disk of {instance.name}", "disk")
        return chosen

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: RestorePlan
    ) -> dict[str, str]:
        return {
            "BACKUP_ACTION": "restore",
            "BACKUP_NODE": plan.place.node.name,
            "BACKUP_TARGET": plan.place.target,
            "BACKUP_NAME": plan.point.point,
        }

    def dry_run_result(self, ctx: UnitContext, plan: RestorePlan) -> Any:
        del ctx
        return {"point": plan.point.point}

    async def execute(self, ctx: UnitContext, plan: RestorePlan) -> Outcome:
        if plan.live is not None:
            return await restore_live(ctx, plan.live, bandwidth_mib_s=self.op.bandwidth)
        instance, point = plan.instance, plan.point.point
        async with ctx.undo_log() as undo:
            if instance.restoring is not None and (given_up := instance.restoring.live):
                end = FinishLiveRestore(
                    node=plan.node.uuid,
                    server=given_up.node,
                    instance=instance_spec(ctx.snapshot, instance),
                    token=given_up.token,
                )
                await undo.push(end, also_after=True)
            route = await make_route(ctx, undo, instance.name, plan.place.node, plan.node)
            # Recorded before the first byte, so that nothing starts from a mixture of two contents.
            mark = UnfinishedRestore(point=point, disk=self.op.disk)
            await ctx.config.change(_marked(instance, mark))
            try:
                async with disks_ready(ctx, instance):
                    for disk in plan.disks:
                        ctx.step(f"restoring disk {disk.index} ({disk.size} MiB) from {point}")
                        await self._restore(ctx, undo, route, plan, disk)
            except RpcError as err:
                raise ExecError(
                    f"{err}; the disks of {instance.name} may be a mixture of two contents now, so it cannot be"
                    f" started; repair the cause and run: gnt-backup restore {instance.name}, or restore another"
                    " backup"
                ) from err
            undo.commit(_marked(instance, None))
        return Outcome({"point": point})

    async def _restore(
        self, ctx: UnitContext, undo: UndoLog, route: Route, plan: RestorePlan, disk: DiskSpec
    ) -> None:
        size = disk.size * MIB
        source = PointEnd(
            target=plan.place.target,
            instance=plan.place.instance,
            point=plan.point.point,
            disk=disk.uuid,
            size=size,
            keys=plan.keys,
        )
        spec = instance_spec(ctx.snapshot, plan.instance)
        target = DiskEnd(instance=spec, index=disk.index, holds_data=True)
        rate = self.op.bandwidth * MIB
        load = Load(f"disk {disk.index}", size, size, source, target, rate=rate)
        await carry(ctx, undo, route, load)


def _marked(instance: Instance, mark: UnfinishedRestore | None) -> Change:
    def change(draft: Draft) -> None:
        draft.put(replace(draft.instances[instance.uuid], restoring=mark))

    return change
