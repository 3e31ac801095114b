"""Nodes."""

from collections.abc import Iterator

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode
from ganeti.base.identifiers import host_name
from ganeti.config.index import Claim
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.objects import Cluster, DetachedDisk, Image, Node


def _claims(_cluster: Cluster, node: Node) -> Iterator[Claim]:
    # Nodes and instances are both hosts on the network: one name, one host.
    yield Claim("host name", node.name)
    for address in sorted({node.primary_ip, node.secondary_ip} - {""}):
        yield Claim("node address", f"{address} port {node.port}")
    for certificate in sorted(set(node.certificates)):
        yield Claim("certificate", certificate)


def _problems(view: View, node: Node) -> Iterator[Problem]:
    yield from name_problems(host_name, node.name, "node name")
    if node.group not in view.groups:
        yield (
            ErrorCode.UNKNOWN_ENTITY,
            f"node {node.name}: its group {node.group} does not exist",
        )
    if node.master_candidate and (node.offline or node.drained or not node.master_capable):
        yield (
            ErrorCode.WRONG_STATE,
            f"node {node.name} cannot be a master candidate: it is offline, drained or not capable",
        )
    if node.offline and node.drained:
        yield ErrorCode.WRONG_STATE, f"node {node.name} is both offline and drained"
    if node.uuid == view.cluster.master_node and not node.master_candidate:
        yield ErrorCode.WRONG_STATE, f"node {node.name} is the master and must stay a candidate"


def _references(view: View, node: Node) -> Iterator[Problem]:
    if node.uuid == view.cluster.master_node:
        yield ErrorCode.WRONG_STATE, f"node {node.name} is the master; fail over first"
    users = view.instances_of(node.uuid)
    if users:
        yield (
            ErrorCode.WRONG_STATE,
            f"node {node.name} still has {len(users)} instances, for example {users[0].name}",
        )
    yield from _copies_in_doubt(view, node)
    for detached in view.table(DetachedDisk).values():
        if node.uuid in detached.nodes:
            text = (
                f"node {node.name} still has the detached {detached.what}; attach it to an "
                "existing instance (gnt-instance modify --disk attach:name=…), and remove it, or "
                "move that instance"
            )
            yield ErrorCode.WRONG_STATE, text
    for schedule in view.table(BackupSchedule).values():
        if schedule.node == node.uuid:
            text = (
                f"schedule {schedule.name} stores backups on node {node.name}; choose another node first:"
                f" gnt-backup schedule modify {schedule.name} --node=NODE"
            )
            yield ErrorCode.WRONG_STATE, text
    for image in view.table(Image).values():
        if node.uuid in image.nodes:
            text = f"node {node.name} still has a copy of image {image.name}"
            yield ErrorCode.WRONG_STATE, text


def _copies_in_doubt(view: View, node: Node) -> Iterator[Problem]:
    """Yield the instances whose guest may use a copy on this node after an interrupted move of its disks."""
    for instance in view.instances.values():
        if instance.switching is not None and node.uuid in instance.switching.secondary_nodes:
            text = (
                f"node {node.name} may have a copy of the disks of {instance.name}, whose move was interrupted; run:"
                f" gnt-instance migrate --cleanup {instance.name}"
            )
            yield ErrorCode.WRONG_STATE, text


def _merged(current: Node, stale: Node) -> Node:
    """Return the stale version with the row that automatic recovery has committed meanwhile."""
    return replace(stale, recovery=current.recovery)


NODE = Kind("node", Node, _claims, _problems, _references, merged=_merged)
