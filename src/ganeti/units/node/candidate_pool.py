"""The size of the pool of master candidates, and its possible members; pure."""

from collections.abc import Iterable

from ganeti.config.view import View
from ganeti.model.objects import Node


def can_be_candidate(node: Node) -> bool:
    """Return whether a node may store the state and become the master."""
    return node.master_capable and not node.offline and not node.drained


def wanted_candidates(pool_size: int, nodes: Iterable[Node]) -> int:
    """Return how many of these nodes should be candidates."""
    return min(pool_size, sum(can_be_candidate(node) for node in nodes))


def missing_candidates(view: View, pool_size: int, *, without: str = "") -> list[Node]:
    """Return the nodes to promote so that the pool is full, by name; `without` is neither counted nor chosen."""
    nodes = [node for node in view.nodes_by_name() if node.uuid != without]
    free = [node for node in nodes if can_be_candidate(node) and not node.master_candidate]
    have = sum(node.master_candidate for node in nodes)
    return free[: max(0, wanted_candidates(pool_size, nodes) - have)]
