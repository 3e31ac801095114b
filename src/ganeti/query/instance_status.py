"""Desired and actual state of an instance in one word."""

import enum

from ganeti.model.names import AdminState, InstanceStatus


class PrimaryNode(enum.Enum):
    """The primary node's report about an instance."""

    OFFLINE = "offline"
    SILENT = "silent"
    RUNS = "runs"
    """The instance runs there."""
    STANDS_STILL = "stands still"
    """The guest exists there, paused."""
    SHUT_DOWN = "shut down"
    """Its guest has shut itself down; no other cause ended it."""
    HAS_NOT = "has not"


_IN_ITS_PLACE = {
    (AdminState.UP, PrimaryNode.RUNS): InstanceStatus.RUNNING,
    (AdminState.UP, PrimaryNode.STANDS_STILL): InstanceStatus.ERROR_DOWN,
    (AdminState.UP, PrimaryNode.SHUT_DOWN): InstanceStatus.USER_DOWN,
    (AdminState.UP, PrimaryNode.HAS_NOT): InstanceStatus.ERROR_DOWN,
    (AdminState.DOWN, PrimaryNode.RUNS): InstanceStatus.ERROR_UP,
    (AdminState.DOWN, PrimaryNode.STANDS_STILL): InstanceStatus.ERROR_UP,
    (AdminState.DOWN, PrimaryNode.SHUT_DOWN): InstanceStatus.ADMIN_DOWN,
    (AdminState.DOWN, PrimaryNode.HAS_NOT): InstanceStatus.ADMIN_DOWN,
    (AdminState.OFFLINE, PrimaryNode.RUNS): InstanceStatus.ERROR_UP,
    (AdminState.OFFLINE, PrimaryNode.STANDS_STILL): InstanceStatus.ERROR_UP,
    (AdminState.OFFLINE, PrimaryNode.SHUT_DOWN): InstanceStatus.ADMIN_OFFLINE,
    (AdminState.OFFLINE, PrimaryNode.HAS_NOT): InstanceStatus.ADMIN_OFFLINE,
}


def instance_status(
    wanted: AdminState, primary: PrimaryNode, *, runs_elsewhere: bool, by_user: bool = False
) -> InstanceStatus:
    """Return the status in upstream's words, because programs parse it.

    An instance under migration counts as running in its place.

    With `by_user` its desired state is down because its guest has shut itself down.
    """
    if primary is PrimaryNode.OFFLINE:
        return InstanceStatus.ERROR_NODE_OFFLINE
    if primary is PrimaryNode.SILENT:
        return InstanceStatus.ERROR_NODE_DOWN
    is_there = primary in (PrimaryNode.RUNS, PrimaryNode.STANDS_STILL)
    if runs_elsewhere and not is_there:
        return InstanceStatus.ERROR_WRONG_NODE
    if by_user and wanted is AdminState.DOWN and not is_there:
        return InstanceStatus.USER_DOWN
    return _IN_ITS_PLACE[wanted, primary]
