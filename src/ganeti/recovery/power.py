"""What fences nodes: the port to management controllers that switch them off, and the answers of these and of storage."""

from dataclasses import dataclass
from typing import Protocol

from ganeti.model.objects import NodeUuid


@dataclass(frozen=True, slots=True)
class PowerResult:
    """The outcome of one attempt to switch a node off."""

    is_fenced: bool
    """The controller has confirmed that the power is off."""
    detail: str = ""
    """The device and its answer, without secrets."""


@dataclass(frozen=True, slots=True)
class StorageResult:
    """The outcome of one attempt."""

    instances: tuple[str, ...]
    """By UUID: those to all of whose disks the node cannot write."""
    detail: str
    """What was achieved, and why not for each other instance."""


class Power(Protocol):
    """Switches nodes off."""

    async def cut(self, node: NodeUuid) -> PowerResult:
        """Switch a node off, and return whether its controller confirms that; never raises GanetiError.

        The result arrives within the node parameter `fence_timeout`.
        """
        ...
