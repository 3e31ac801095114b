"""Model nodes that also have incremental backups: what each has of every disk, by words."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from ganeti.base.errors import HostError, HypervisorError
from ganeti.model.names import Consistency, ProofState
from ganeti.protocols.backup_encryption import missing_key
from ganeti.protocols.backup_proof import Judgement
from ganeti.rpc.procedures.backups import (
    BackupBegun,
    BackupListing,
    BackupsOf,
    CommitPoint,
    MomentArgs,
    MomentBegun,
    NewPoint,
    PointCheck,
    PointContent,
    PointDisk,
    PointInfo,
    PointOf,
    PrunePoints,
    TargetInfo,
)
from ganeti.rpc.procedures.disk_moves import DiskMoveArgs, DiskMoveSwitched
from ganeti.rpc.procedures.drills import DrillArgs, DrillResult
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.live_restores import (
    LiveEndArgs,
    LiveEnded,
    LiveServerArgs,
    LiveStartArgs,
    LiveStarted,
    Served,
    ServePointArgs,
)
from ganeti.rpc.procedures.streams import EndArgs
from ganeti.simulation.nodes.state import STREAM_PORT, Guest
from ganeti.simulation.nodes.storage import path_of
from tests.support.export_nodes import MIB, ExportNode
from tests.support.units_cluster import World


@dataclass
class Stored:
    """A backup, its description, and the content of each disk by the disk's UUID."""

    info: PointInfo
    description: str
    contents: dict[str, str]
    parents: dict[str, str] = field(default_factory=dict)


@dataclass
class BackupNode(ExportNode):
    """A model node with directories for backups."""

    points: dict[tuple[str, str], list[Stored]] = field(default_factory=dict)
    written: dict[tuple[str, str, str], tuple[str, str, int]] = field(default_factory=dict)
    """Target, backup, disk -> content, parent and bytes of images that no backup has yet."""
    moments: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UUID of a guest whose disks are shown -> its former and its new bitmap."""
    bitmaps: dict[str, set[str]] = field(default_factory=dict)
    """UUID of a guest -> its bitmaps."""
    read_by_bitmap: list[str] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)
    unrecorded: str = ""
    encrypts: bool = True
    drills: list[DrillArgs] = field(default_factory=list)
    space: int = 100_000
    served: dict[str, ServePointArgs] = field(default_factory=dict)
    """Token of a live restore -> the backup that is served for it."""
    overlays: dict[str, dict[str, str]] = field(default_factory=dict)
    """UUID of a guest above a backup -> the content of its disks by their UUIDs."""

    def on_backup_list(self, args: Nothing) -> BackupListing:
        found = [one.info for stored in self.points.values() for one in stored]
        targets = [TargetInfo(target=target, free=self.space) for target, _ in self.points]
        return BackupListing(targets=targets, points=found)

    def _of(self, args: BackupsOf) -> list[Stored]:
        return self.points.setdefault((args.target, args.instance_name), [])

    def on_backup_begin(self, args: BackupsOf) -> BackupBegun:
        had = self._of(args)
        last = had[-1].info if had else None
        return BackupBegun(last=last, free=self.space, encrypts=self.encrypts)

    def on_backup_commit(self, args: CommitPoint) -> PointInfo:
        had = self._of(args)
        for one in had:
            if one.info.point == args.point:
                return one.info
        if (had[-1].info.point if had else "") != args.parent:
            raise HostError("another backup was made meanwhile")
        images = {disk: self.written.pop((args.target, args.point, disk)) for disk in args.disks}
        info = PointInfo(
            target=args.target,
            instance=args.instance_name,
            point=args.point,
            instance_uuid=args.instance_uuid,
            time=args.time,
            parent=args.parent,
            consistency=args.consistency,
            stored=MIB,
            disks=[PointDisk(disk=disk, size=size) for disk, (_, _, size) in images.items()],
            key_id=args.keys.current,
            schedule=args.schedule,
        )
        contents = {disk: content for disk, (content, _, _) in images.items()}
        parents = {disk: parent for disk, (_, parent, _) in images.items()}
        had.append(Stored(info, args.description, contents, parents))
        return info

    def on_backup_abandon(self, args: NewPoint) -> Nothing:
        for disk in args.disks:
            self.written.pop((args.target, args.point, disk), None)
        return Nothing()

    def stored(self, args: BackupsOf, point: str) -> Stored:
        found = next((one for one in self._of(args) if one.info.point == point), None)
        if found is None:
            raise HostError(f"backup {point}: it does not exist")
        return found

    def readable(self, args: BackupsOf, point: str) -> Stored:
        """Return a backup if the call has its key."""
        found = self.stored(args, point)
        if found.info.key_id and args.keys.keyring.keys.get(found.info.key_id) is None:
            raise HostError(missing_key(found.info.key_id))
        if args.keys.is_required and not found.info.key_id:
            raise HostError(f"backup {point} is not encrypted")
        return found

    def on_backup_info(self, args: PointOf) -> PointContent:
        found = self.readable(args, args.point)
        return PointContent(description=found.description, info=found.info)

    def on_backup_prune(self, args: PrunePoints) -> Nothing:
        self._of(args)[:] = [one for one in self._of(args) if one.info.point not in args.points]
        return Nothing()

    def on_backup_check(self, args: BackupsOf) -> list[PointCheck]:
        return [
            PointCheck(
                point=one.info.point,
                problems=["x.qcow2: not what was written"]
                if one.info.point in self.damaged
                else [],
                unrecorded=self.unrecorded,
            )
            for one in self._of(args)
        ]

    def on_backup_drill(self, args: DrillArgs) -> DrillResult:
        found = self.readable(args, args.point)
        self.drills.append(args)
        if args.point in self.damaged:
            return DrillResult(problem="300 s passed without 'login:'", lines=["GRUB", "grub>"])
        proof = Judgement(state=ProofState.GOOD, drilled=1.0)
        found.info = replace(found.info, proof=proof)
        return DrillResult(
            seen=args.expect,
            seconds=2.5,
            lines=["web1 login:"],
            memory=args.memory,
            accelerator="tcg",
            unrecorded=self.unrecorded,
        )

    # --- live restores ---

    def on_live_serve(self, args: ServePointArgs) -> Served:
        self.readable(args, args.point)
        if args.address and args.key_name not in self.keys:
            raise HostError("no such key")
        self.served[args.token] = args
        return Served(port=STREAM_PORT if args.address else 0)

    def on_live_serve_end(self, args: LiveServerArgs) -> Nothing:
        self.served.pop(args.token, None)
        return Nothing()

    def on_live_start(self, args: LiveStartArgs) -> LiveStarted:
        self._check_may_start()
        instance = args.instance
        move = self.disk_moves.get(instance.uuid)
        if move is not None and move.token == args.token and move.is_moved:
            return LiveStarted(is_moved=True)
        if args.address and args.key_name not in self.keys:
            raise HostError("no such key")
        if not args.address and args.token not in self.served:
            raise HostError("nothing is served here")
        if self.refuses_start:
            raise HypervisorError(self.refuses_start)
        written = {disk.uuid: "backup" for disk in instance.disks}
        self.overlays.setdefault(instance.uuid, written)
        if instance.uuid not in self.guests:
            self.guests[instance.uuid] = Guest(instance)
        return LiveStarted(is_moved=False)

    def on_live_end(self, args: LiveEndArgs) -> LiveEnded:
        uuid = args.instance.uuid
        if uuid not in self.overlays:
            return LiveEnded()
        if args.keep_used:
            return LiveEnded(is_kept=True)
        move = self.disk_moves.get(uuid)
        is_moved = move is not None and move.token == args.token and move.is_moved
        if uuid in self.guests and not is_moved:
            raise HostError("the guest uses them")
        del self.overlays[uuid]
        return LiveEnded()

    def guest_writes(self, uuid: str, text: str) -> None:
        """Let a guest write to all its disks, wherever they are."""
        guest, move = self.guests[uuid], self.disk_moves.get(uuid)
        if uuid in self.overlays and not (move and move.is_moved):
            self.overlays[uuid] = dict.fromkeys(self.overlays[uuid], text)
        else:
            for disk in guest.spec.disks:
                self._place(disk).contents[path_of(disk)] = text

    def on_disk_move_switch(self, args: DiskMoveArgs) -> DiskMoveSwitched:
        move, above = self.disk_moves.get(args.instance.uuid), self.overlays.get(args.instance.uuid)
        was_moved = move is not None and move.is_moved
        found = super().on_disk_move_switch(args)
        if above is not None and not was_moved:
            for disk in args.instance.disks:
                self._place(disk).contents[path_of(disk)] = above[disk.uuid]
        return found

    # --- moments ---

    def on_moment_begin(self, args: MomentArgs) -> MomentBegun:
        uuid = args.instance.uuid
        if uuid not in self.guests:
            raise HostError(f"{args.instance.name} does not run on this node")
        self.moments[uuid] = (args.base, args.bitmap)
        known = self.bitmaps.setdefault(uuid, set())
        known.add(args.bitmap)
        return MomentBegun(
            consistency=Consistency.CRASH,
            socket=f"/run/{uuid}.b",
            has_changes=args.base in known,
        )

    def on_moment_end(self, args: MomentArgs) -> Nothing:
        uuid = args.instance.uuid
        if self.moments.pop(uuid, None) is not None or args.keep:
            self.bitmaps.get(uuid, set()).discard(args.base if args.keep else args.bitmap)
        return Nothing()

    # --- streams ---

    def _read(self, name: str, args: EndArgs) -> str:
        if args.disk is not None and args.disk.moment:
            if args.disk.instance.uuid not in self.moments:
                raise HostError("QEMU does not show the disk")
            if args.disk.bitmap:
                self.read_by_bitmap.append(args.disk.bitmap)
            disk = args.disk.instance.disks[args.disk.index]
            return self._place(disk).contents.get(path_of(disk), "")
        if args.point is None:
            return super()._read(name, args)
        one = args.point
        where = BackupsOf(target=one.target, instance_name=one.instance, keys=one.keys)
        found = self.readable(where, one.point)
        if found.info.point in self.damaged:
            raise HostError("x.qcow2: not what was written (SHA-256)")
        return found.contents[args.point.disk]

    def _write(self, args: EndArgs, content: str) -> None:
        if args.point is not None:
            one = args.point
            self.written[one.target, one.point, one.disk] = (content, one.parent, one.size)
        else:
            super()._write(args, content)


def backup_world(*templates: str) -> World:
    """Three nodes that keep backups, each with a volume group."""
    found = World(node_type=BackupNode, enabled_disk_templates=templates)
    for number in (1, 2, 3):
        one = backup_node(found, number)
        one.groups = {"xenvg": one.local}
    return found


def backup_node(world: World, number: int) -> BackupNode:
    found = world.node(number)
    assert isinstance(found, BackupNode)
    return found
