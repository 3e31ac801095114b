"""What automatic recovery cannot do in this cluster, for its status and for verify; pure."""

from collections.abc import Iterator

from ganeti.config.fill import filled_beparams
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance
from ganeti.model.recovery import Recovery

LEAST_NODES = 3
"""With two nodes no majority is left when one is lost (D11)."""


def recovery_of(snapshot: Snapshot, instance: Instance) -> Recovery:
    """Return the effective policy of an instance."""
    return Recovery(filled_beparams(snapshot.cluster, instance)["recovery"])


def recovery_limits(snapshot: Snapshot, *, elects_master: bool) -> Iterator[str]:
    """Yield which lost nodes need an administrator in a cluster with protected instances, and why (D10)."""
    policies = {recovery_of(snapshot, one) for one in snapshot.instances.values()}
    if Recovery.FAILOVER not in policies:
        return
    nodes = [node for node in snapshot.nodes.values() if not node.offline]
    if len(nodes) < LEAST_NODES:
        yield (
            f"the cluster has {len(nodes)} online node{'' if len(nodes) == 1 else 's'}, and automatic failover"
            f" needs {LEAST_NODES}: a lost node leaves no majority; add a node, which may be one without"
            " instances (gnt-node add --vm-capable=no NODE)"
        )
    elif not elects_master:
        master = snapshot.nodes[snapshot.cluster.master_node].name
        yield (
            f"node {master} is the master, and the embedded state elects no other one: if {master} is lost,"
            " run on another master candidate: gnt-cluster master-failover. Most of the nodes must answer it; then"
            f" the instances of {master} are recovered. With etcd a new master is elected automatically"
            " (gnt-cluster modify --state=etcd)"
        )
