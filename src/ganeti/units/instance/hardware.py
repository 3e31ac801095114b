"""Virtual hardware that an instance keeps with any later version of the hypervisor."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import filled_hvparams
from ganeti.config.reservations import PORTS
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, has_display, wants_display
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.hardware import PINNED_HVPARAMS
from ganeti.rpc.procedures.instances import HvParamsArgs
from ganeti.units.context import UnitContext


def with_network_port(ctx: UnitContext, instance: Instance) -> Instance:
    """Return the instance with a port for its display, even without a display, as long as ports are free."""
    if instance.network_port is not None or not has_display(instance.hypervisor):
        return instance
    port = ctx.config.reservations.new_port(ctx.job_id, ctx.snapshot)
    if port is None and wants_display(filled_hvparams(ctx.snapshot.cluster, instance)):
        raise PrereqError(
            f"all network ports for displays, {PORTS.start} to {PORTS.stop - 1}, are in use; set"
            " vnc_bind_address to a directory, or remove instances",
            ErrorCode.NO_RESOURCES,
        )
    return replace(instance, network_port=port)


async def with_pinned_hardware(ctx: UnitContext, node: Node, instance: Instance) -> Instance:
    """Return the instance with the present hardware versions of `node` as parameters of its own."""
    if "machine_version" not in HYPERVISOR_PARAMS.get(instance.hypervisor, {}):
        return instance
    filled = filled_hvparams(ctx.snapshot.cluster, instance)
    args = HvParamsArgs(hypervisor=instance.hypervisor, hvparams=filled)
    try:
        pinned = await ctx.call(node, PINNED_HVPARAMS, args)
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    return replace(instance, hvparams={**instance.hvparams, **pinned})
