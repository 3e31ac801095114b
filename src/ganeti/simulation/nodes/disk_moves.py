"""The calls that move the disks of running guests."""

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError, InputError
from ganeti.model.names import DiskRole
from ganeti.rpc.procedures.disk_moves import (
    BeginDiskMoveArgs,
    DiskMoveArgs,
    DiskMoveEnd,
    DiskMoveStatus,
    DiskMoveSwitched,
    EndDiskMoveArgs,
)
from ganeti.rpc.procedures.disks import OpenDiskArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.simulation.nodes.guests import GuestCalls
from ganeti.simulation.nodes.state import DiskMoveRecord
from ganeti.simulation.nodes.storage import path_of

MIB = 1024 * 1024


class DiskMoveCalls(GuestCalls):
    """The calls that move the disks of running guests; a copy has the data of its switch."""

    def on_disk_move_obstacles(self, args: InstanceArgs) -> list[str]:
        if not self._is_able(args.instance.hypervisor):
            return [
                f"hypervisor {args.instance.hypervisor!r:.40} of this node cannot move disks of running guests"
            ]
        if args.instance.uuid not in self.guests:
            return [f"{args.instance.name} does not run on this node"]
        return self.disk_move_obstacles

    def on_disk_move_begin(self, args: BeginDiskMoveArgs) -> Nothing:
        self._check_able(args.instance)
        if [one.uuid for one in args.disks] != [one.uuid for one in args.instance.disks]:
            raise InputError("must have the UUIDs of the instance's disks", "disks")
        guest = self._here(args.instance)
        for disk in args.disks:
            name = args.instance.name
            self.on_blockdev_assemble(
                OpenDiskArgs(instance_name=name, disk=disk, role=DiskRole.PRIMARY)
            )
        known = self.disk_moves.get(args.instance.uuid)
        if known is None or known.token != args.token or not known.is_moved:
            new = DiskMoveRecord(args.token, guest.spec.disks, args.disks)
            self.disk_moves[args.instance.uuid] = new
        return Nothing()

    def on_disk_move_status(self, args: DiskMoveArgs) -> DiskMoveStatus:
        self._check_able(args.instance)
        move = self._move(args)
        self._here(args.instance)
        move.looks += 1
        total = sum(disk.size for disk in move.old) * MIB
        in_step = move.looks >= self.disk_move_looks
        return DiskMoveStatus(done=total if in_step else 0, total=total, in_step=in_step)

    def on_disk_move_switch(self, args: DiskMoveArgs) -> DiskMoveSwitched:
        self._check_able(args.instance)
        move = self._move(args)
        if move.is_moved:
            return DiskMoveSwitched(paused_ms=0)
        guest = self._here(args.instance)
        for old, new in zip(move.old, move.new, strict=True):
            data = self._place(old).contents.get(path_of(old), "")
            self._place(new).contents[path_of(new)] = data
        guest.spec = replace(guest.spec, disks=move.new, disk_template=move.new[0].template)
        move.is_moved = True
        return DiskMoveSwitched(paused_ms=9)

    def on_disk_move_end(self, args: EndDiskMoveArgs) -> DiskMoveEnd:
        self._check_able(args.instance)
        move = self.disk_moves.get(args.instance.uuid)
        if move is None or move.token != args.token:
            return DiskMoveEnd(is_moved=False)
        move.is_copying = False
        if args.forget:
            del self.disk_moves[args.instance.uuid]
        return DiskMoveEnd(is_moved=move.is_moved)

    def _move(self, args: DiskMoveArgs) -> DiskMoveRecord:
        """Return the move of these arguments, which has not ended."""
        move = self.disk_moves.get(args.instance.uuid)
        if move is None or move.token != args.token or not (move.is_copying or move.is_moved):
            raise HypervisorError(
                f"the disks of {args.instance.name} are not being moved by this job"
            )
        return move
