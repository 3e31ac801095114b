"""Answers calls about lasting snapshots: all disks of an instance at one moment, perhaps with its memory."""

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError, InputError, StorageError
from ganeti.hypervisor.abilities import Held
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.hypervisor.saved_guests import SavedGuest, SavesGuests
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import Consistency, DiskRole
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.exports import snapshot_name
from ganeti.node.instance import give_up
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.snapshots import (
    RESTORE_GUEST,
    SAVE_GUEST,
    SAVED_GUEST_MISFITS,
    SNAPSHOT_ROLL_BACK,
    SNAPSHOTS_TAKE,
    GuestSaved,
    SavedGuestArgs,
    SaveGuestArgs,
    SnapshotsTaken,
    TakeSnapshotsArgs,
)
from ganeti.rpc.procedures.streams import SnapshotArgs
from ganeti.storage.interface import BlockDevice, Snapshots

log = logging.getLogger(__name__)

MIB = 1024 * 1024


def handlers(
    hypervisors: Mapping[str, Hypervisor], device: DeviceFactory, locks: InstanceLocks
) -> Handlers:
    """Return the handlers, which wait for the instance's lock."""
    snapshots = _Snapshots(hypervisors, device, locks)
    return {
        SNAPSHOTS_TAKE.name: snapshots.take,
        SNAPSHOT_ROLL_BACK.name: snapshots.roll_back,
        SAVE_GUEST.name: snapshots.save,
        SAVED_GUEST_MISFITS.name: snapshots.misfits,
        RESTORE_GUEST.name: snapshots.restore,
    }


@dataclass(frozen=True)
class _Snapshots:
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks

    async def take(self, args: TakeSnapshotsArgs, _call: Call) -> SnapshotsTaken:
        instance = args.instance
        async with (
            self.locks.of(instance.name),
            self._new(instance, args.names) as new,
            self._held(instance, args.limit_s) as held,
        ):
            await new.make()
        return SnapshotsTaken(consistency=held.consistency)

    async def save(self, args: SaveGuestArgs, _call: Call) -> GuestSaved:
        instance = args.instance
        saving = self._saving(instance)
        async with (
            self.locks.of(instance.name),
            self._memory(instance, args.memory) as path,
            self._new(instance, args.names) as new,
        ):
            capacity = args.memory.size * MIB
            saved = await saving.save(instance, path, capacity, new.make)
        return GuestSaved(length=saved.length, sha256=saved.sha256, paused_ms=saved.paused_ms)

    async def misfits(self, args: SavedGuestArgs, _call: Call) -> list[str]:
        saving = self._saving(args.instance)
        async with (
            self.locks.of(args.instance.name),
            self._memory(args.instance, args.memory) as path,
        ):
            return await saving.misfits(args.instance, path)

    async def restore(self, args: SavedGuestArgs, _call: Call) -> Nothing:
        instance = args.instance
        saving = self._saving(instance)
        async with self.locks.of(instance.name), self._memory(instance, args.memory) as path:
            disks = InstanceDisks(self.device, instance)
            disk_paths = await disks.open()
            try:
                saved = SavedGuest(args.length, args.sha256)
                await saving.restore(instance, disk_paths, path, saved)
            except BaseException:
                await give_up(disks, self.hypervisors[instance.hypervisor], instance)
                raise
        return Nothing()

    def _saving(self, instance: InstanceSpec) -> SavesGuests:
        found = options_of(self.hypervisors, instance.hypervisor).saved
        if found is None:
            raise HypervisorError(
                f"hypervisor {instance.hypervisor!r:.40} of this node cannot save the memory of guests"
            )
        return found

    @contextlib.asynccontextmanager
    async def _memory(self, instance: InstanceSpec, disk: DiskSpec) -> AsyncIterator[Path]:
        """Keep a disk with memory open for the block."""
        device = self.device(instance.name, disk)
        await device.open(DiskRole.PRIMARY)
        try:
            if not device.path.startswith("/"):
                raise StorageError(
                    f"{device.path}: memory can be saved only on a disk that the kernel opens; set access=kernelspace"
                )
            yield Path(device.path)
        finally:
            await device.close()

    @contextlib.asynccontextmanager
    async def _new(self, instance: InstanceSpec, names: Sequence[str]) -> AsyncIterator["_New"]:
        """A block in which all snapshots are made, and removed after a failure; its lock is held."""
        if len(names) != len(instance.disks):
            raise InputError(f"must be {len(instance.disks)} names, one for each disk", "names")
        wanted = []
        for disk, name in zip(instance.disks, names, strict=True):
            device = self.device(instance.name, disk)
            await device.check_identity()
            wanted.append((_able(device, disk.index), snapshot_name(name)))
        new = _New(wanted)
        await new.drop()  # an earlier call may have taken them at another moment
        try:
            yield new
        except BaseException:
            with contextlib.suppress(StorageError):
                await new.drop()
            raise

    @contextlib.asynccontextmanager
    async def _held(self, instance: InstanceSpec, limit_s: float) -> AsyncIterator[Held]:
        """Keep the guest from writing during the block, if it runs here."""
        hypervisor = self.hypervisors.get(instance.hypervisor)
        found = await hypervisor.one_running(instance.uuid) if hypervisor else None
        if found is None or found.state == "shutdown":
            yield Held(Consistency.DOWN)
            return
        if not found.has_guest:
            raise HypervisorError(f"{instance.name} is in an unfinished migration")
        holding = options_of(self.hypervisors, instance.hypervisor).holding
        if holding is None:
            yield Held(Consistency.CRASH)
            return
        async with holding.held(instance, limit_s) as held:
            yield held

    async def roll_back(self, args: SnapshotArgs, _call: Call) -> Nothing:
        async with self.locks.of(args.instance_name):
            device = self.device(args.instance_name, args.disk)
            await device.check_identity()
            await _able(device, args.disk.index).roll_back(snapshot_name(args.name))
        return Nothing()


@dataclass(frozen=True)
class _New:
    """New snapshots, one of each disk."""

    wanted: Sequence[tuple[Snapshots, str]]

    async def make(self) -> None:
        for snapshots, name in self.wanted:
            await snapshots.make(name)

    async def drop(self) -> None:
        failure = None
        for snapshots, name in self.wanted:
            try:
                await snapshots.drop(name)
            except StorageError as err:
                failure = err
        if failure is not None:
            raise failure


def _able(device: BlockDevice, index: int) -> Snapshots:
    if device.snapshots is None:
        raise StorageError(f"disk {index} has no snapshots")
    return device.snapshots
