"""A new backup of an instance: its changed blocks, in a directory on a node."""

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import is_uuid
from ganeti.config.fill import filled_beparams, instance_spec
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import Consistency
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes.points import OpBackupSave
from ganeti.protocols.export_description import RAW, format_description
from ganeti.rpc.procedures.backup_keys import BackupKeys
from ganeti.rpc.procedures.backups import (
    BACKUP_BEGIN,
    BACKUP_COMMIT,
    MOMENT_BEGIN,
    BackupBegun,
    CommitPoint,
    MomentArgs,
    MomentBegun,
    PointInfo,
)
from ganeti.rpc.procedures.streams import DiskEnd, PointEnd, StreamResult, SumsEnd
from ganeti.units.backup.description import described
from ganeti.units.backup.keys import keys_for
from ganeti.units.backup.points import DEFAULT_TARGET, Place, check_place, places
from ganeti.units.bandwidth import check_bandwidth
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    is_running,
    primary_node,
)
from ganeti.units.instance.snapshot_checks import MEANING, check_not_rolling_back
from ganeti.units.mirrors.opening import disks_ready
from ganeti.units.node_choice import check_online
from ganeti.units.transfers import SLACK, Load, Route, carry, make_route
from ganeti.units.undo.instances import EndMoment
from ganeti.units.undo.transfers import AbandonBackup

MIB = 1024 * 1024
SUM_BYTES, BLOCK = 32, 64 * 1024


@dataclass(frozen=True)
class SavePlan:
    """The instance, its node, and the directory for the backup."""

    instance: Instance
    source: Node
    place: Place
    runs: bool
    keys: BackupKeys


class LUBackupSave(InstanceUnit[OpBackupSave, SavePlan]):
    """Write a backup of all disks; it appears completely, or not at all."""

    hook = "instance-backup"

    def check_arguments(self) -> None:
        check_place(self.op)
        check_bandwidth(self.op.bandwidth)
        if self.op.schedule is not None and not is_uuid(self.op.schedule):
            raise InputError("is not the UUID of a schedule", "schedule")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [
            lock(Level.INSTANCE, self.instance(snapshot).name),
            lock(Level.NODE, ALL, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> SavePlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        check_not_rolling_back(instance)
        if not instance.disks:
            raise PrereqError(f"{instance.name} has no disks", ErrorCode.WRONG_STATE)
        source = primary_node(ctx, instance)
        check_online(source)
        place = await self._place(ctx, instance)
        check_online(place.node)
        runs = await is_running(ctx, source, instance)
        encrypts = (
            ctx.snapshot.cluster.encrypt_backups if self.op.encrypt is None else self.op.encrypt
        )
        keys = keys_for(ctx.snapshot, instance.name, encrypts=encrypts)
        return SavePlan(instance, source, place, runs, keys)

    async def _place(self, ctx: UnitContext, instance: Instance) -> Place:
        """Return the requested directory, or the only one that has backups of the instance."""
        op, name = self.op, instance.name
        found = await places(ctx, op, name)
        if len(found) == 1:
            return found[0]
        if op.node is not None and (op.target is not None or not found):
            return Place(resolve_node(ctx.snapshot, op.node), op.target or DEFAULT_TARGET, name)
        if not found:
            why = f"{name} has no backup yet: name the node that is to store its backups (--node), best not its own"
            raise PrereqError(why, ErrorCode.WRONG_INPUT)
        where = ", ".join(one.words for one in found)
        raise PrereqError(
            f"name the node for the backup of {name} (--node), and its directory (--target); there are backups in:"
            f" {where}",
            ErrorCode.WRONG_INPUT,
        )

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: SavePlan
    ) -> dict[str, str]:
        return {
            "BACKUP_ACTION": "save",
            "BACKUP_NODE": plan.place.node.name,
            "BACKUP_TARGET": plan.place.target,
        }

    def dry_run_result(self, ctx: UnitContext, plan: SavePlan) -> Any:
        del ctx, plan
        return {"point": "", "parent": "", "stored": 0, "consistency": None}

    async def execute(self, ctx: UnitContext, plan: SavePlan) -> Outcome:
        place = plan.place
        begun = await ctx.call(place.node, BACKUP_BEGIN, replace(place.args, keys=plan.keys))
        if plan.keys.current and not begun.encrypts:
            raise PrereqError(
                f"{place.node.name} has an older version, which cannot encrypt backups; upgrade it, or choose another node"
                " (--node)",
                ErrorCode.WRONG_STATE,
            )
        full = self.op.full or self._is_other_key(ctx, plan, begun.last)
        self._check_space(plan, begun, full=full)
        point, rate = _point_name(ctx.now, place.points), self.op.bandwidth * MIB
        saving = _Saving(ctx, plan, begun.last, point, full, rate, self.op.schedule or "")
        info = await saving.run()
        ctx.info(f"backup {info.point}: {info.stored // MIB} MiB in {place.words}")
        return Outcome(
            {
                "point": info.point,
                "parent": info.parent if saving.has_base else "",
                "stored": info.stored,
                "consistency": info.consistency and info.consistency.value,
            }
        )

    @staticmethod
    def _is_other_key(ctx: UnitContext, plan: SavePlan, last: PointInfo | None) -> bool:
        """Return whether the last backup has another key, or only one of both has a key.

        Neither content that anybody can replace nor a key that may be known belongs into a chain with the present key.
        """
        if last is None or last.key_id == plan.keys.current:
            return False
        ctx.info(
            f"this is a full backup: the last one, {last.point}, is encrypted with {last.key_id or 'no key'}, and this one"
            f" with {plan.keys.current or 'no key'}"
        )
        return True

    def _check_space(self, plan: SavePlan, begun: BackupBegun, *, full: bool) -> None:
        """Refuse a full backup that does not fit; the size of changes is unknown."""
        needed = sum(disk.size for disk in plan.instance.disks)
        if (full or begun.last is None) and begun.free < needed:
            raise PrereqError(
                f"{plan.place.words} has {begun.free} MiB free, and a full backup may need {needed} MiB",
                ErrorCode.NO_RESOURCES,
            )


def _point_name(now: float, points: list[PointInfo]) -> str:
    """Return a name from the time that no backup in the directory has."""
    name, taken = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)), {one.point for one in points}
    names = [name, *(f"{name}-{number}" for number in range(2, len(points) + 3))]
    return next(one for one in names if one not in taken)


def _bitmap(place: Place, point: str) -> str:
    """Return the name of QEMU's bitmap with the changes since a backup; each directory has its own."""
    where = f"{place.node.uuid} {place.target} {place.instance} {point}"
    return f"backup-{hashlib.sha256(where.encode()).hexdigest()[:24]}"


@dataclass
class _Saving:
    ctx: UnitContext
    plan: SavePlan
    last: PointInfo | None
    point: str
    full: bool
    rate: int
    """Limit in bytes a second; 0: none."""
    schedule: str
    has_base: bool = False
    moment: MomentBegun | None = None

    async def run(self) -> PointInfo:
        """Write the images and the manifest; return the backup."""
        ctx, plan = self.ctx, self.plan
        instance, place = plan.instance, plan.place
        uuids = [disk.uuid for disk in instance.disks]
        then = list[EndMoment]()
        async with ctx.undo_log() as undo:
            await undo.push(
                AbandonBackup(
                    node=place.node.uuid,
                    instance=instance.name,
                    target=place.target,
                    point=self.point,
                    disks=uuids,
                )
            )
            route = await make_route(ctx, undo, instance.name, plan.source, place.node)
            back = await make_route(ctx, undo, instance.name, place.node, plan.source)
            if plan.runs:
                then = [await self._begin_moment(undo)]
                await self._save_all(undo, route, back)
            else:
                async with disks_ready(ctx, instance):
                    await self._save_all(undo, route, back)
            ctx.step("finishing the backup")
            info = await ctx.call(place.node, BACKUP_COMMIT, self._manifest(uuids))
            undo.commit(then=then)
        return info

    async def _begin_moment(self, undo: UndoLog) -> EndMoment:
        """Let QEMU show the disks as they are now; return the step that ends that after the success."""
        ctx, plan = self.ctx, self.plan
        spec = instance_spec(ctx.snapshot, plan.instance)
        base = _bitmap(plan.place, self.last.point) if self.last and not self.full else ""
        bitmap = _bitmap(plan.place, self.point)
        step = EndMoment(node=plan.source.uuid, instance=spec, base=base, bitmap=bitmap)
        await undo.push(step)
        args = MomentArgs(instance=spec, base=base, bitmap=bitmap)
        self.moment = await ctx.call(plan.source, MOMENT_BEGIN, args)
        ctx.info(MEANING[self.moment.consistency])
        return replace(step, keep=True)

    async def _save_all(self, undo: UndoLog, route: Route, back: Route) -> None:
        for disk in instance_spec(self.ctx.snapshot, self.plan.instance).disks:
            await self._save(undo, route, back, disk)

    def _base(self, disk: DiskSpec) -> str:
        """Return the backup that has the unchanged blocks of a disk; '' for none."""
        if self.full or self.last is None:
            return ""
        sizes = {one.disk: one.size for one in self.last.disks}
        return (
            self.last.point if sizes.get(disk.uuid, disk.size * MIB + 1) <= disk.size * MIB else ""
        )

    async def _save(self, undo: UndoLog, route: Route, back: Route, disk: DiskSpec) -> None:
        base, place, moment = self._base(disk), self.plan.place, self.moment
        sums = bitmap = ""
        if base and moment and moment.has_changes:
            self.has_base = True
            self.ctx.step(f"saving the changes of disk {disk.index} since backup {base}")
            bitmap = _bitmap(place, base)
        elif base:
            self.has_base = True
            self.ctx.step(f"comparing disk {disk.index} with backup {base}")
            sums = await self._sums(undo, back, disk, base)
        else:
            self.ctx.step(f"saving disk {disk.index} ({disk.size} MiB) to {place.words}")
        size = disk.size * MIB
        source = DiskEnd(
            instance=instance_spec(self.ctx.snapshot, self.plan.instance),
            index=disk.index,
            changes=True,
            sums=sums,
            moment=moment.socket if moment else "",
            bitmap=bitmap,
        )
        target = self._end(disk, self.point, parent=base)
        await carry(self.ctx, undo, route, self._load(disk, source, target, size))

    async def _sums(self, undo: UndoLog, back: Route, disk: DiskSpec, base: str) -> str:
        """Bring the sums of the last backup's blocks to the instance's node; return the token of the file."""
        source = self._end(disk, base, sums=True)
        size = disk.size * MIB // BLOCK * SUM_BYTES
        token = self.ctx.ids.token()
        load = self._load(disk, source, SumsEnd(), size)
        await carry(self.ctx, undo, back, load, token=token)
        return token

    def _end(self, disk: DiskSpec, point: str, *, parent: str = "", sums: bool = False) -> PointEnd:
        place = self.plan.place
        return PointEnd(
            target=place.target,
            instance=place.instance,
            point=point,
            disk=disk.uuid,
            size=disk.size * MIB,
            parent=parent,
            sums=sums,
            # Sums of a plain backup that was put in this place would hide changes.
            keys=replace(self.plan.keys, is_required=sums and bool(self.plan.keys.current)),
        )

    def _load(
        self, disk: DiskSpec, source: DiskEnd | PointEnd, target: PointEnd | SumsEnd, size: int
    ) -> Load:
        limit = size + size // 8 + SLACK
        return Load(f"disk {disk.index}", size, limit, source, target, rate=self.rate)

    def _manifest(self, uuids: list[str]) -> CommitPoint:
        ctx, plan = self.ctx, self.plan
        instance = plan.instance
        if instance.osparams_private:
            ctx.warn("private OS parameters are not in the backup; pass them to an import of it")
        public = replace(instance, osparams_private={})
        nothing = StreamResult(data_bytes=0, seconds=0.0)
        description = described(
            public,
            plan.source.name,
            int(ctx.now),
            [nothing] * len(instance.disks),
            compression="none",
            data=RAW,
        )
        return CommitPoint(
            target=plan.place.target,
            instance_name=instance.name,
            keys=plan.keys,
            point=self.point,
            disks=uuids,
            instance_uuid=instance.uuid,
            schedule=self.schedule,
            time=ctx.now,
            parent=self.last.point if self.last else "",
            consistency=self.moment.consistency if self.moment else Consistency.DOWN,
            description=format_description(description, filled_beparams(ctx.snapshot, instance)),
        )
