"""Creation, change, renaming and removal of networks."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import plain_name
from ganeti.config.kinds.network import check_network
from ganeti.config.resolve import resolve_network
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import CLUSTER_LOCK, Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.address_pool import (
    AddressPool,
    checked_subnet,
    numbers_of,
    ranges_of,
)
from ganeti.model.objects import Network, NetworkUuid
from ganeti.model.opcodes.network import (
    NetworkParams,
    OpNetworkAdd,
    OpNetworkRemove,
    OpNetworkRename,
    OpNetworkSetParams,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import network_variables
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.instance.requests import check_tags
from ganeti.units.network.connect import disconnected

NONE = "none"
_OWN = ("gateway", "network6", "gateway6", "mac_prefix")


@dataclass(frozen=True)
class NetworkPlan:
    """The changed network, and notes about it."""

    network: Network
    notes: tuple[str, ...] = ()


def _with_request(network: Network, op: NetworkParams) -> Network:
    """Return the changed network without its reserved addresses; InputError."""
    given = {name: value for name in _OWN if (value := getattr(op, name)) is not None}
    fields = {name: None if value == NONE else value.lower() for name, value in given.items()}
    changed = replace(network, **fields)
    check_network(changed)
    return changed


def _reserved(network: Network, op: NetworkParams, more: set[int]) -> Network:
    pool = AddressPool(network)
    asked = set(numbers_of(pool, op.add_reserved_ips or (), "add_reserved_ips"))
    return _with_external(network, _external(network) | asked | more)


def _external(network: Network) -> set[int]:
    return {number for first, last in network.external for number in range(first, last + 1)}


def _with_external(network: Network, numbers: set[int]) -> Network:
    return replace(network, external=ranges_of(numbers))


class LUNetworkAdd(LogicalUnit[OpNetworkAdd, NetworkPlan]):
    """Create a network that is connected to no group."""

    def check_arguments(self) -> None:
        plain_name(self.op.network_name, "network_name")
        checked_subnet(self.op.network, "network")
        check_tags(self.op.tags)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.CLUSTER, CLUSTER_LOCK)]

    async def check_prereq(self, ctx: UnitContext) -> NetworkPlan:
        op = self.op
        if ctx.snapshot.network_by_name(op.network_name) is not None:
            raise PrereqError(f"network {op.network_name} exists already", ErrorCode.EXISTS)
        subnet = str(checked_subnet(op.network, "network"))
        network = Network(
            uuid=NetworkUuid(ctx.ids.uuid()),
            name=op.network_name,
            network=subnet,
            tags=tuple(sorted(set(op.tags))),
        )
        network = _with_request(network, op)
        notes = _addresses_of_hosts(ctx.snapshot, network) if op.conflicts_check else {}
        plan = NetworkPlan(_reserved(network, op, set(notes)), tuple(notes.values()))
        ctx.check_change(lambda draft: _put(draft, plan.network))
        return plan

    def hooks(self, snapshot: Snapshot, plan: NetworkPlan) -> HookPoint:
        return on_nodes("network-add", network_variables(plan.network), snapshot)

    async def execute(self, ctx: UnitContext, plan: NetworkPlan) -> Outcome:
        for note in plan.notes:
            ctx.info(note)
        return Outcome(change=lambda draft: _put(draft, plan.network))


def _addresses_of_hosts(snapshot: Snapshot, network: Network) -> dict[int, str]:
    """Return the pool's addresses of nodes and of the cluster, with a sentence about each."""
    pool = AddressPool(network)
    hosts = [(f"node {node.name}", node.primary_ip) for node in snapshot.nodes_by_name()]
    hosts += [(f"node {node.name}", node.secondary_ip) for node in snapshot.nodes_by_name()]
    hosts.append(("the cluster", snapshot.cluster.master_ip))
    found: dict[int, str] = {}
    for who, ip in hosts:
        number = pool.number(ip) if ip else None
        if number is not None:
            found.setdefault(number, f"reserved {ip}, the address of {who}")
    return found


class LUNetworkSetParams(LogicalUnit[OpNetworkSetParams, NetworkPlan]):
    """Change a network; its exclusive lock prevents the choice of an address meanwhile."""

    def check_arguments(self) -> None:
        op = self.op
        given = [getattr(op, name) for name in (*_OWN, "add_reserved_ips", "remove_reserved_ips")]
        if all(one is None for one in given):
            raise InputError("nothing to change: pass at least one option", "options")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NETWORK, resolve_network(snapshot, self.op.network_name).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> NetworkPlan:
        op, old = self.op, resolve_network(ctx.snapshot, self.op.network_name)
        new = _reserved(_with_request(old, op), op, set())
        pool, notes = AddressPool(new), []
        gone = set(numbers_of(pool, op.remove_reserved_ips or (), "remove_reserved_ips"))
        for number in sorted(gone - _external(new)):
            why = pool.why_not(pool.address(number))
            if why is not None:
                raise InputError(
                    f"{pool.address(number)} is not available for interfaces: {why}",
                    "remove_reserved_ips",
                )
            notes.append(f"{pool.address(number)} was not reserved")
        new = _with_external(new, _external(new) - gone)
        plan = NetworkPlan(new, tuple(notes))
        ctx.check_change(lambda draft: _put(draft, _changed(draft, plan.network)))
        return plan

    def hooks(self, snapshot: Snapshot, plan: NetworkPlan) -> HookPoint:
        now = snapshot.networks.get(plan.network.uuid, plan.network)
        return on_nodes("network-modify", network_variables(now), snapshot)

    async def execute(self, ctx: UnitContext, plan: NetworkPlan) -> Outcome:
        for note in plan.notes:
            ctx.warn(note)
        return Outcome(change=lambda draft: _put(draft, _changed(draft, plan.network)))


class LUNetworkRename(LogicalUnit[OpNetworkRename, Change]):
    """Give a network another name; groups and interfaces refer to it by UUID."""

    _hooked: Network | None = None

    def check_arguments(self) -> None:
        plain_name(self.op.new_name, "new_name")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NETWORK, resolve_network(snapshot, self.op.network_name).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Change:
        uuid = resolve_network(ctx.snapshot, self.op.network_name).uuid

        def change(draft: Draft) -> None:
            draft.put(replace(draft.networks[uuid], name=self.op.new_name))

        ctx.check_change(change)
        return change

    def hooks(self, snapshot: Snapshot, plan: Change) -> HookPoint:
        self._hooked = self._hooked or resolve_network(snapshot, self.op.network_name)
        now = snapshot.networks.get(self._hooked.uuid, self._hooked)
        names = {"OLD_NAME": self._hooked.name, "NEW_NAME": self.op.new_name}
        return on_nodes("network-rename", {**network_variables(now), **names}, snapshot)

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(self.op.new_name, change=plan)


class LUNetworkRemove(LogicalUnit[OpNetworkRemove, Change]):
    """Remove a network."""

    _hooked: Network | None = None

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        network = resolve_network(snapshot, self.op.network_name)
        groups = [one.uuid for one in snapshot.groups.values() if network.uuid in one.networks]
        return [
            lock(Level.NODE_GROUP, groups if self.op.force else None),
            lock(Level.NETWORK, network.uuid),
        ]

    async def check_prereq(self, ctx: UnitContext) -> Change:
        network = resolve_network(ctx.snapshot, self.op.network_name)

        def change(draft: Draft) -> None:
            groups = [one for one in draft.groups.values() if network.uuid in one.networks]
            for group in groups if self.op.force else ():
                draft.put(disconnected(draft, group, network))
            draft.remove(draft.networks[network.uuid])

        ctx.check_change(change)
        return change

    def hooks(self, snapshot: Snapshot, plan: Change) -> HookPoint:
        self._hooked = self._hooked or resolve_network(snapshot, self.op.network_name)
        return on_nodes("network-remove", network_variables(self._hooked), snapshot)

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(change=plan)


def _put(draft: Draft, network: Network) -> None:
    draft.put(network)


def _changed(draft: Draft, new: Network) -> Network:
    """Return the present network, including tags, with the plan's changes."""
    return replace(
        draft.networks[new.uuid],
        gateway=new.gateway,
        network6=new.network6,
        gateway6=new.gateway6,
        mac_prefix=new.mac_prefix,
        external=new.external,
    )
