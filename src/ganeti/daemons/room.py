"""Whether a change of the configuration may have made room for an instance that fitted nowhere; pure."""

from typing import TypeVar

from msgspec.structs import replace

from ganeti.config.view import View
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup

_OF_GROUP = ("ipolicy", "ndparams", "diskparams", "alloc_policy", "networks", "tags")
_OF_NODE = ("group", "ndparams", "tags")
_OF_INSTANCE = ("beparams", "hvparams", "tags", "secondary_nodes")


def gains_room(before: View, after: View) -> bool:
    """Return whether a failover or a start that was refused before may succeed now.

    A policy or a parameter that differs may allow more, so every such change counts. What only takes room does not.
    """
    return (
        _is_another(before.cluster, after.cluster)
        or _gain_groups(before, after)
        or _gain_nodes(before, after)
        or _gain_instances(before, after)
    )


def _is_another(before: Cluster, after: Cluster) -> bool:
    """Return whether anything but the record of the change itself differs."""
    return before is not after and after != replace(
        before, serial_no=after.serial_no, mtime=after.mtime
    )


T = TypeVar("T", NodeGroup, Node, Instance)


def _differs(before: T, after: T, fields: tuple[str, ...]) -> bool:
    return before is not after and any(
        getattr(before, field) != getattr(after, field) for field in fields
    )


def _gain_groups(before: View, after: View) -> bool:
    return before.groups is not after.groups and any(
        uuid in before.groups and _differs(before.groups[uuid], one, _OF_GROUP)
        for uuid, one in after.groups.items()
    )


def _gain_nodes(before: View, after: View) -> bool:
    """Return whether a node is in service that was not, or counts differently."""
    if before.nodes is after.nodes:
        return False
    for uuid, one in after.nodes.items():
        former = before.nodes.get(uuid)
        if one is former or not _is_usable(one):
            continue
        if former is None or not _is_usable(former) or _differs(former, one, _OF_NODE):
            return True
    return False


def _is_usable(node: Node | None) -> bool:
    return node is not None and node.vm_capable and not (node.offline or node.drained)


def _gain_instances(before: View, after: View) -> bool:
    if before.instances is after.instances:
        return False
    for uuid, former in before.instances.items():
        one = after.instances.get(uuid)
        if one is former:
            continue
        if one is not None and (
            _differs(former, one, _OF_INSTANCE) or _has_more_copies(former, one)
        ):
            return True
        if _has_left(former, one) and _is_usable(after.nodes.get(former.primary_node)):
            return True
    return False


def _has_left(former: Instance, now: Instance | None) -> bool:
    """Return whether an instance uses less of its former node: it was removed, moved or stopped, or lost a disk."""
    if now is None or now.primary_node != former.primary_node:
        return True
    is_stopped = former.admin_state is AdminState.UP and now.admin_state is not AdminState.UP
    return is_stopped or len(now.disks) < len(former.disks)


def _has_more_copies(former: Instance, now: Instance) -> bool:
    """Return whether a copy of a disk has become current, so that it can be promoted."""
    current = {disk.uuid: disk.grant.current for disk in former.disks if disk.grant}
    return any(
        disk.grant is not None and disk.grant.current - current.get(disk.uuid, disk.grant.current)
        for disk in now.disks
    )
