"""Answers calls that move the disks of running guests to other storage of this node."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError, InputError
from ganeti.hypervisor.disk_moves import MovesDisks
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disk_moves import (
    DISK_MOVE_BEGIN,
    DISK_MOVE_END,
    DISK_MOVE_OBSTACLES,
    DISK_MOVE_STATUS,
    DISK_MOVE_SWITCH,
    BeginDiskMoveArgs,
    DiskMoveArgs,
    DiskMoveEnd,
    DiskMoveStatus,
    DiskMoveSwitched,
    EndDiskMoveArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import InstanceArgs


def handlers(
    hypervisors: Mapping[str, Hypervisor], device: DeviceFactory, locks: InstanceLocks
) -> Handlers:
    """Return the handlers; the ones that change something wait for the instance's lock."""
    moves = _DiskMoves(hypervisors, device, locks)
    return {
        DISK_MOVE_OBSTACLES.name: moves.obstacles,
        DISK_MOVE_BEGIN.name: moves.begin,
        DISK_MOVE_STATUS.name: moves.status,
        DISK_MOVE_SWITCH.name: moves.switch,
        DISK_MOVE_END.name: moves.end,
    }


@dataclass(frozen=True)
class _DiskMoves:
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks

    def _able(self, instance: InstanceSpec) -> MovesDisks:
        found = options_of(self.hypervisors, instance.hypervisor).disk_moves
        if found is None:
            raise HypervisorError(
                f"hypervisor {instance.hypervisor!r:.40} of this node cannot move disks of running guests"
            )
        return found

    async def obstacles(self, args: InstanceArgs, _call: Call) -> list[str]:
        try:
            moves = self._able(args.instance)
        except HypervisorError as err:
            return [err.message]
        return await moves.obstacles(args.instance)

    async def begin(self, args: BeginDiskMoveArgs, _call: Call) -> Nothing:
        instance, moves = args.instance, self._able(args.instance)
        if [one.uuid for one in args.disks] != [one.uuid for one in instance.disks]:
            raise InputError("must have the UUIDs of the instance's disks", "disks")
        async with self.locks.of(instance.name):
            disks = InstanceDisks(self.device, replace(instance, disks=args.disks))
            images = await disks.open()
            try:
                await moves.begin(
                    instance,
                    args.disks,
                    images,
                    token=args.token,
                    bandwidth_mib_s=args.bandwidth_mib_s,
                )
            except BaseException:
                await disks.abandon()
                raise
        return Nothing()

    async def status(self, args: DiskMoveArgs, _call: Call) -> DiskMoveStatus:
        return await self._able(args.instance).status(args.instance, args.token)

    async def switch(self, args: DiskMoveArgs, _call: Call) -> DiskMoveSwitched:
        async with self.locks.of(args.instance.name):
            paused_ms = await self._able(args.instance).switch(args.instance, args.token)
        return DiskMoveSwitched(paused_ms=paused_ms)

    async def end(self, args: EndDiskMoveArgs, _call: Call) -> DiskMoveEnd:
        instance, moves = args.instance, self._able(args.instance)
        async with self.locks.of(instance.name):
            is_moved = await moves.end(instance, args.token)
            if args.forget:
                moves.forget(instance, args.token)
        return DiskMoveEnd(is_moved=is_moved)
