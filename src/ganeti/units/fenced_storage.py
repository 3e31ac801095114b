"""Which instances of a lost node have storage that can refuse its writes (D7)."""

from collections.abc import Iterator

from ganeti.config.fill import recovery_of
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, NodeUuid
from ganeti.model.recovery import Recovery


def why_not_fenced(instance: Instance) -> str:
    """Return why the storage of an instance cannot refuse a node's writes; '' if it can."""
    if not DISK_TEMPLATES[instance.disk_template].can_fence:
        return f"storage of template {instance.disk_template} cannot refuse the writes of one node"
    return "" if instance.disks else "it has no disks"


def at_risk(snapshot: Snapshot, node: NodeUuid) -> Iterator[Instance]:
    """Yield the protected instances whose guests may be on a node."""
    for one in snapshot.instances_of(node):
        is_writer = any(disk.grant and disk.grant.writer == node for disk in one.disks)
        if one.primary_node != node or recovery_of(snapshot, one) is not Recovery.FAILOVER:
            continue
        if is_writer or one.admin_state is AdminState.UP:
            yield one
