"""Exclusive storage: what an allocation costs is how many later ones it makes impossible.

That is so where every node that may be allocated to has exclusive storage; the groups are compared by it, too.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from ganeti.placement.description import Instance, facts
from ganeti.placement.places import Cost, Rules
from ganeti.placement.state import State

Spec = Mapping[str, float]


def decided(state: State, rules: Rules) -> Rules:
    """The rules, `dedicated` only if the nodes of all groups that can be chosen have exclusive storage."""
    groups = rules.groups
    if groups is None:
        groups = [n for n, one in enumerate(state.groups) if one.alloc_policy != "unallocable"]
    inside = np.isin(state.group, list(groups))
    is_dedicated = bool(inside.any() and state.exclusive[inside].all())
    return msgspec.structs.replace(rules, dedicated=rules.dedicated and is_dedicated)


def lost_allocations(state: State, wanted: Instance, node: int) -> Cost:
    """(by policy interval, the largest first, how many smallest instances fit no more; disk left).

    Spindles do not count, as upstream has it.
    """
    specs = [one["min"] for one in state.groups[state.group[node]].policy.get("minmax", ())]
    specs.sort(key=_size, reverse=True)
    before = _rooms(state, node)
    local = wanted.disk if facts(wanted.template).uses_node_disk else 0
    taken = {"memory-size": wanted.memory, "disk-size": local, "cpu-count": wanted.vcpus}
    after = {key: before[key] - taken[key] for key in before}
    lost = tuple(_number(one, before) - _number(one, after) for one in specs)
    return Cost(lost, after["disk-size"])


def _size(spec: Spec) -> tuple[float, ...]:
    return tuple(
        spec.get(key, 0) for key in ("memory-size", "disk-size", "cpu-count", "spindle-use")
    )


def _rooms(state: State, node: int) -> dict[str, float]:
    ratio, total = float(state.cpu_ratio[node]), float(state.total_cpus[node])
    return {
        "memory-size": float(state.free[node] - state.reserved[node]),
        "disk-size": float(state.free_disk[node]),
        "cpu-count": ratio * total - float(state.used_cpus[node]),
    }


def _number(spec: Spec, rooms: Mapping[str, float]) -> float:
    """How many instances of that size fit into what is left; memory and disk must not be used up."""
    number = np.inf
    for key, room in rooms.items():
        one = spec.get(key, 0)
        if one > 0:
            is_strict = key in ("memory-size", "disk-size")
            number = min(number, np.ceil(room / one) - 1 if is_strict else np.floor(room / one))
    return float(max(0.0, number))
