"""What automatic recovery cannot do in this cluster, for its status and for verify; pure."""

from collections.abc import Iterator

from ganeti.config.fill import filled_beparams, recovery_of
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Node
from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.instance import InstanceState
from ganeti.recovery.status import NodeStatus, RecoveryStatus
from ganeti.units.cluster.fence_findings import NOT_FENCED
from ganeti.units.cluster.findings import Finding
from ganeti.units.fenced_storage import why_not_fenced
from ganeti.units.instance.grants import why_alone
from ganeti.units.oob.device import no_device, power_device

LEAST_NODES = 3
"""With two nodes no majority is left when one is lost (D11)."""


def recovery_limits(snapshot: Snapshot, *, elects_master: bool) -> Iterator[str]:
    """Yield which lost nodes need an administrator in a cluster with protected instances, and why (D10)."""
    policies = {recovery_of(snapshot, one) for one in snapshot.instances.values()}
    if Recovery.FAILOVER not in policies:
        return
    nodes = [node for node in snapshot.nodes.values() if not node.offline]
    if len(nodes) < LEAST_NODES:
        yield (
            f"the cluster has {len(nodes)} online node{'' if len(nodes) == 1 else 's'}, and automatic failover"
            f" needs {LEAST_NODES}: a lost node leaves no majority; bring an offline node back, or add one,"
            " which needs no instances (gnt-node add --vm-capable=no NODE)"
        )
    elif not elects_master:
        master = snapshot.nodes[snapshot.cluster.master_node].name
        yield (
            f"node {master} is the master, and the embedded state elects no other one: if {master} is lost,"
            " run on another master candidate: gnt-cluster master-failover. Most of the nodes must answer it; then"
            f" the instances of {master} are recovered. With etcd a new master is elected automatically"
            " (gnt-cluster modify --state=etcd)"
        )


def recovery_findings(
    snapshot: Snapshot, status: RecoveryStatus, *, elects_master: bool
) -> Iterator[Finding]:
    """Yield what waits for an administrator, and what would after the next failure."""
    nodes = {node.name: node for node in snapshot.nodes.values()}
    for one in status.nodes:
        if one.state is NodeState.STUCK:
            text = (
                f"is lost and not fenced: {one.why}; its protected instances stay down until you confirm that"
                f" it is off: gnt-node fenced --confirm {one.name}"
            )
            yield Finding(NOT_FENCED, "node", one.name, text)
        elif one.name in nodes and nodes[one.name].uuid != snapshot.cluster.master_node:
            yield from _without_fencing(snapshot, nodes[one.name], one)
    for guest in status.instances:
        if guest.state is InstanceState.GIVEN_UP:
            text = (
                f"automatic recovery has given it up: {guest.why}; look at its last job, then run:"
                f" gnt-instance start {guest.name}"
            )
            yield Finding("EINSTANCEDOWN", "instance", guest.name, text)
    for text in recovery_limits(snapshot, elects_master=elects_master):
        yield Finding("ECLUSTERCFG", "cluster", snapshot.cluster.name, text, is_error=False)
    yield from _tied(snapshot)
    yield from _alone(snapshot)


def _alone(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield instances that would stay down if their node were lost, because no other copy has every write."""
    for one in snapshot.instances.values():
        if why := why_alone(snapshot, one):
            yield Finding("EINSTANCEFAULTYDISK", "instance", one.name, why, is_error=False)


def _without_fencing(snapshot: Snapshot, node: Node, status: NodeStatus) -> Iterator[Finding]:
    """Yield a node that no method could fence, if protected instances run there or could be moved there."""
    protected = [
        one
        for one in snapshot.instances_of(node.uuid)
        if recovery_of(snapshot, one) is Recovery.FAILOVER
    ]
    faults = list(_unusable(snapshot, node, status))
    if not protected or len(faults) < len(status.methods):
        return
    here = sorted(one.name for one in protected if one.primary_node == node.uuid)
    what = f"{len(here)} of its instances" if here else "instances that were moved to it"
    text = (
        f"if it is lost, {what} stay down until an administrator confirms that it is off:"
        f" {'; '.join(faults) or 'the node parameter fence_methods is none'}"
    )
    yield Finding(NOT_FENCED, "node", node.name, text, is_error=bool(here and status.methods))


def _unusable(snapshot: Snapshot, node: Node, status: NodeStatus) -> Iterator[str]:
    """Yield why each fencing method of a node that does not work would not fence it."""
    if FenceMethod.WATCHDOG in status.methods and not status.is_armed:
        yield f"its watchdog is not armed ({status.why_unarmed or 'it has not answered yet'})"
    if FenceMethod.POWER in status.methods and power_device(snapshot, node) is None:
        yield no_device(node)
    if FenceMethod.STORAGE in status.methods:
        others = [
            f"{one.name} ({one.disk_template})"
            for one in snapshot.instances_of(node.uuid)
            if recovery_of(snapshot, one) is Recovery.FAILOVER and why_not_fenced(one)
        ]
        if others:
            yield f"the storage of {', '.join(sorted(others))} cannot refuse the writes of one node"


def _tied(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield instances whose policy is failover although their disk template rules it out."""
    for one in snapshot.instances.values():
        wanted = filled_beparams(snapshot, one)["recovery"]
        why = DISK_TEMPLATES[one.disk_template].why_not_recovered
        if wanted == Recovery.FAILOVER and why:
            text = (
                f"recovery=failover only restarts it on its own node: disk template {one.disk_template} {why}; to"
                f" say so: gnt-instance modify -B recovery=restart {one.name}"
            )
            yield Finding("EINSTANCELAYOUT", "instance", one.name, text, is_error=False)
