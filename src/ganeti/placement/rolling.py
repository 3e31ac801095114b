"""Rolling reboots: groups of nodes that may be down together, as few groups as a greedy colouring finds.

Two nodes must not be down together if an instance has them as primary and secondary, or if two of
their instances would fail over to the same third node (unless instances are shut down anyway).
"""

from collections.abc import Sequence

import numpy as np

from ganeti.placement.places import NO_NODE
from ganeti.placement.state import MIRROR_INTERNAL, Bools, State


def conflicts(state: State, *, is_offline: bool) -> Bools:
    """Return (nodes, nodes): True where both must not be down together; `is_offline`: all instances are down."""
    size = len(state.nodes)
    mirrored = np.flatnonzero(
        (state.instances.mirror == MIRROR_INTERNAL) & (state.secondary != NO_NODE)
    )
    primary, secondary = state.primary[mirrored], state.secondary[mirrored]
    together = np.zeros((size, size), dtype=bool)
    together[primary, secondary] = together[secondary, primary] = True
    if not is_offline:
        backed = np.zeros((size, size))
        backed[primary, secondary] = 1
        together |= (backed @ backed.T) > 0
    np.fill_diagonal(together, val=False)
    return together


def without_failover(state: State) -> Bools:
    """Return, by instance, whether it has no secondary node to fail over to."""
    return np.asarray((state.secondary == NO_NODE) & (state.primary != NO_NODE))


def non_redundant(state: State) -> Bools:
    """Return, by node, whether it has an instance without a secondary node."""
    alone = without_failover(state)
    found = np.zeros(len(state.nodes), dtype=bool)
    found[state.primary[alone]] = True
    return found


def reboot_groups(state: State, nodes: Bools, *, is_offline: bool = False) -> list[list[int]]:
    """Return the nodes in groups; the largest first, but the master's last, and the master last in it."""
    apart = conflicts(state, is_offline=is_offline)
    wanted = [int(node) for node in np.flatnonzero(nodes)]
    best = min((_coloured(order, apart) for order in _orders(wanted, apart)), key=len)
    master = {number for number, node in enumerate(state.nodes) if node.is_master}
    best.sort(key=lambda group: (bool(master & set(group)), -len(group)))
    return [sorted(group, key=lambda node: (node in master, node)) for group in best]


def _orders(nodes: Sequence[int], apart: Bools) -> list[list[int]]:
    """Return orders for the colouring: by number of conflicts, and by saturation."""
    degree = apart.sum(axis=1)
    by_degree = sorted(nodes, key=lambda node: (-degree[node], node))
    return [by_degree, _by_saturation(by_degree, apart), list(nodes)]


def _by_saturation(nodes: Sequence[int], apart: Bools) -> list[int]:
    """Return an order in which the coloured neighbours of the next node have the most colours."""
    colours: dict[int, int] = {}
    order: list[int] = []
    left = list(nodes)
    while left:
        node = max(left, key=lambda one: len({colours[n] for n in order if apart[one, n]}))
        taken = {colours[other] for other in order if apart[node, other]}
        colours[node] = next(number for number in range(len(nodes)) if number not in taken)
        order.append(node)
        left.remove(node)
    return order


def _coloured(order: Sequence[int], apart: Bools) -> list[list[int]]:
    groups: list[list[int]] = []
    for node in order:
        home = next((one for one in groups if not apart[node, one].any()), None)
        if home is None:
            groups.append([node])
        else:
            home.append(node)
    return groups
