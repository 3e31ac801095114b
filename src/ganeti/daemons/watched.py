"""The part of the configuration that automatic recovery watches; pure."""

import operator
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ganeti.config.fill import filled_beparams, filled_ndparams, recovery_of
from ganeti.config.snapshot import Snapshot, differing, differing_instances
from ganeti.config.view import View
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.params import NO_FENCING
from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.facts import Difference, InstanceFacts, NodeFacts, Watched


class Watching:
    """Follows the configuration, and derives again only what has changed: clusters are large, and changes small."""

    def __init__(self) -> None:
        self.unconfirmed: set[str] = set()
        """Instances whose nodes must confirm that they are protected."""
        self.ending: set[str] = set()
        """Instances that are protected no longer, which the configuration does not say yet."""
        self.derived = 0
        """How often facts of an instance or a node were derived."""
        self._last: Watched | None = None
        self._basis: tuple[object, ...] = ()
        self._layers: tuple[object, ...] = (None, None, None)
        """What the parameters of instances depend on, besides the instances."""
        self._nodes_seen: Mapping[str, Node] = {}
        self._groups: Mapping[str, str] = {}
        self._snapshot: Snapshot | None = None
        self._listed = _Lists()

    def watched(self, snapshot: Snapshot, *, has_lease: bool) -> Watched:
        """Return what recovery looks after; the same object if nothing of it has changed.

        Without `has_lease` (two voters or fewer) no majority excludes a second master, so nodes have no lease that a
        watchdog could enforce, and only their power is switched off.
        """
        former = self._last
        nodes = self._nodes(snapshot, has_lease=has_lease)
        instances, difference = self._facts(snapshot)
        master = snapshot.cluster.master_node
        if (
            former is not None
            and not difference.changed
            and (nodes, master) == (former.nodes, former.master)
        ):
            return former
        self._last = Watched(nodes, instances, master, difference=difference)
        return self._last

    def guests(self, snapshot: Snapshot, found: Watched) -> tuple["Guests", Collection[str]]:
        """Return what the nodes are told about instances, and which ones are protected no longer."""
        return self._listed.follow(snapshot, found)

    def _nodes(self, snapshot: Snapshot, *, has_lease: bool) -> Mapping[NodeUuid, NodeFacts]:
        basis = snapshot.cluster, snapshot.groups, snapshot.nodes, has_lease
        if self._last is not None and all(map(operator.is_, basis, self._basis)):
            return self._last.nodes
        self._basis = basis
        self.derived += len(snapshot.nodes)
        return {
            NodeUuid(node.uuid): NodeFacts(
                name=node.name,
                methods=_methods(snapshot, node, has_lease=has_lease),
                in_maintenance=node.maintenance is not None,
                stays_offline=_stays_offline(node),
                awaits_return=node.offline and node.awaits_return,
                can_relay=node.master_candidate and node.uuid != snapshot.cluster.master_node,
                has_secondary=node.secondary_ip not in {"", node.primary_ip},
            )
            for node in snapshot.nodes.values()
            if not node.offline or is_in_recovery(node)
        }

    def _facts(self, snapshot: Snapshot) -> tuple[Mapping[str, InstanceFacts], Difference]:
        """Return the facts of each instance with a recovery policy, and the difference from the last ones."""
        instances, former = snapshot.instances, {} if self._last is None else self._last.instances
        layers = snapshot.cluster, snapshot.groups, self._groups_of(snapshot.nodes)
        if all(map(operator.is_, layers, self._layers)):
            changed = differing_instances(self._snapshot, snapshot)
        else:
            seen = () if self._snapshot is None else self._snapshot.instances
            changed = {**dict.fromkeys(seen), **dict.fromkeys(instances)}
        self._layers, self._snapshot = layers, snapshot
        if not changed:
            return former, Difference(former, ())
        found, altered = dict(former), []
        for uuid in changed:
            instance = instances.get(uuid)
            facts = None if instance is None else self._facts_of(snapshot, instance)
            if facts != former.get(uuid):
                altered.append(uuid)
                if facts is None:
                    del found[uuid]
                else:
                    found[uuid] = facts
            is_protected = facts is not None and facts.recovery is Recovery.FAILOVER
            is_under_lease = instance is not None and instance.under_lease
            is_new, is_over = (
                is_protected and not is_under_lease,
                is_under_lease and not is_protected,
            )
            (self.unconfirmed.add if is_new else self.unconfirmed.discard)(uuid)
            (self.ending.add if is_over else self.ending.discard)(uuid)
        return found, Difference(former, altered)

    def _groups_of(self, nodes: Mapping[str, Node]) -> Mapping[str, str]:
        """Return the group of each node, the same object until a node comes, leaves or changes its group."""
        if nodes is not self._nodes_seen:
            groups = {uuid: node.group for uuid, node in nodes.items()}
            self._nodes_seen = nodes
            self._groups = self._groups if groups == self._groups else groups
        return self._groups

    def _facts_of(self, snapshot: Snapshot, instance: Instance) -> InstanceFacts | None:
        self.derived += 1
        recovery = recovery_of(snapshot, instance)
        return None if recovery is Recovery.NONE else _facts(snapshot, instance, recovery)


class _Lists:
    """The lists for nodes, by what each instance adds to them."""

    def __init__(self) -> None:
        self._seen: Snapshot | None = None
        self._facts: Mapping[str, InstanceFacts] = {}
        self._added: dict[str, _Added] = {}
        self._leased = defaultdict[NodeUuid, dict[str, None]](dict)
        self._wanted = defaultdict[NodeUuid, dict[str, None]](dict)
        self._mirrored = defaultdict[NodeUuid, dict[str, int]](dict)
        self._present = Guests({}, {})

    def follow(self, snapshot: Snapshot, found: Watched) -> tuple["Guests", Collection[str]]:
        instances, facts = snapshot.instances, found.instances
        seen = self._seen
        if seen is not None and instances is seen.instances and facts is self._facts:
            return self._present, ()
        difference = found.difference
        if difference is not None and difference.former is self._facts:
            altered = difference.changed
        else:
            altered = differing(self._facts, facts)
        changed = dict.fromkeys((*differing_instances(seen, snapshot), *altered))
        self._seen, self._facts = snapshot, facts
        touched: set[NodeUuid] = set()
        dropped = []
        for uuid in changed:
            before = self._added.get(uuid, _NOTHING)
            after = _lists_of(instances.get(uuid), facts.get(uuid))
            if after == before:
                continue
            self._replace(uuid, before, after)
            touched.update(before.nodes, after.nodes)
            if before.leased and not after.leased:
                dropped.append(uuid)
        if touched:
            self._present = Guests(
                _sealed(self._present.leased, self._leased, touched),
                _sealed(self._present.wanted, self._wanted, touched),
                {node: dict(disks) for node, disks in self._mirrored.items() if disks},
            )
        return self._present, dropped

    def _replace(self, uuid: str, before: "_Added", after: "_Added") -> None:
        for node in before.leased:
            del self._leased[node][uuid]
        if before.wanted is not None:
            del self._wanted[before.wanted][uuid]
        for disk, _generation in before.mirrored:
            del self._mirrored[before.primary][disk]
        for node in after.leased:
            self._leased[node][uuid] = None
        if after.wanted is not None:
            self._wanted[after.wanted][uuid] = None
        self._mirrored[after.primary].update(after.mirrored)
        self._added[uuid] = after
        if after == _NOTHING:
            del self._added[uuid]


class _Added(NamedTuple):
    """What an instance adds to the lists."""

    primary: NodeUuid = NodeUuid("")
    leased: tuple[NodeUuid, ...] = ()
    """The nodes that protect it."""
    wanted: NodeUuid | None = None
    """The node where its guest should run."""
    mirrored: tuple[tuple[str, int], ...] = ()
    """The mirrored disks that its protected guest writes on its primary node, with the generations of their grants."""

    @property
    def nodes(self) -> Collection[NodeUuid]:
        """Return the nodes whose lists have it."""
        wanted = () if self.wanted is None else (self.wanted,)
        return {*self.leased, *wanted, *((self.primary,) if self.mirrored else ())}


_NOTHING = _Added()


def _lists_of(instance: Instance | None, facts: InstanceFacts | None) -> _Added:
    if instance is None:
        return _NOTHING
    nodes: dict[NodeUuid, None] = {}
    is_protected = facts is not None and facts.recovery is Recovery.FAILOVER
    if instance.under_lease or is_protected:
        nodes = dict.fromkeys((*instance.all_nodes, *filter(None, (instance.migrating_to,))))
    runs = facts is not None and _is_up(instance) and instance.migrating_to is None
    is_mirrored = DISK_TEMPLATES[instance.disk_template].mirrored
    disks = instance.disks if is_mirrored and is_protected and _is_up(instance) else ()
    found = _Added(
        instance.primary_node,
        tuple(nodes),
        instance.primary_node if runs else None,
        tuple((disk.uuid, disk.grant.generation if disk.grant else 1) for disk in disks),
    )
    return found if found.nodes else _NOTHING


def is_needed(snapshot: Snapshot, found: Watched) -> bool:
    """Return whether an instance is protected, or recovery has not finished with a node or an instance."""
    return (
        bool(found.instances)
        or any(
            is_in_recovery(node) and not _stays_offline(node) for node in snapshot.nodes.values()
        )
        or any(one.under_lease for one in snapshot.instances.values())
    )


def is_in_recovery(node: Node) -> bool:
    """Return whether recovery has fenced the node, or has begun to, and has not brought it back."""
    is_away = node.recovery is not None and node.recovery.state is not NodeState.HEALTHY
    return is_away or (node.offline and node.awaits_return)


def _stays_offline(node: Node) -> bool:
    return node.offline and not node.awaits_return


@dataclass(frozen=True)
class Guests:
    """The protected instances of each node, by UUID."""

    leased: Mapping[NodeUuid, tuple[str, ...]]
    """Their guests may run on the node only under its lease.

    Secondary nodes are included, so that they know it before a migration or a failover arrives.
    """
    wanted: Mapping[NodeUuid, tuple[str, ...]]
    """Their guests should run on the node now."""
    mirrored: Mapping[NodeUuid, dict[str, int]] = field(default_factory=dict)
    """The mirrored disks that such guests write there if they are protected: UUID -> generation of the grant."""


def _is_up(instance: Instance) -> bool:
    return instance.admin_state is AdminState.UP


def is_listed_anew(view: View, instance: Instance) -> bool:
    """Return whether its node must confirm that it is protected."""
    return not instance.under_lease and recovery_of(view, instance) is Recovery.FAILOVER


def is_listed_still(view: View, instance: Instance) -> bool:
    """Return whether it is protected no longer, and its node does not know that."""
    return instance.under_lease and recovery_of(view, instance) is not Recovery.FAILOVER


def _sealed(
    former: Mapping[NodeUuid, tuple[str, ...]],
    found: Mapping[NodeUuid, Mapping[str, None]],
    touched: Collection[NodeUuid],
) -> Mapping[NodeUuid, tuple[str, ...]]:
    """Return the former lists, with new ones for the touched nodes."""
    new = {node: tuple(found[node]) for node in touched if found.get(node)}
    kept = {node: uuids for node, uuids in former.items() if node not in touched}
    return {**kept, **new}


def uses_watchdog(snapshot: Snapshot, node: Node) -> bool:
    """Return whether a master, this one or the next, may rely on the node's watchdog and thus on its lease."""
    return FenceMethod.WATCHDOG in filled_ndparams(snapshot, node)["fence_methods"].split()


def _methods(snapshot: Snapshot, node: Node, *, has_lease: bool) -> tuple[FenceMethod, ...]:
    """Return how a node can be fenced; the master does not fence its own node."""
    if node.uuid == snapshot.cluster.master_node:
        return ()
    words = filled_ndparams(snapshot, node)["fence_methods"].split()
    return tuple(
        FenceMethod(word)
        for word in words
        if word != NO_FENCING and (has_lease or word != FenceMethod.WATCHDOG)
    )


def _facts(snapshot: Snapshot, instance: Instance, recovery: Recovery) -> InstanceFacts:
    filled = filled_beparams(snapshot, instance)
    return InstanceFacts(
        name=instance.name,
        node=instance.primary_node,
        recovery=recovery,
        priority=filled["recovery_priority"],
        attempts=filled["recovery_attempts"],
        window_s=float(filled["recovery_window"]),
        is_wanted=instance.admin_state is AdminState.UP,
        is_under_lease=instance.under_lease,
    )
