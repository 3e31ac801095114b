"""Pictures of screens, each at most every few seconds and a few at a time: thumbnails must not slow guests."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ganeti.base.clock import Clock

FRESH_S = 5.0
KEPT_LIMIT = 32
AT_ONCE = 4


class Screens:
    """The latest pictures."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def picture(self, instance: str, take: Callable[[], Awaitable[str]]) -> str:
        """Return a picture that is at most 5 s old, in base64."""
        async with self._turns:
            now = self._clock.monotonic()
            known = self._kept.get(instance)
            if known is not None and now - known[0] < FRESH_S:
                return known[1]
            picture = await take()
            self._kept[instance] = (now, picture)
            self._kept.move_to_end(instance)
            if len(self._kept) > KEPT_LIMIT:
                self._kept.popitem(last=False)
            return picture
