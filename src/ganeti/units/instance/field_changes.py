"""One change of an instance, its report, and the time at which the running guest gets it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ganeti.model.applies import Applies

BACKEND, HYPERVISOR = "be", "hv"
_PARAMETERS = frozenset((BACKEND, HYPERVISOR))
"""Kinds of changes that are not changes of devices."""


@dataclass(frozen=True)
class FieldChange:
    """One change. Clients know it as `kind/name`, as `be/vcpus` or `nic.mac/0`, or as `kind` alone."""

    kind: str
    name: str
    value: Any
    applies: Applies

    @property
    def label(self) -> str:
        """The name that clients use."""
        return f"{self.kind}/{self.name}" if self.name else self.kind


def waiting(
    changes: Iterable[FieldChange], *, has_devices: bool, at_once: Collection[str]
) -> tuple[str, ...]:
    """Return the labels of changes that a running guest gets at its next start.

    With `has_devices` it gets its disks and NICs at once. `at_once` are the labels of parameters that it gets at once.
    """
    return tuple(
        dict.fromkeys(
            one.label
            for one in changes
            if one.applies is not Applies.NOW
            and one.label not in at_once
            and not (
                has_devices and one.applies is Applies.BY_HOTPLUG and one.kind not in _PARAMETERS
            )
        )
    )
