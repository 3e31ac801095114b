"""Keeps the event loop responsive during long work."""

import asyncio

MOST_ROUNDS = 100
"""For rounds of less than 0.1 ms."""


class YieldEvery:
    """Awaited in each round of a long loop: yields to the event loop every `most_rounds` rounds.

    It counts and reads no clock, so that a seeded history takes the same course again.
    """

    def __init__(self, most_rounds: int = MOST_ROUNDS) -> None:
        self._most_rounds = most_rounds
        self._rounds = 0

    async def __call__(self) -> None:
        self._rounds += 1
        if self._rounds >= self._most_rounds:
            self._rounds = 0
            await asyncio.sleep(0)
