"""Wakes many waiters in order, a few in each iteration of the event loop.

A batch of commits may have a thousand transactions, as many clients may ask at the same moment, and
each continues for a part of a millisecond when it is its turn. All in one turn would keep everything
else from running for longer than the loop may be blocked.
"""

import asyncio
from collections import deque
from typing import Any

A_TURN = 12


class StaggeredWaker:
    """Gives futures their results, so many at each turn of the loop."""

    def __init__(self, a_turn: int = A_TURN) -> None:
        self._a_turn = a_turn
        self._ready: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._at_once = 0

    def resolve(self, future: asyncio.Future[Any], result: Any) -> None:
        """Give `future` its result, at once or in a later turn, in the order of the calls; one that is done is passed over."""
        if self.goes_on():
            if not future.done():
                future.set_result(result)
            return
        self._ready.append((future, result))
        if len(self._ready) == 1:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def goes_on(self) -> bool:
        """Whether the caller may continue at once, because few have continued in this turn of the loop."""
        if self._ready or self._at_once >= self._a_turn:
            return False
        self._at_once += 1
        if self._at_once == 1:
            asyncio.get_running_loop().call_soon(self._begin_anew)
        return True

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        if self.goes_on():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.resolve(future, None)
        await future

    def _begin_anew(self) -> None:
        self._at_once = 0

    def _wake_some(self) -> None:
        for _ in range(min(self._a_turn, len(self._ready))):
            future, result = self._ready.popleft()
            if not future.done():
                future.set_result(result)
        if self._ready:
            asyncio.get_running_loop().call_soon(self._wake_some)
