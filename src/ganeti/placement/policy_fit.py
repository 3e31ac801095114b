"""Compare all instances of a state with the policies of their groups at once."""

from collections.abc import Mapping

import numpy as np

from ganeti.placement.state import Bools, Indices, State, template_index


def policy_fits(state: State, which: Bools | None = None) -> Bools:
    """Return, by instance, whether the policy of its group allows it; instances on no node and not in `which` pass."""
    these = state.instances
    fits = np.ones(len(these), dtype=bool)
    there = state.primary >= 0 if which is None else which
    for number, group in enumerate(state.groups):
        mine = np.flatnonzero(there)[state.group[state.primary[there]] == number]
        if not len(mine):
            continue
        within = np.zeros(len(mine), dtype=bool)
        for bounds in group.policy.get("minmax", ()):
            within |= _within(state, mine, bounds)
        fits[mine] = within if group.policy.get("minmax") else True
        templates = group.policy.get("disk-templates")
        if templates is not None:
            fits[mine] &= np.isin(these.template[mine], [template_index(one) for one in templates])
    return fits


def _within(state: State, mine: Indices, bounds: Mapping[str, Mapping[str, float]]) -> Bools:
    these = state.instances
    exclusive = state.exclusive[state.primary[mine]]
    spindles = np.where(exclusive, these.spindles[mine], these.spindle_use[mine])
    diskless = these.template[mine] == template_index("diskless")
    values = {
        "memory-size": (these.memory[mine], these.memory[mine]),
        "cpu-count": (these.vcpus[mine], these.vcpus[mine]),
        "disk-size": (these.smallest_disk[mine], these.largest_disk[mine]),
        "disk-count": (these.disks[mine], these.disks[mine]),
        "spindle-use": (spindles, spindles),
    }
    within = np.ones(len(mine), dtype=bool)
    for key, (least, most) in values.items():
        low, high = bounds.get("min", {}).get(key, 0), bounds.get("max", {}).get(key, np.inf)
        inside = (least >= low) & (most <= high)  # unknown spindles (NaN) are outside
        within &= inside | (diskless & key.startswith("disk"))
    return within
