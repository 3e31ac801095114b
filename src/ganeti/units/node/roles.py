"""The changed node for a present node and a requested role; pure."""

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.model.objects import Node
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.units.node.candidate_pool import can_be_candidate

_CHANGES = (
    "master_candidate",
    "offline",
    "drained",
    "master_capable",
    "vm_capable",
    "secondary_ip",
    "ndparams",
    "powered",
)


def check_request(op: OpNodeSetParams) -> None:
    """Refuse contradictory requests, and requests without a change."""
    for field in ("hv_state", "disk_state"):
        if getattr(op, field) not in (None, {}):
            raise InputError("this implementation does not support it", field)
    if all(getattr(op, name) is None for name in _CHANGES) and not op.auto_promote:
        raise InputError("nothing to change: pass at least one option", "node_name")
    chosen = [name for name in ("master_candidate", "offline", "drained") if getattr(op, name)]
    if len(chosen) > 1:
        raise InputError(
            f"a node has one role: {' and '.join(chosen)} exclude each other", chosen[1]
        )
    if op.master_candidate and op.master_capable is False:
        raise InputError(
            "a node that is not master_capable cannot be a candidate", "master_candidate"
        )


def with_role(node: Node, op: OpNodeSetParams) -> Node:
    """Return the node with the requested role and flags; PrereqError if it cannot have them."""
    offline = node.offline if op.offline is None else op.offline
    drained = node.drained if op.drained is None else op.drained
    if op.offline:
        drained = False
    elif op.drained:
        offline = False
    new = replace(
        node,
        offline=offline,
        awaits_return=_awaits_return(node, op, offline=offline),
        drained=drained,
        master_capable=node.master_capable if op.master_capable is None else op.master_capable,
        vm_capable=node.vm_capable if op.vm_capable is None else op.vm_capable,
        powered=node.powered if op.powered is None else op.powered,
    )
    if op.master_candidate and not can_be_candidate(new):
        raise PrereqError(
            f"node {node.name} is {_hindrance(new)}, so it cannot be a master candidate",
            ErrorCode.WRONG_STATE,
        )
    candidate = node.master_candidate if op.master_candidate is None else op.master_candidate
    return replace(new, master_candidate=candidate and can_be_candidate(new))


def _awaits_return(node: Node, op: OpNodeSetParams, *, offline: bool) -> bool:
    """Return whether recovery may bring the node back: the last mark is recovery's, and not an administrator's."""
    if not op.offline:
        return offline and node.awaits_return
    return op.awaits_return and (node.awaits_return or not node.offline)


def _hindrance(node: Node) -> str:
    if node.offline:
        return "offline"
    return "drained" if node.drained else "not master_capable"


def check_master(op: OpNodeSetParams, node: Node) -> None:
    """Refuse to change the master's role, which only a failover changes."""
    if op.offline or op.drained or op.master_candidate is False or op.master_capable is False:
        raise PrereqError(
            f"node {node.name} is the master: it stays online and a candidate;"
            " let another node take over first (gnt-cluster master-failover)",
            ErrorCode.WRONG_STATE,
        )
