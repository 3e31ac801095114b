"""Undo of changes of a running guest: its disks, NICs, processors, memory."""

from collections.abc import Sequence

from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.objects import InstanceUuid
from ganeti.rpc.procedures.devices import (
    HOTPLUG_DISK,
    HOTPLUG_MEDIUM,
    HOTPLUG_NIC,
    INSTANCE_MEMORY,
    INSTANCE_VCPUS,
    DeviceAction,
    DiskChangeArgs,
    MediumArgs,
    MemoryArgs,
    NicChangeArgs,
    VcpusArgs,
)
from ganeti.units.services import Services
from ganeti.units.undo.step import Concerned, Step, names_of, node_of


class ChangeDisk(Step, frozen=True, kw_only=True):
    """Revert a change of a disk of a running guest."""

    kind = "change_disk_of_guest"

    node: str
    change: DiskChangeArgs

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            await services.rpc.call(node, HOTPLUG_DISK, self.change, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        spec = _guest_at(snapshot, self.change.instance, self.node)
        if spec is None:
            return True
        return not _is_wanted(self.change.action, self.change.disk, spec.disks)

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return _concerned(snapshot, self.change.instance, self.node)

    def uses_disk(self, disk: str) -> bool:
        return self.change.disk.uuid == disk


class ChangeNic(Step, frozen=True, kw_only=True):
    """Revert a change of a NIC of a running guest."""

    kind = "change_nic_of_guest"

    node: str
    change: NicChangeArgs

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            await services.rpc.call(node, HOTPLUG_NIC, self.change, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        spec = _guest_at(snapshot, self.change.instance, self.node)
        return spec is None or not _is_wanted(self.change.action, self.change.nic, spec.nics)

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return _concerned(snapshot, self.change.instance, self.node)

    def uses_disk(self, disk: str) -> bool:
        return False


class ChangeMedium(Step, frozen=True, kw_only=True):
    """Insert the former CD of a running guest again."""

    kind = "change_medium_of_guest"

    node: str
    change: MediumArgs

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            await services.rpc.call(node, HOTPLUG_MEDIUM, self.change, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        spec = _guest_at(snapshot, self.change.instance, self.node)
        drive = self.change.drive
        return spec is None or spec.hvparams.get(drive) != self.change.instance.hvparams.get(drive)

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return _concerned(snapshot, self.change.instance, self.node)

    def uses_disk(self, disk: str) -> bool:
        return False


class SetVcpus(Step, frozen=True, kw_only=True):
    """Give a running guest its former number of processors."""

    kind = "set_vcpus_of_guest"

    node: str
    change: VcpusArgs

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            await services.rpc.call(node, INSTANCE_VCPUS, self.change, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        spec = _guest_at(snapshot, self.change.instance, self.node)
        return spec is None or spec.vcpus != self.change.vcpus

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return _concerned(snapshot, self.change.instance, self.node)

    def uses_disk(self, disk: str) -> bool:
        return False


class SetMemory(Step, frozen=True, kw_only=True):
    """Give a running guest its former memory back."""

    kind = "set_memory_of_guest"

    node: str
    change: MemoryArgs

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            await services.rpc.call(node, INSTANCE_MEMORY, self.change, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        """The present memory of a guest is not recorded, and may result from a later request."""
        return True

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return _concerned(snapshot, self.change.instance, self.node)

    def uses_disk(self, disk: str) -> bool:
        return False


def _concerned(snapshot: Snapshot, instance: InstanceSpec, node: str) -> Concerned:
    return Concerned(names_of(snapshot, instance.uuid, instance.name), {node})


def _guest_at(snapshot: Snapshot, then: InstanceSpec, node: str) -> InstanceSpec | None:
    """Return the instance as configured now; None if it is no longer on this node."""
    instance = snapshot.instances.get(InstanceUuid(then.uuid))
    if instance is None or instance.primary_node != node:
        return None
    return instance_spec(snapshot, instance)


def _is_wanted(
    action: DeviceAction, device: DiskSpec | NicSpec, configured: Sequence[DiskSpec | NicSpec]
) -> bool:
    """Return whether the device, once reverted, matches the configuration."""
    found = [replace(one, index=device.index) for one in configured if one.uuid == device.uuid]
    return not found if action is DeviceAction.REMOVE else found == [device]
