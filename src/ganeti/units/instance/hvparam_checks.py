"""The check whether a node could run an instance with its hypervisor parameters."""

from ganeti.base.errors import ErrorCode, PrereqError, RpcError, RpcFailed
from ganeti.config.fill import filled_hvparams
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.instances import VALIDATE_HVPARAMS, HvParamsArgs
from ganeti.units.context import UnitContext


async def check_hvparams_on_node(ctx: UnitContext, node: Node, instance: Instance) -> None:
    """Refuse parameters that contradict each other, or for which the node lacks something."""
    hvparams = filled_hvparams(ctx.snapshot.cluster, instance)
    args = HvParamsArgs(hypervisor=instance.hypervisor, hvparams=hvparams)
    try:
        wrong = (await ctx.ask_shared(node, VALIDATE_HVPARAMS, args)).answer
    except RpcFailed as err:
        raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    if wrong:
        raise PrereqError(
            f"node {node.name}, hypervisor parameters: {'; '.join(wrong)}", ErrorCode.WRONG_INPUT
        )
