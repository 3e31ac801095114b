"""Failed logins cost their address time: 0.1 s, then twice as much each time, up to 2 s."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

FIRST_S = 0.1
LONGEST_S = 2.0
FORGET_S = 60.0
ADDRESSES_LIMIT = 10_000


class LoginDelays:
    """Who has failed lately, by address."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failed: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """When it failed last, and how long it waits the next time."""

    async def wait(self, address: str) -> None:
        """Wait if guesses come from this address; the right password does not help to guess faster."""
        failed = self._failed.get(address)
        if failed is not None and (left := failed[0] + failed[1] - self._now()) > 0:
            await asyncio.sleep(left)

    async def failed(self, address: str) -> None:
        """A guess was wrong."""
        moment, delay_s = self._failed.pop(address, (0.0, 0.0))
        now = self._now()
        again_s = min(delay_s * 2, LONGEST_S) if delay_s and now - moment < FORGET_S else FIRST_S
        self._failed[address] = (now, again_s)
        if len(self._failed) > ADDRESSES_LIMIT:
            self._failed.popitem(last=False)
        await asyncio.sleep(again_s)

    def succeeded(self, address: str) -> None:
        """Somebody knew the password."""
        self._failed.pop(address, None)
