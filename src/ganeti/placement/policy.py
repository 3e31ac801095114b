"""Instance policies: the sizes that a node group allows."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ganeti.placement.description import Failure, Instance, Policy


class InstanceSize(msgspec.Struct, frozen=True):
    """The quantities that an instance policy limits; sizes in MiB."""

    memory: int
    vcpus: int
    disks: tuple[int, ...]
    nics: int
    disk_template: str
    spindle_use: int = 1


def policy_violations(policy: Mapping[str, Any], size: InstanceSize) -> list[str]:
    """Return the violations of a policy by an instance's size, a sentence each (S235).

    The size must lie within one of the policy's ranges; a limit that a range does not name does not apply.
    """
    wrong = []
    templates = policy.get("disk-templates")
    if templates is not None and size.disk_template not in templates:
        wrong.append(f"disk template {size.disk_template} is not allowed by the instance policy")
    reasons = []
    for bounds in policy.get("minmax", ()):
        outside = _outside(bounds, size)
        if not outside:
            return wrong
        reasons.append(", ".join(outside))
    return wrong + ([" or ".join(reasons)] if reasons else [])


def _outside(bounds: Mapping[str, Mapping[str, int]], size: InstanceSize) -> list[str]:
    values = [
        ("memory-size", size.memory),
        ("cpu-count", size.vcpus),
        ("disk-count", len(size.disks)),
        ("nic-count", size.nics),
        ("spindle-use", size.spindle_use),
        *(("disk-size", disk) for disk in size.disks),
    ]
    lowest, highest = bounds.get("min", {}), bounds.get("max", {})
    return [
        f"{key} {value} is not between {lowest.get(key, 0)} and {highest.get(key, 'any')}"
        for key, value in values
        if not lowest.get(key, 0) <= value <= highest.get(key, value)
    ]


def policy_failure(policy: Policy, one: Instance, *, exclusive: bool = False) -> Failure | None:
    """Return the first limit of a group's policy that an instance breaks, in upstream's order, or None.

    With exclusive storage the disks' spindles, which must be known, count instead of the instance's share. Interfaces
    are not counted here; the creation of an instance counts them (`policy_violations`).
    """
    failures: list[Failure] = []
    for bounds in policy.get("minmax", ()):
        failure = _first_outside(bounds, one, exclusive=exclusive)
        if failure is None:
            failures = []
            break
        failures.append(failure)
    if failures:
        return failures[0]
    return None if one.template in policy.get("disk-templates", (one.template,)) else Failure.DISK


def _first_outside(
    bounds: Mapping[str, Mapping[str, float]], one: Instance, *, exclusive: bool
) -> Failure | None:
    """Return the first value that is too small, else the first that is too large."""
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
        if value is None or value < lowest.get(key, 0):
            return failure
    for key, value, failure in values:
        if value is not None and value > highest.get(key, value):
            return failure
    return None
