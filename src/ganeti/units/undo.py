"""Undo steps: named procedures that the next master can run from the job's record alone.

Each one succeeds when there is nothing to undo.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ganeti.base.errors import GanetiError
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
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN, InstanceArgs, ShutdownArgs
from ganeti.units.instance.settle import Attempt, settle_migration
from ganeti.units.services import Services

_log = logging.getLogger(__name__)

UndoProcedure = Callable[[Services, str, dict[str, Any]], Awaitable[None]]
"""Gets the services, the key of its calls, and the step's arguments."""
TAKE_AWAY = frozenset(("remove_disk",))
"""Steps that destroy what later acts may build on; disks stand beside each other."""


async def run_steps(
    services: Services, job_id: int, steps: Sequence[UndoStep]
) -> list[tuple[UndoStep, str]]:
    """Run recorded steps, last first; returns those that are not undone, first first, each with the reason.

    A failure keeps no other step from being tried, except that nothing is taken away on which the thing
    that could not be undone may stand: an instance that is still recorded keeps its disks (G1).
    """
    failed: list[tuple[UndoStep, str]] = []
    in_the_way = ""
    for step in reversed(steps):
        takes_away = step.procedure in TAKE_AWAY
        if takes_away and in_the_way:
            failed.insert(0, (step, f"left alone, since {in_the_way} could not be undone"))
            continue
        try:
            await _run_step(services, job_id, step)
        except Exception as err:  # noqa: BLE001 - the other steps must be undone all the same
            text = err.message if isinstance(err, GanetiError) else repr(err)
            _log.warning("job %d: undo %s failed: %s", job_id, step.procedure, text)
            failed.insert(0, (step, text))
            if not takes_away:
                in_the_way = step.procedure
    return failed


async def _run_step(services: Services, job_id: int, step: UndoStep) -> None:
    """Run one step; raises GanetiError if what it undoes may still be there."""
    procedure = UNDO_PROCEDURES.get(step.procedure)
    if procedure is None:
        raise GanetiError(f"this version does not know how to undo {step.procedure!r}")
    key = f"{job_id}/undo/{step.procedure}/{services.ids.token(4)}"
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


async def _settle_migration(services: Services, key: str, arguments: dict[str, Any]) -> None:
    attempt = Attempt(
        InstanceUuid(arguments["instance"]),
        NodeUuid(arguments["source"]),
        NodeUuid(arguments["target"]),
        copied=arguments.get("copied", False),
    )
    await settle_migration(services, key, attempt)


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
    "change_disk_of_guest": _change_disk_of_guest,
    "change_nic_of_guest": _change_nic_of_guest,
    "set_memory_of_guest": _set_memory_of_guest,
}
