"""Wakes many waiters in order, a few in each iteration of the event loop.

A batch of commits may have a thousand transactions, because many clients may submit at the same
moment. Each waiter runs for a part of a millisecond. Waking all in one turn would block the loop
for too long.
"""

import asyncio
from collections import deque
from typing import Any

A_TURN = 12


class StaggeredWaker:
    """Gives futures their results, a limited number at each turn of the loop."""

    def __init__(self, a_turn: int = A_TURN) -> None:
        self._a_turn = a_turn
        self._ready: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._at_once = 0

    def resolve(self, future: asyncio.Future[Any], result: Any) -> None:
        """Give `future` its result, at once or in a later turn, in the order of the calls.

        Finished ones are skipped.
        """
        if self.may_continue():
            if not future.done():
                future.set_result(result)
            return
        self._ready.append((future, result))
        if len(self._ready) == 1:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def may_continue(self) -> bool:
        """Return whether the caller may continue in this turn of the loop, in which few have continued.

        Callers of several quiet turns are counted together until they fill half a turn: counting each turn by
        itself costs another turn.
        """
        if self._ready or self._at_once >= self._a_turn:
            return False
        self._at_once += 1
        if self._at_once == max(1, self._a_turn // 2):
            asyncio.get_running_loop().call_soon(self._restart)
        return True

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        if self.may_continue():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.resolve(future, None)
        await future

    def _restart(self) -> None:
        self._at_once = 0

    def _wake_some(self) -> None:
        for _ in range(min(self._a_turn, len(self._ready))):
            future, result = self._ready.popleft()
            if not future.done():
                future.set_result(result)
        if self._ready:
            asyncio.get_running_loop().call_soon(self._wake_some)
