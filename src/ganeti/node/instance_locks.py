"""A lock per instance, so that two calls for one instance do not interleave on a node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class InstanceLocks:
    """Locks by instance name, in order of arrival; kept only while a call holds or awaits them."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def of(self, instance_name: str) -> AsyncIterator[None]:
        """Hold the instance's lock for the block."""
        entry = self._entries.setdefault(instance_name, _Entry())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[instance_name]

    def statistics(self) -> dict[str, int]:
        """Return instance name -> number of calls that hold or await its lock."""
        return {name: entry.users for name, entry in self._entries.items()}
