"""Answers calls about lasting snapshots: all disks of an instance at one moment."""

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError, InputError, StorageError
from ganeti.hypervisor.abilities import Held
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import Consistency
from ganeti.node.disks import DeviceFactory
from ganeti.node.exports import snapshot_name
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.snapshots import (
    SNAPSHOT_ROLL_BACK,
    SNAPSHOTS_TAKE,
    SnapshotsTaken,
    TakeSnapshotsArgs,
)
from ganeti.rpc.procedures.streams import SnapshotArgs
from ganeti.storage.interface import BlockDevice, Snapshots

log = logging.getLogger(__name__)


def handlers(
    hypervisors: Mapping[str, Hypervisor], device: DeviceFactory, locks: InstanceLocks
) -> Handlers:
    """Return the handlers, which wait for the instance's lock."""
    snapshots = _Snapshots(hypervisors, device, locks)
    return {
        SNAPSHOTS_TAKE.name: snapshots.take,
        SNAPSHOT_ROLL_BACK.name: snapshots.roll_back,
    }


@dataclass(frozen=True)
class _Snapshots:
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks

    async def take(self, args: TakeSnapshotsArgs, _call: Call) -> SnapshotsTaken:
        instance = args.instance
        if len(args.names) != len(instance.disks):
            raise InputError(f"must be {len(instance.disks)} names, one for each disk", "names")
        async with self.locks.of(instance.name):
            wanted = []
            for disk, name in zip(instance.disks, args.names, strict=True):
                device = self.device(instance.name, disk)
                await device.check_identity()
                wanted.append((_able(device, disk.index), snapshot_name(name)))
            for snapshots, name in wanted:  # an earlier call may have taken them at another moment
                await snapshots.drop(name)
            try:
                async with self._held(instance, args.limit_s) as held:
                    for snapshots, name in wanted:
                        await snapshots.make(name)
            except BaseException:
                for snapshots, name in wanted:
                    with contextlib.suppress(StorageError):
                        await snapshots.drop(name)
                raise
        return SnapshotsTaken(consistency=held.consistency)

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


def _able(device: BlockDevice, index: int) -> Snapshots:
    if device.snapshots is None:
        raise StorageError(f"disk {index} has no snapshots")
    return device.snapshots
