"""The check whether a node has the networks that an instance needs."""

from collections.abc import Iterable

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.resolve import resolve_network
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.address_pool import AddressPool
from ganeti.model.objects import Instance, Nic, Node, NodeGroup, NodeUuid
from ganeti.rpc.procedures.networks import NICS_CHECK, NicsArgs
from ganeti.units.context import UnitContext


def network_locks(snapshot: Snapshot, names: Iterable[str | None]) -> list[LockRequest]:
    """Return the networks to lock, so that their reservations do not change while addresses are chosen."""
    uuids = {resolve_network(snapshot, name).uuid for name in names if name}
    return [lock(Level.NETWORK, uuids, Mode.SHARED)]


def check_no_conflicts(ctx: UnitContext, group: NodeGroup, nics: Iterable[Nic]) -> None:
    """Refuse an address outside of its network, where the network is connected to the group."""
    for nic in nics:
        if nic.ip is None or nic.network is not None:
            continue
        for uuid in group.networks:
            network = ctx.snapshot.networks[uuid]
            if AddressPool(network).number(nic.ip) is not None:
                raise PrereqError(
                    f"the address {nic.ip} belongs to the network {network.name}, but its interface does not:"
                    f" set network={network.name}, or override (--no-conflicts-check)",
                    ErrorCode.WRONG_STATE,
                )


def check_networks(ctx: UnitContext, group: NodeGroup, instance: Instance) -> None:
    """Refuse a group to which a network of the instance is not connected."""
    for nic in instance.nics:
        if nic.network is not None and nic.network not in group.networks:
            name = ctx.snapshot.networks[nic.network].name
            raise PrereqError(
                f"instance {instance.name} is in the network {name}, to which group {group.name} is not"
                f" connected; run: gnt-network connect {name} {group.name}",
                ErrorCode.WRONG_STATE,
            )


async def check_links(ctx: UnitContext, node: Node, instance: Instance) -> None:
    """Refuse a node on which a network interface of the instance could not be connected."""
    if not instance.nics:
        return
    spec = instance_spec(ctx.snapshot, instance, NodeUuid(node.uuid))
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
