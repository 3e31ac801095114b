"""Firmware variables of instances: they go with a guest that moves while it is down, and go away with it.

A live migration carries them itself, and on shared files every node sees them.
"""

from ganeti.config.firmware import has_uefi
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.hardware import (
    FIRMWARE_FORGET,
    FIRMWARE_READ,
    FIRMWARE_WRITE,
    FirmwareArgs,
)
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.undo.instances import ForgetVariables


def keeps_variables(instance: Instance) -> bool:
    """Whether the instance's hypervisor may have variables of its firmware on its nodes."""
    return "firmware" in HYPERVISOR_PARAMS.get(instance.hypervisor, {})


async def carry_variables(
    ctx: UnitContext, undo: UndoLog, instance: Instance, source: Node, target: Node
) -> None:
    """Copy the variables of a UEFI instance that is down; nothing where there are none. RpcError.

    Once the instance is on `target`, `variables_step` removes those of `source`.
    """
    if not has_uefi(ctx.snapshot.cluster, instance):
        return
    spec = spec_of(ctx, instance)
    found = await ctx.call(source, FIRMWARE_READ, InstanceArgs(instance=spec))
    if found.content is not None:
        await undo.push(variables_step(ctx, instance, target))
        await ctx.call(target, FIRMWARE_WRITE, FirmwareArgs(instance=spec, content=found.content))


def variables_step(ctx: UnitContext, instance: Instance, node: Node) -> ForgetVariables:
    """The step that removes the variables of an instance from a node."""
    return ForgetVariables(node=node.uuid, instance=spec_of(ctx, instance))


async def forget_variables(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Remove the variables of an instance from a node, before its disks go; nothing is fine. RpcError."""
    if keeps_variables(instance):
        await ctx.call(node, FIRMWARE_FORGET, InstanceArgs(instance=spec_of(ctx, instance)))
