"""Undo steps: named procedures that the next master can run from the job's record alone.

Each one succeeds when there is nothing to undo.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ganeti.base.errors import ExecError, GanetiError
from ganeti.config.fill import instance_spec
from ganeti.config.transaction import Draft
from ganeti.model import wire
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.job import UndoStep
from ganeti.model.objects import InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.devices import (
    HOTPLUG_DISK,
    HOTPLUG_NIC,
    INSTANCE_MEMORY,
    DiskChangeArgs,
    MemoryArgs,
    NicChangeArgs,
)
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.hardware import FIRMWARE_FORGET
from ganeti.rpc.procedures.instances import (
    INSTANCE_INFO,
    INSTANCE_SHUTDOWN,
    InstanceArgs,
    ShutdownArgs,
)
from ganeti.rpc.procedures.migration import MIGRATION_FINISH_SOURCE, FinishMigrationArgs
from ganeti.units.instance.settle import Attempt, settle_later, settle_migration
from ganeti.units.late_undo import is_superseded
from ganeti.units.services import Services

_log = logging.getLogger(__name__)

UndoProcedure = Callable[[Services, str, dict[str, Any]], Awaitable[None]]
"""Gets the services, the key of its calls, and the step's arguments."""
BESIDE_DISKS = frozenset(
    ("remove_disk", "set_memory_of_guest", "change_nic_of_guest", "forget_variables")
)
"""Steps that undo nothing that uses disks: if one of them fails, disks may be removed all the same."""


def removals(node: Node, instance: InstanceSpec) -> list[UndoStep]:
    """The steps that remove all disks of an instance from a node."""
    return [
        UndoStep(
            "remove_disk",
            {"node": node.uuid, "instance": instance.name, "disk": wire.plain(disk)},
        )
        for disk in instance.disks
    ]


async def run_steps(
    services: Services, job_id: int, steps: Sequence[UndoStep], *, is_late: bool = False
) -> list[tuple[UndoStep, str]]:
    """Run recorded steps, last first; returns those that are not undone, first first, each with the reason.

    A failure keeps no other step from being tried, except that no disk is removed on which the thing
    that could not be undone may stand: an instance that is still recorded keeps its disks (G1). With
    `is_late` other jobs may have used these things since, and what they made of them stays.
    """
    failed: list[tuple[UndoStep, str]] = []
    in_the_way: list[UndoStep] = []
    for step in reversed(steps):
        above = next((one for one in in_the_way if _may_use(one, step)), None)
        if above is not None:
            why = f"left alone, since {above.procedure} could not be undone"
            failed.insert(0, (step, why))
            continue
        try:
            await _run_step(services, job_id, step, is_late=is_late)
        except Exception as err:  # noqa: BLE001 - the other steps must be undone all the same
            text = err.message if isinstance(err, GanetiError) else repr(err)
            _log.warning("job %d: undo %s failed: %s", job_id, step.procedure, text)
            failed.insert(0, (step, text))
            in_the_way.append(step)
    return failed


def _may_use(step: UndoStep, removal: UndoStep) -> bool:
    """Whether what `step` could not undo may use the disk that `removal` would take away."""
    if removal.procedure != "remove_disk" or step.procedure in BESIDE_DISKS:
        return False
    if step.procedure != "change_disk_of_guest":
        return True
    changed: dict[str, Any] = step.arguments["change"]["disk"]
    return bool(changed["uuid"] == removal.arguments["disk"]["uuid"])


async def _run_step(
    services: Services, job_id: int, step: UndoStep, *, is_late: bool = False
) -> None:
    """Run one step; raises GanetiError if what it undoes may still be there."""
    procedure = UNDO_PROCEDURES.get(step.procedure)
    if procedure is None:
        raise GanetiError(f"this version does not know how to undo {step.procedure!r}")
    key = f"{job_id}/undo/{step.procedure}/{services.ids.token(4)}"
    if is_late:
        if is_superseded(services.config.snapshot, step):
            _log.info("job %d: nothing is to be undone by %s any more", job_id, step.procedure)
            return
        procedure = LATE_PROCEDURES.get(step.procedure, procedure)
    await procedure(services, key, step.arguments)


async def _remove_disk(services: Services, key: str, arguments: dict[str, Any]) -> None:
    disk = wire.convert(arguments["disk"], DiskSpec)
    if node := _node(services, arguments):
        args = DiskArgs(instance_name=arguments["instance"], disk=disk)
        await services.rpc.call(node, BLOCKDEV_REMOVE, args, key=key)


async def _stop_instance(services: Services, key: str, arguments: dict[str, Any]) -> None:
    spec = wire.convert(arguments["instance"], InstanceSpec)
    if node := _node(services, arguments):
        args = ShutdownArgs(instance=spec, timeout_s=0)
        await services.rpc.call(node, INSTANCE_SHUTDOWN, args, key=key)


async def _forget_variables(services: Services, key: str, arguments: dict[str, Any]) -> None:
    spec = wire.convert(arguments["instance"], InstanceSpec)
    if node := _node(services, arguments):
        await services.rpc.call(node, FIRMWARE_FORGET, InstanceArgs(instance=spec), key=key)


def _node(services: Services, arguments: dict[str, Any]) -> Node | None:
    """The node of a step; None if it has left the cluster, and what was there with it."""
    return services.config.snapshot.nodes.get(arguments["node"])


async def _forget_instance(services: Services, key: str, arguments: dict[str, Any]) -> None:
    del key

    def forget(draft: Draft) -> None:
        if instance := draft.instances.get(InstanceUuid(arguments["instance"])):
            draft.remove(instance)

    await services.config.change(forget)


async def _forget_unused_instance(services: Services, key: str, arguments: dict[str, Any]) -> None:
    """`_forget_instance`, if nobody has started it meanwhile."""
    snapshot = services.config.snapshot
    instance = snapshot.instances.get(InstanceUuid(arguments["instance"]))
    if instance is not None:
        node = snapshot.nodes[instance.primary_node]
        asked = InstanceArgs(instance=instance_spec(snapshot, instance))
        if await services.rpc.call(node, INSTANCE_INFO, asked) is not None:
            raise ExecError(f"{instance.name} runs on {node.name}")
    await _forget_instance(services, key, arguments)


async def _end_source(services: Services, key: str, arguments: dict[str, Any]) -> None:
    """End the QEMU that has sent its guest; refused by the node if a guest runs in it."""
    spec = wire.convert(arguments["instance"], InstanceSpec)
    if node := _node(services, arguments):
        args = FinishMigrationArgs(instance=spec, success=True)
        await services.rpc.call(node, MIGRATION_FINISH_SOURCE, args, key=key)


async def _settle_migration(services: Services, key: str, arguments: dict[str, Any]) -> None:
    await settle_migration(services, key, _attempt(arguments))


async def _settle_old_migration(services: Services, key: str, arguments: dict[str, Any]) -> None:
    """Settle it, or, if it is known where the guest is, clean up the ends that have it not."""
    await settle_later(services, key, _attempt(arguments))


def _attempt(arguments: dict[str, Any]) -> Attempt:
    spec = arguments.get("guest")
    return Attempt(
        InstanceUuid(arguments["instance"]),
        NodeUuid(arguments["source"]),
        NodeUuid(arguments["target"]),
        copied=arguments.get("copied", False),
        spec=None if spec is None else wire.convert(spec, InstanceSpec),
    )


async def _change_disk_of_guest(services: Services, key: str, arguments: dict[str, Any]) -> None:
    args = wire.convert(arguments["change"], DiskChangeArgs)
    if node := _node(services, arguments):
        await services.rpc.call(node, HOTPLUG_DISK, args, key=key)


async def _change_nic_of_guest(services: Services, key: str, arguments: dict[str, Any]) -> None:
    args = wire.convert(arguments["change"], NicChangeArgs)
    if node := _node(services, arguments):
        await services.rpc.call(node, HOTPLUG_NIC, args, key=key)


async def _set_memory_of_guest(services: Services, key: str, arguments: dict[str, Any]) -> None:
    args = wire.convert(arguments["change"], MemoryArgs)
    if node := _node(services, arguments):
        await services.rpc.call(node, INSTANCE_MEMORY, args, key=key)


UNDO_PROCEDURES: dict[str, UndoProcedure] = {
    "remove_disk": _remove_disk,
    "forget_variables": _forget_variables,
    "stop_instance": _stop_instance,
    "forget_instance": _forget_instance,
    "settle_migration": _settle_migration,
    "end_source": _end_source,
    "change_disk_of_guest": _change_disk_of_guest,
    "change_nic_of_guest": _change_nic_of_guest,
    "set_memory_of_guest": _set_memory_of_guest,
}
LATE_PROCEDURES: dict[str, UndoProcedure] = {
    "forget_instance": _forget_unused_instance,
    "settle_migration": _settle_old_migration,
}
"""What takes their place when other jobs have run since."""
