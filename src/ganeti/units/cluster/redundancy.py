"""The check that the guests of each node would find memory elsewhere if it failed; pure."""

from collections.abc import Iterable, Iterator, Mapping

from ganeti.config.fill import filled_beparams
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.units.cluster.findings import Finding


def memory_findings(
    snapshot: Snapshot, nodes: Iterable[Node], free: Mapping[NodeUuid, int]
) -> Iterator[Finding]:
    """Yield nodes whose guests the other ones of `nodes` could not all start; `free` is MiB a node."""
    hosts = [node for node in nodes if node.vm_capable and not node.drained and node.uuid in free]
    for node in nodes:
        left = {one.uuid: free[one.uuid] for one in hosts if one.uuid != node.uuid}
        homeless = _unplaced(snapshot, node, left)
        if homeless:
            text = (
                f"if it fails, the other nodes have no memory for {len(homeless)} of its instances,"
                f" for example {homeless[0].name}"
            )
            yield Finding("ENODEN1", "node", node.name, text)


def _unplaced(snapshot: Snapshot, node: Node, left: dict[NodeUuid, int]) -> list[Instance]:
    """Return the instances that do not fit, the largest tried first; instances tied to the node's disks are ignored."""
    movable = [
        (filled_beparams(snapshot.cluster, one)["minmem"], one)
        for one in snapshot.instances_on(node.uuid)
        if one.admin_state is AdminState.UP
        and DISK_TEMPLATES[one.disk_template].can_migrate
        and filled_beparams(snapshot.cluster, one)["auto_balance"]
    ]
    unplaced = []
    for memory, instance in sorted(movable, key=lambda one: (-one[0], one[1].name)):
        allowed = instance.secondary_nodes or tuple(left)
        best = max((uuid for uuid in allowed if uuid in left), key=left.__getitem__, default=None)
        if best is None or left[best] < memory:
            unplaced.append(instance)
        else:
            left[best] -= memory
    return unplaced
