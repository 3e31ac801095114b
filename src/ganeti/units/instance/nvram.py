"""NVRAM of instances: UEFI variables, and the state of a TPM.

It goes with a guest that moves while it is down, and goes away with it. A live migration carries it
itself, and what lies beside disks in shared files every node sees.
"""

from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.hardware import NVRAM_FORGET, ForgetNvramArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import spec_of
from ganeti.units.undo.instances import ForgetNvram


def keeps_nvram(instance: Instance) -> bool:
    """Return whether the instance's hypervisor may have NVRAM of it on its nodes."""
    return "firmware" in HYPERVISOR_PARAMS.get(instance.hypervisor, {})


def forget_nvram_step(ctx: UnitContext, instance: Instance, node: Node) -> ForgetNvram:
    """The step that removes from a node what only that node has."""
    return ForgetNvram(node=node.uuid, instance=spec_of(ctx, instance))


async def forget_nvram(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Remove the NVRAM of an instance that is removed, before its disks go. RpcError."""
    if keeps_nvram(instance):
        args = ForgetNvramArgs(instance=spec_of(ctx, instance), everywhere=True)
        await ctx.call(node, NVRAM_FORGET, args)
