"""One change of an instance, its report, and the time at which the running guest gets it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ganeti.model.applies import Applies

HYPERVISOR = "hv"


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
    changes: Iterable[FieldChange], *, is_hot: bool, media: Collection[str]
) -> tuple[str, ...]:
    """Return the labels of changes that a running guest gets at its next start.

    `media` are CD drives changed at once.
    """
    late = {Applies.AT_START} if is_hot else {Applies.AT_START, Applies.BY_HOTPLUG}
    return tuple(
        dict.fromkeys(
            one.label
            for one in changes
            if one.applies in late and not (one.kind == HYPERVISOR and one.name in media)
        )
    )
