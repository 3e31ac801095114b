"""NVRAM of instances: UEFI variables, and the state of a TPM.

NVRAM moves with a guest that is down, and is removed with it. A live migration transfers it itself. NVRAM
beside disks in shared files is visible to every node.
"""

from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.hardware import NVRAM_FORGET, ForgetNvramArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.undo.instances import ForgetNvram


def keeps_nvram(instance: Instance) -> bool:
    """Return whether the instance's hypervisor may keep NVRAM on its nodes."""
    return "firmware" in HYPERVISOR_PARAMS.get(instance.hypervisor, {})


def forget_nvram_step(ctx: UnitContext, instance: Instance, node: Node) -> ForgetNvram:
    """Return the step that removes the data that only this node has."""
    return ForgetNvram(node=node.uuid, instance=spec_of(ctx, instance))


async def forget_nvram(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Remove the NVRAM of a removed instance, before its disks. RpcError."""
    if keeps_nvram(instance):
        args = ForgetNvramArgs(instance=spec_of(ctx, instance), everywhere=True)
        await ctx.call(node, NVRAM_FORGET, args)
