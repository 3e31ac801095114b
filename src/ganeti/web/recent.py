"""Cache of recent answers that are still valid."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

ANSWERS_LIMIT = 64
ANSWERS_BYTES = 64 * 1024 * 1024
AGE_S = 1.0
"""Seconds for which live data is valid, as for the master's own clients (`query/live.py`)."""


class RecentAnswers:
    """Encoded answers by request, valid for one state of the master and one second."""

    def __init__(self) -> None:
        self._asking: dict[Any, asyncio.Task[bytes]] = {}
        self._kept: OrderedDict[Any, tuple[float, Any, bytes]] = OrderedDict()
        self._bytes = 0

    async def answer(
        self, asked: Any, state: Any, now: float, make: Callable[[], Coroutine[Any, Any, bytes]]
    ) -> bytes:
        """Return a stored answer, or the result of `make`, which runs once for simultaneous requests."""
        answer = self.get(asked, state, now)
        if answer is not None:
            return answer
        key = (asked, state)
        if key not in self._asking:
            task = asyncio.create_task(make(), name="shared answer")
            task.add_done_callback(lambda done: self._forget(key, done))
            self._asking[key] = task
        # A client that hangs up must not cancel the request of the other clients.
        answer = await asyncio.shield(self._asking[key])
        self.put(asked, state, now, answer)
        return answer

    def _forget(self, key: Any, done: asyncio.Task[bytes]) -> None:
        del self._asking[key]
        if not done.cancelled():
            done.exception()  # Marks a failure as seen: all clients may have hung up.

    def get(self, asked: Any, state: Any, now: float) -> bytes | None:
        """Return an answer of the same state whose request is at most AGE_S old."""
        found = self._kept.get(asked)
        if found is None or found[1] != state or now - found[0] > AGE_S:
            return None
        return found[2]

    def put(self, asked: Any, state: Any, begun: float, answer: bytes) -> None:
        """Store an answer; `begun` is the time of its request."""
        old = self._kept.pop(asked, None)
        self._bytes += len(answer) - (len(old[2]) if old else 0)
        self._kept[asked] = (begun, state, answer)
        while self._kept and (len(self._kept) > ANSWERS_LIMIT or self._bytes > ANSWERS_BYTES):
            _, (_, _, gone) = self._kept.popitem(last=False)
            self._bytes -= len(gone)
