"""A cluster at a glance: its room, how many more instances fit, and what the loss of each node would mean."""

from collections import Counter
from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from ganeti.placement.capacity import fill, open_nodes
from ganeti.placement.description import Instance
from ganeti.placement.places import Excluded, Rules
from ganeti.placement.redundancy import Unplaced, fail_over, move_away, unrecoverable_nodes
from ganeti.placement.state import MIRROR_EXTERNAL, MIRROR_INTERNAL, Indices, State
from ganeti.placement.totals import totals

FITS_LIMIT = 1000
"""Counting ends here: a page shows `1000 or more`."""
EXACT_LIMIT = 100
"""Nodes with N+1 violations whose instances are tried one by one, the most loaded first: some 15 ms a node."""
LOST = "its disks exist only on this node"
_PLACED = ("failover", "restart", "unplaced")
DEGRADED = "it loses its second copy and keeps running"


def overview(state: State, standard: Instance) -> dict[str, Any]:
    """Return sums (sizes in MiB), N+1 violations by group, and how many instances like `standard` fit."""
    now = totals(state)
    weak = np.zeros(len(state.nodes), dtype=bool)
    weak[list(unrecoverable_nodes(state, Excluded(lone_nodes=True)))] = True
    weak |= state.fails & ~state.offline
    violated = sorted({int(group) for group in state.group[weak]})
    rules = Rules(excluded=Excluded(groups=violated, lone_nodes=True))
    filled = fill(state, standard, rules, FITS_LIMIT, open_nodes(state, violated))
    fits = len(filled.instances)
    return {
        "groups": [
            {
                "name": group.name,
                "uuid": group.uuid,
                "nodes": int((state.group == number).sum()),
                "n1_violations": [
                    state.nodes[node].name
                    for node in np.flatnonzero(weak & (state.group == number))
                ],
            }
            for number, group in enumerate(state.groups)
        ],
        "memory": {
            "total": now.memory,
            "free": now.memory_free,
            "available": now.memory_available,
            "reserved": max(0.0, now.memory_free - now.memory_available),
        },
        "disk": {"total": now.disk, "free": now.disk_free, "available": now.disk_available},
        "cpus": {"total": now.cpus, "virtual": now.virtual_cpus, "used": now.cpus_instances},
        "standard": {
            "memory": standard.memory,
            "disk": standard.disk,
            "vcpus": standard.vcpus,
            "template": standard.template,
            "fits": fits,
            "is_limit": fits >= FITS_LIMIT,
            "limited_by": "" if fits >= FITS_LIMIT else str(filled.main_failure),
            "closed_groups": [state.groups[group].name for group in violated],
        },
    }


def impact(state: State, node: int) -> list[dict[str, Any]]:
    """Return for each instance with a part on a node what the loss of the node would mean for it."""
    return [
        {
            "name": state.descriptions[index].name,
            "role": role,
            "to": None if target is None else state.nodes[target].name,
            "how": how,
            "why": why,
        }
        for index, role, target, how, why in _fates(state, node)
    ]


def impacts(state: State) -> list[dict[str, Any]]:
    """Return for each node how many of its instances have which outcome in `impact`, in the order of the nodes.

    A node whose loss certainly leaves nothing unplaced is counted at once, so 1,000 nodes take a tenth of a second.
    `unplaced`, `failover` and `restart` are None for nodes beyond `EXACT_LIMIT`: they have N+1 violations.
    """
    weak = np.zeros(len(state.nodes), dtype=bool)
    weak[list(unrecoverable_nodes(state))] = True
    weak |= state.offline  # the check of redundancy passes over them
    loaded = np.flatnonzero(weak)
    loaded = loaded[np.argsort(-state.instance_memory[loaded], kind="stable")]
    exact = {int(node) for node in loaded[:EXACT_LIMIT]}
    sure = _sure_counts(state)
    return [
        {"name": node.name, **_outcomes(state, number, sure, exact, is_weak=bool(weak[number]))}
        for number, node in enumerate(state.nodes)
    ]


def _sure_counts(state: State) -> dict[str, Indices]:
    """Return, by outcome and node, the counts of a cluster that loses any one node without an N+1 violation."""
    mirror, size = state.instances.mirror, len(state.nodes)
    there, copied = state.primary >= 0, state.secondary >= 0
    fails_over = there & copied & (mirror == MIRROR_INTERNAL)
    restarts = there & (mirror == MIRROR_EXTERNAL)
    return {
        "failover": np.bincount(state.primary[fails_over], minlength=size),
        "restart": np.bincount(state.primary[restarts], minlength=size),
        "degraded": np.bincount(state.secondary[copied], minlength=size),
        "unplaced": np.zeros(size, dtype=np.intp),
        "lost": np.bincount(state.primary[there & ~fails_over & ~restarts], minlength=size),
    }


def _outcomes(
    state: State, node: int, sure: dict[str, Indices], exact: Container[int], *, is_weak: bool
) -> dict[str, int | None]:
    if node in exact:
        found = Counter(how for _index, _role, _target, how, _why in _fates(state, node))
        return {how: found[how] for how in sure}
    return {
        how: None if is_weak and how in _PLACED else int(counts[node])
        for how, counts in sure.items()
    }


def _fates(state: State, node: int) -> Iterator[tuple[int, str, int | None, str, str]]:
    """Yield (instance, role, new primary node, what happens, why), in the order of `unplaced_by_loss`."""
    these, after = state.instances, state.copy()
    mine = np.flatnonzero(state.primary == node)
    for number in mine[::-1]:
        index = int(number)
        if these.mirror[index] == MIRROR_INTERNAL and state.secondary[index] >= 0:
            other = int(state.secondary[index])
            if fail_over(after, index, node):
                yield index, "primary", other, "failover", ""
            else:
                why = f"{Unplaced.FAILOVER} {state.nodes[other].name}: it lacks memory or disk"
                yield index, "primary", None, "unplaced", why
    scope = after.group == after.group[node]
    shared = mine[these.mirror[mine] == MIRROR_EXTERNAL]
    for number in shared[np.argsort(-these.memory[shared], kind="stable")]:
        index = int(number)
        if move_away(after, index, scope):
            yield index, "primary", int(after.primary[index]), "restart", ""
        else:
            yield index, "primary", None, "unplaced", str(Unplaced.SHARED)
    for number in mine:
        index = int(number)
        has_copy = these.mirror[index] == MIRROR_INTERNAL and state.secondary[index] >= 0
        if not has_copy and these.mirror[index] != MIRROR_EXTERNAL:
            yield index, "primary", None, "lost", LOST
    for number in np.flatnonzero(state.secondary == node):
        yield int(number), "secondary", None, "degraded", DEGRADED
