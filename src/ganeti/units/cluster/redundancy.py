"""The check that the guests of each node would find memory elsewhere if it failed; pure."""

from collections.abc import Iterable, Iterator, Mapping

from ganeti.config.fill import filled_beparams
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.recovery import Recovery
from ganeti.placement.protection import FreeMemory, Guest, hosts_of, loss_of, unplaced
from ganeti.units.cluster.findings import Finding


def memory_findings(
    snapshot: Snapshot, nodes: Iterable[Node], free: Mapping[NodeUuid, int]
) -> Iterator[Finding]:
    """Yield nodes whose guests the other ones of `nodes` could not all start; `free` is MiB a node."""
    nodes = list(nodes)
    left = FreeMemory(
        {
            node.name: float(free[node.uuid])
            for node in nodes
            if node.vm_capable and not node.drained and node.uuid in free
        }
    )
    for node in nodes:
        up = [one for one in snapshot.instances_on(node.uuid) if one.admin_state is AdminState.UP]
        movable = [_movable(snapshot, one) for one in up if _is_movable(snapshot, one)]
        ordered = sorted(movable, key=lambda one: (-one.memory, one.name))
        homeless = [guest for guest, _why in unplaced(ordered, left.without(node.name))]
        if homeless:
            text = (
                f"if it fails, the other nodes have no memory for {len(homeless)} of its instances,"
                f" for example {homeless[0].name}"
            )
            yield Finding("ENODEN1", "node", node.name, text)
        protected = [_protected(snapshot, one) for one in up if _is_protected(snapshot, one)]
        if (loss := loss_of(node.name, protected, left)).unplaced:
            yield Finding("ENODEN1", "node", node.name, str(loss))


def _is_movable(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether balancing moves the instance; those tied to the node's disks are ignored."""
    beparams = filled_beparams(snapshot, instance)
    return DISK_TEMPLATES[instance.disk_template].can_migrate and beparams["auto_balance"]


def _movable(snapshot: Snapshot, instance: Instance) -> Guest:
    memory = filled_beparams(snapshot, instance)["minmem"]
    return Guest(instance.name, memory, _hosts(snapshot, instance))


def _is_protected(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether its policy is to fail over, also if its disk template does not allow that."""
    return bool(filled_beparams(snapshot, instance)["recovery"] == Recovery.FAILOVER)


def _protected(snapshot: Snapshot, instance: Instance) -> Guest:
    """Return the guest as a failover starts it: with all its memory."""
    beparams = filled_beparams(snapshot, instance)
    hosts = _hosts(snapshot, instance)
    return Guest(instance.name, beparams["maxmem"], hosts, beparams["recovery_priority"])


def _hosts(snapshot: Snapshot, instance: Instance) -> tuple[str, ...] | None:
    names = [snapshot.nodes[uuid].name for uuid in instance.secondary_nodes]
    return hosts_of(instance.disk_template, names[0] if names else "")
