"""Asking a node whether it has the networks that an instance needs."""

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.networks import NICS_CHECK, NicsArgs
from ganeti.units.context import UnitContext


async def check_links(ctx: UnitContext, node: Node, instance: Instance) -> None:
    """Refuse a node on which a network interface of the instance could not be connected."""
    if not instance.nics:
        return
    spec = instance_spec(ctx.snapshot, instance)
    args = NicsArgs(hypervisor=spec.hypervisor, nics=list(spec.nics))
    try:
        wrong = await ctx.call(node, NICS_CHECK, args)
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    if wrong:
        raise PrereqError(
            f"node {node.name} cannot connect instance {instance.name}: {'; '.join(wrong)}",
            ErrorCode.ENVIRONMENT,
        )
