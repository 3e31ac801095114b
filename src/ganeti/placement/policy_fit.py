"""Whether instances fit the policies of their groups: one with the reason, or all of a state at once."""

from collections.abc import Mapping

import numpy as np

from ganeti.placement.description import Failure, Instance, Policy
from ganeti.placement.state import Bools, Indices, State, template_index


def policy_failure(policy: Policy, one: Instance, *, exclusive: bool = False) -> Failure | None:
    """What of an instance the policy of a group forbids, in one word.

    With exclusive storage the disks' spindles count in place of the instance's share. Interfaces are not
    counted: whoever creates the instance does that (`policy_violations`).
    """
    if one.template not in policy.get("disk-templates", (one.template,)):
        return Failure.DISK
    failures = []
    for bounds in policy.get("minmax", ()):
        failure = _first_outside(bounds, one, exclusive=exclusive)
        if failure is None:
            return None
        failures.append(failure)
    return failures[0] if failures else None


def _first_outside(
    bounds: Mapping[str, Mapping[str, float]], one: Instance, *, exclusive: bool
) -> Failure | None:
    spindles = one.spindles if exclusive else one.spindle_use
    values = [
        ("memory-size", one.memory, Failure.MEMORY),
        *(("disk-size", disk, Failure.DISK) for disk in one.disks),
        ("cpu-count", one.vcpus, Failure.CPU),
        ("spindle-use", spindles, Failure.SPINDLES),
        ("disk-count", len(one.disks), Failure.DISK_COUNT),
    ]
    if one.template == "diskless":
        values = [value for value in values if not value[0].startswith("disk")]
    lowest, highest = bounds.get("min", {}), bounds.get("max", {})
    for key, value, failure in values:
        if value is not None and not lowest.get(key, 0) <= value <= highest.get(key, value):
            return failure
    return None


def policy_fits(state: State) -> Bools:
    """By instance: whether the policy of its primary's group allows it; those on no node pass."""
    these = state.instances
    fits = np.ones(len(these), dtype=bool)
    there = state.primary >= 0
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
        # What is not known (NaN) passes.
        outside = (least < low) | (most > high)
        within &= ~outside | (diskless & key.startswith("disk"))
    return within
