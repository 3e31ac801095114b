"""The check of the cluster's parameters for OS definitions, by a node."""

from collections.abc import Iterable

from ganeti.base.errors import ErrorCode, GuestOsError, PrereqError, RpcError, RpcFailed
from ganeti.config.fill import cluster_hvparams, cluster_osparams
from ganeti.model.objects import Cluster, Node
from ganeti.model.params import Params
from ganeti.rpc.procedures.programs import OS_VALIDATE, OsValidateArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.install import show_verified


async def check_os_defaults(ctx: UnitContext, new: Cluster, names: Iterable[str]) -> None:
    """Let the definitions check the cluster's parameters for them, each once, on one node (S147).

    Parameters of a definition that does not exist there are stored unchecked (S149).
    """
    names = list(names)
    if not names:
        return
    node = _judge(ctx)
    for name in names:
        args = OsValidateArgs(os=name, osparams=cluster_osparams(new, name), are_defaults=True)
        try:
            show_verified(ctx, name, await ctx.call(node, OS_VALIDATE, args))
        except RpcError as err:
            judged = isinstance(err, RpcFailed) and err.wire_error == GuestOsError.wire_name
            raise PrereqError(
                f"osparams.{name}: {err}; --force stores them nevertheless",
                ErrorCode.WRONG_INPUT if judged else ErrorCode.ENVIRONMENT,
            ) from err


def _judge(ctx: UnitContext) -> Node:
    """Return the master if it runs instances, else the first node that does."""
    snapshot = ctx.snapshot
    nodes = [node for node in snapshot.online_nodes() if node.vm_capable]
    if not nodes:
        raise PrereqError("no node that runs instances is online", ErrorCode.WRONG_STATE)
    return next((node for node in nodes if node.uuid == snapshot.cluster.master_node), nodes[0])


def changed_hvparams(
    new: Cluster, hvparams: Iterable[str], os_hvp: dict[str, dict[str, Params]]
) -> list[tuple[str, str, Params]]:
    """Return `(name for messages, hypervisor, all its parameters)` for each changed set of an enabled hypervisor."""
    sets = [(name, name, "") for name in hvparams]
    sets += [(f"{name} for {os}", name, os) for os, of_os in os_hvp.items() for name in of_os]
    return [
        (what, name, cluster_hvparams(new, name, os))
        for what, name, os in sets
        if name in new.enabled_hypervisors
    ]
