"""The part of the configuration that automatic recovery watches; pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from ganeti.config.fill import filled_beparams, filled_ndparams, recovery_of
from ganeti.config.snapshot import Snapshot
from ganeti.config.view import View
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.params import NO_FENCING
from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.facts import InstanceFacts, NodeFacts, Watched


def watched(snapshot: Snapshot, *, has_lease: bool) -> Watched:
    """Return what recovery looks after.

    Without `has_lease` (two voters or fewer) no majority excludes a second master, so nodes have no lease that a
    watchdog could enforce, and only their power is switched off.
    """
    return Watched(
        master=snapshot.cluster.master_node,
        nodes={
            NodeUuid(node.uuid): NodeFacts(
                name=node.name,
                methods=_methods(snapshot, node, has_lease=has_lease),
                in_maintenance=node.maintenance is not None,
                stays_offline=_stays_offline(node),
                can_relay=node.master_candidate and node.uuid != snapshot.cluster.master_node,
                has_secondary=node.secondary_ip not in {"", node.primary_ip},
            )
            for node in snapshot.nodes.values()
            if not node.offline or is_in_recovery(node)
        },
        instances={
            str(instance.uuid): _facts(snapshot, instance)
            for instance in snapshot.instances.values()
            if recovery_of(snapshot, instance) is not Recovery.NONE
        },
    )


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
    return node.recovery is not None and node.recovery.state is not NodeState.HEALTHY


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

    @property
    def protected(self) -> frozenset[str]:
        """Return those that any node is told to protect."""
        return frozenset(chain.from_iterable(self.leased.values()))


def guests_of(snapshot: Snapshot, found: Watched) -> Guests:
    """Return what the nodes are told about instances."""
    under_lease, wanted = (
        defaultdict[NodeUuid, list[str]](list),
        defaultdict[NodeUuid, list[str]](list),
    )
    mirrored = defaultdict[NodeUuid, dict[str, int]](dict)
    for uuid, instance in snapshot.instances.items():
        facts = found.instances.get(uuid)
        if instance.under_lease or (facts is not None and facts.recovery is Recovery.FAILOVER):
            for node in {*instance.all_nodes, *filter(None, (instance.migrating_to,))}:
                under_lease[node].append(uuid)
        if facts is None:
            continue
        if _is_up(instance) and instance.migrating_to is None:
            wanted[instance.primary_node].append(uuid)
        is_mirrored = DISK_TEMPLATES[instance.disk_template].mirrored
        if is_mirrored and _is_up(instance) and facts.recovery is Recovery.FAILOVER:
            mirrored[instance.primary_node] |= {
                disk.uuid: disk.grant.generation if disk.grant else 1 for disk in instance.disks
            }
    return Guests(_sealed(under_lease), _sealed(wanted), dict(mirrored))


def _is_up(instance: Instance) -> bool:
    return instance.admin_state is AdminState.UP


def is_listed_anew(view: View, instance: Instance) -> bool:
    """Return whether its node must confirm that it is protected."""
    return not instance.under_lease and recovery_of(view, instance) is Recovery.FAILOVER


def is_listed_still(view: View, instance: Instance) -> bool:
    """Return whether it is protected no longer, and its node does not know that."""
    return instance.under_lease and recovery_of(view, instance) is not Recovery.FAILOVER


def _sealed(found: Mapping[NodeUuid, list[str]]) -> dict[NodeUuid, tuple[str, ...]]:
    return {node: tuple(uuids) for node, uuids in found.items()}


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


def _facts(snapshot: Snapshot, instance: Instance) -> InstanceFacts:
    filled = filled_beparams(snapshot, instance)
    return InstanceFacts(
        name=instance.name,
        node=instance.primary_node,
        recovery=recovery_of(snapshot, instance),
        priority=filled["recovery_priority"],
        attempts=filled["recovery_attempts"],
        window_s=float(filled["recovery_window"]),
        is_wanted=instance.admin_state is AdminState.UP,
        is_under_lease=instance.under_lease,
    )
