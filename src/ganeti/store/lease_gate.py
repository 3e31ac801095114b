"""What a master does outside of its process it does only while its lease certainly lasts (R9).

Other nodes elect another master once the lease has run out, and the old one may not know it yet. So answers to
clients and changing calls to nodes wait here until a majority confirms the master again, or its term ends.
"""

import asyncio
from collections.abc import Callable

LOOK_S = 0.01


class LeaseGate:
    """The lease of one epoch."""

    def __init__(self, holds: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        """`holds` is `Fence.holds` of the epoch; `is_over` says that the role has ended."""
        self.holds = holds
        self._is_over = is_over

    async def wait(self) -> bool:
        """Return True once the lease holds, at once where it does; False if the role has ended."""
        while not self.holds():
            if self._is_over():
                return False
            await asyncio.sleep(LOOK_S)
        return True
