"""What a driver offers whose guests are on real networks."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ganeti.model.instance_spec import NicSpec


@runtime_checkable
class ChecksNics(Protocol):
    """A driver that can say beforehand whether it could connect network interfaces on this node."""

    async def wrong_nics(self, nics: Sequence[NicSpec]) -> list[str]:
        """What keeps them from being connected here, a sentence each; empty if nothing."""
        ...
