"""The steps that bring a running guest to the state of the configuration: pure."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.devices import DeviceAction, DiskChangeArgs, NicChangeArgs

Args = DiskChangeArgs | NicChangeArgs


@dataclass(frozen=True)
class HotStep:
    """One change of a running guest, its reverse, and the name in reports."""

    act: Args
    undo: Args
    label: str


def hot_steps(before: InstanceSpec, after: InstanceSpec) -> list[HotStep]:
    """Return the steps from one state to the other: removals first, then additions."""
    steps = []
    old_disks = {disk.uuid: disk for disk in before.disks}
    new_disks = {disk.uuid: disk for disk in after.disks}
    old_nics = {nic.uuid: nic for nic in before.nics}
    new_nics = {nic.uuid: nic for nic in after.nics}
    for uuid, disk in old_disks.items():
        if uuid not in new_disks:
            steps.append(_disk(before, DeviceAction.REMOVE, disk))
    for uuid, nic in old_nics.items():
        if uuid not in new_nics:
            steps.append(_nic(before, DeviceAction.REMOVE, nic, nic))
        elif replace(new_nics[uuid], index=nic.index) != nic:
            steps.append(_nic(before, DeviceAction.MODIFY, nic, new_nics[uuid]))
    for uuid, disk in new_disks.items():
        if uuid not in old_disks:
            steps.append(_disk(before, DeviceAction.ADD, disk))
    for uuid, nic in new_nics.items():
        if uuid not in old_nics:
            steps.append(_nic(before, DeviceAction.ADD, nic, nic))
    return steps


_REVERSE = {
    DeviceAction.ADD: DeviceAction.REMOVE,
    DeviceAction.REMOVE: DeviceAction.ADD,
    DeviceAction.MODIFY: DeviceAction.MODIFY,
}


def _disk(instance: InstanceSpec, action: DeviceAction, disk: DiskSpec) -> HotStep:
    act = DiskChangeArgs(instance=instance, action=action, disk=disk)
    return HotStep(act, replace(act, action=_REVERSE[action]), f"disk/{disk.index}")


def _nic(instance: InstanceSpec, action: DeviceAction, old: NicSpec, new: NicSpec) -> HotStep:
    act = NicChangeArgs(instance=instance, action=action, nic=new)
    undo = NicChangeArgs(instance=instance, action=_REVERSE[action], nic=old)
    return HotStep(act, undo, f"nic.{new.index}")
