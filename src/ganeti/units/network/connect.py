"""Connections between networks and node groups, and their removal."""

from collections.abc import Iterator

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.resolve import resolve_group, resolve_network
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.address_pool import AddressPool
from ganeti.model.objects import Instance, Network, NodeGroup
from ganeti.model.opcodes.network import OpNetworkConnect, OpNetworkDisconnect
from ganeti.model.param import check_params
from ganeti.model.params import NIC_PARAMS, Params
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import members, network_of_group, network_variables
from ganeti.units.hooks.point import HookPoint

SHOWN = 5


def instances_in(view: View, group: NodeGroup) -> Iterator[Instance]:
    """Return the instances on nodes of a group, running or not."""
    for instance in view.instances.values():
        node = view.nodes.get(instance.primary_node)
        if node is not None and node.group == group.uuid:
            yield instance


def disconnected(view: View, group: NodeGroup, network: Network) -> NodeGroup:
    """Return the group without the network; PrereqError if an instance there uses it."""
    users = [
        instance.name
        for instance in instances_in(view, group)
        if any(nic.network == network.uuid for nic in instance.nics)
    ]
    if users:
        raise PrereqError(
            f"network {network.name} is used in group {group.name} by {_shown(users)}",
            ErrorCode.WRONG_STATE,
        )
    left = {uuid: params for uuid, params in group.networks.items() if uuid != network.uuid}
    return replace(group, networks=left)


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more


def _hooks(
    hook: str,
    snapshot: Snapshot,
    op: OpNetworkConnect | OpNetworkDisconnect,
    requested: Params | None = None,
) -> HookPoint:
    """Return hooks on the nodes of the group."""
    group = resolve_group(snapshot, op.group_name)
    network = resolve_network(snapshot, op.network_name)
    connection = network_of_group(snapshot, group, network, requested)
    nodes = tuple(snapshot.nodes[uuid] for uuid in members(snapshot, group))
    return HookPoint(hook, {**network_variables(network), **connection}, pre=nodes, post=nodes)


class LUNetworkConnect(LogicalUnit[OpNetworkConnect, Change | None]):
    """Let instances of a group use a network."""

    def _params(self) -> Params:
        op = self.op
        given = {"mode": op.network_mode, "link": op.network_link, "vlan": op.network_vlan}
        return check_params(NIC_PARAMS, given, "network", "NIC")

    def check_arguments(self) -> None:
        self._params()

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        group = resolve_group(snapshot, self.op.group_name)
        network = resolve_network(snapshot, self.op.network_name)
        return [
            lock(Level.NODE_GROUP, group.uuid),
            lock(Level.NETWORK, network.uuid, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> Change | None:
        snapshot = ctx.snapshot
        group = resolve_group(snapshot, self.op.group_name)
        network = resolve_network(snapshot, self.op.network_name)
        if network.uuid in group.networks:
            return None
        if self.op.conflicts_check:
            _check_no_conflicts(snapshot, group, network)

        def change(draft: Draft) -> None:
            now = draft.groups[group.uuid]
            draft.put(replace(now, networks={**now.networks, network.uuid: self._params()}))

        ctx.check_change(change)
        return change

    def hooks(self, snapshot: Snapshot, plan: Change | None) -> HookPoint:
        return _hooks("network-connect", snapshot, self.op, self._params())

    async def execute(self, ctx: UnitContext, plan: Change | None) -> Outcome:
        if plan is None:
            ctx.warn(
                f"network {self.op.network_name} is connected to group {self.op.group_name} already;"
                " to change mode or link, disconnect it first"
            )
        return Outcome(change=plan)


def _check_no_conflicts(snapshot: Snapshot, group: NodeGroup, network: Network) -> None:
    pool = AddressPool(network)
    users = [
        f"{instance.name} ({nic.ip})"
        for instance in instances_in(snapshot, group)
        for nic in instance.nics
        if nic.network is None and nic.ip and pool.number(nic.ip) is not None
    ]
    if users:
        raise PrereqError(
            f"instances of group {group.name} use addresses of network {network.name} but are not in it:"
            f" {_shown(users)}; add them to it afterwards, or override (--no-conflicts-check)",
            ErrorCode.WRONG_STATE,
        )


class LUNetworkDisconnect(LogicalUnit[OpNetworkDisconnect, Change | None]):
    """Disconnect a network from a group; the exclusive lock of the network prevents new uses."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        group = resolve_group(snapshot, self.op.group_name)
        network = resolve_network(snapshot, self.op.network_name)
        return [lock(Level.NODE_GROUP, group.uuid), lock(Level.NETWORK, network.uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Change | None:
        group = resolve_group(ctx.snapshot, self.op.group_name)
        network = resolve_network(ctx.snapshot, self.op.network_name)
        if network.uuid not in group.networks:
            return None

        def change(draft: Draft) -> None:
            draft.put(disconnected(draft, draft.groups[group.uuid], network))

        ctx.check_change(change)
        return change

    def hooks(self, snapshot: Snapshot, plan: Change | None) -> HookPoint:
        return _hooks("network-disconnect", snapshot, self.op)

    async def execute(self, ctx: UnitContext, plan: Change | None) -> Outcome:
        if plan is None:
            ctx.warn(
                f"network {self.op.network_name} is not connected to group {self.op.group_name}"
            )
        return Outcome(change=plan)
