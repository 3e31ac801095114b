"""Undo steps that are run long after their job: what others have made of things meanwhile is left alone.

Every function is pure. A step is superseded if the configuration, whose changes are later than the
step, wants what the step would take away; then there is nothing to undo any more.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ExecError
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model import wire
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.job import UndoStep
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid
from ganeti.rpc.procedures.devices import DeviceAction, DiskChangeArgs, NicChangeArgs

NEW = 1
"""The serial number of an instance that nobody has changed since it was made."""


def locks_of(snapshot: Snapshot, steps: Sequence[UndoStep]) -> list[LockRequest]:
    """The instances and nodes that steps are about: by the names of then and of now."""
    names: set[str] = set()
    nodes: set[str] = set()
    for step in steps:
        arguments = step.arguments
        nodes.update(arguments[key] for key in ("node", "source", "target") if key in arguments)
        names.update(_names(snapshot, arguments))
    return [lock(Level.INSTANCE, names), lock(Level.NODE, nodes, Mode.SHARED)]


def is_superseded(snapshot: Snapshot, step: UndoStep) -> bool:
    """Whether what the step would do is not wanted any more; ExecError if that is not known yet."""
    arguments = step.arguments
    match step.procedure:
        case "remove_disk":
            return _is_disk_wanted(snapshot, arguments)
        case "forget_instance":
            instance = snapshot.instances.get(InstanceUuid(arguments["instance"]))
            return instance is not None and instance.serial_no != NEW
        case "stop_instance":
            instance = _settled(snapshot, arguments)
            is_here = instance is not None and instance.primary_node == arguments["node"]
            return is_here and instance is not None and instance.admin_state is AdminState.UP
        case "end_source" | "forget_variables":
            instance = _settled(snapshot, arguments)
            return instance is not None and instance.primary_node == arguments["node"]
        case "change_disk_of_guest" | "change_nic_of_guest":
            return not _is_as_configured(snapshot, step)
        case "set_memory_of_guest":
            return True  # how much a guest uses now is nowhere recorded, and may be a later wish
    return False


def _names(snapshot: Snapshot, arguments: dict[str, Any]) -> Iterator[str]:
    for given in (arguments.get("instance"), arguments.get("change", {}).get("instance")):
        uuid = given.get("uuid") if isinstance(given, dict) else given
        if isinstance(given, dict):
            yield given["name"]
        if (found := snapshot.instances.get(InstanceUuid(str(uuid)))) is not None:
            yield found.name
        elif isinstance(given, str) and "disk" in arguments:
            yield given
    if (owner := _owner(snapshot, arguments)) is not None:
        yield owner.name


def _owner(snapshot: Snapshot, arguments: dict[str, Any]) -> Instance | None:
    """The instance that has the disk of a step now."""
    uuid = arguments.get("disk", {}).get("uuid")
    for instance in snapshot.instances.values() if uuid else ():
        if any(disk.uuid == uuid for disk in instance.disks):
            return instance
    return None


def _is_disk_wanted(snapshot: Snapshot, arguments: dict[str, Any]) -> bool:
    disk, node = wire.convert(arguments["disk"], DiskSpec), arguments["node"]
    owner = _owner(snapshot, arguments)
    if owner is None:
        return False
    if not DISK_TEMPLATES[disk.template].is_local:
        return True
    _check_not_moving_there(owner, node)
    return node in owner.all_nodes


def _settled(snapshot: Snapshot, arguments: dict[str, Any]) -> Instance | None:
    """The instance of a step; ExecError while its guest may be on the step's node."""
    instance = snapshot.instances.get(InstanceUuid(arguments["instance"]["uuid"]))
    if instance is not None:
        _check_not_moving_there(instance, arguments["node"])
        if instance.migrating_to is not None and instance.primary_node == arguments["node"]:
            raise _unsettled(instance)
    return instance


def _check_not_moving_there(instance: Instance, node: str) -> None:
    if instance.migrating_to == node:
        raise _unsettled(instance)


def _unsettled(instance: Instance) -> ExecError:
    return ExecError(
        f"a migration of {instance.name} is not settled; run: gnt-instance migrate --cleanup {instance.name}"
    )


def _is_as_configured(snapshot: Snapshot, step: UndoStep) -> bool:
    """Whether the undone device is what the configuration says of it now."""
    change: DiskChangeArgs | NicChangeArgs
    if step.procedure == "change_disk_of_guest":
        change = wire.convert(step.arguments["change"], DiskChangeArgs)
    else:
        change = wire.convert(step.arguments["change"], NicChangeArgs)
    instance = snapshot.instances.get(InstanceUuid(change.instance.uuid))
    if instance is None or instance.primary_node != step.arguments["node"]:
        return False
    spec = instance_spec(snapshot, instance)
    wanted = change.disk if isinstance(change, DiskChangeArgs) else change.nic
    devices = spec.disks if isinstance(change, DiskChangeArgs) else spec.nics
    found = [replace(one, index=wanted.index) for one in devices if one.uuid == wanted.uuid]
    return not found if change.action is DeviceAction.REMOVE else found == [wanted]
