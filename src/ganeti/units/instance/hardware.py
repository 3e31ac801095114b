"""Virtual hardware that an instance keeps, whatever version of the hypervisor runs it later."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import filled_hvparams
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.hardware import PINNED_HVPARAMS
from ganeti.rpc.procedures.instances import HvParamsArgs
from ganeti.units.context import UnitContext


async def with_pinned_hardware(ctx: UnitContext, node: Node, instance: Instance) -> Instance:
    """The instance with the versions that `node` has now as parameters of its own."""
    if "machine_version" not in HYPERVISOR_PARAMS.get(instance.hypervisor, {}):
        return instance
    filled = filled_hvparams(ctx.snapshot.cluster, instance)
    args = HvParamsArgs(hypervisor=instance.hypervisor, hvparams=filled)
    try:
        pinned = await ctx.call(node, PINNED_HVPARAMS, args)
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    return replace(instance, hvparams={**instance.hvparams, **pinned})
