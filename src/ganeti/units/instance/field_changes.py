"""One thing that a change of an instance changes, how it is reported, and when the running guest has it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

HYPERVISOR = "hv"


class Applies(Enum):
    """When the running guest has what was changed."""

    NOW = auto()
    """With the configuration: the guest itself does not know it."""
    BY_HOTPLUG = auto()
    """At once if the guest is changed while it runs, else at its next start."""
    AT_START = auto()


@dataclass(frozen=True)
class FieldChange:
    """One change. Clients know it as `kind/name`, as `be/vcpus` or `nic.mac/0`, or as `kind` alone."""

    kind: str
    name: str
    value: Any
    applies: Applies

    @property
    def label(self) -> str:
        """What clients know it as."""
        return f"{self.kind}/{self.name}" if self.name else self.kind


def waiting(
    changes: Iterable[FieldChange], *, is_hot: bool, media: Collection[str]
) -> tuple[str, ...]:
    """Labels of what a running guest gets at its next start; `media` are CD drives changed at once."""
    late = {Applies.AT_START} if is_hot else {Applies.AT_START, Applies.BY_HOTPLUG}
    return tuple(
        dict.fromkeys(
            one.label
            for one in changes
            if one.applies in late and not (one.kind == HYPERVISOR and one.name in media)
        )
    )
