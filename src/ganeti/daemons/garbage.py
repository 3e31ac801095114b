"""Keeps Python's collector of cycles from blocking the loop of a program with many objects.

A collection looks at all objects that it has not been told to leave alone, and a master with 10,000
jobs has half a million: 0.2 s, again and again. So what has survived one is left alone afterwards,
and each collection looks only at what is new. What becomes garbage in cycles after that is found by a
sweep of everything: where a mastership has ended, and otherwise once in an hour at most.

CPython cannot sweep a part: what was set aside comes back as a whole, and is looked at in one go. So a
sweep waits until the program has nothing to do, when hardly anybody can be kept waiting by it.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

_log = logging.getLogger(__name__)

THRESHOLDS = 1000, 5, 2
"""`gc` thresholds of the three generations; a pass over generation 2 takes about 5 ms."""
OLDEST = 2
SWEEP_EVERY_S = 3600.0
GROWTH = 2.0
"""A sweep waits until there are this many times the objects that the last one left."""
LOOK_EVERY_S = 1.0
IDLE_SHARE = 0.05
"""A program that used a smaller share of a processor since the last look counts as idle."""
LONGEST_WAIT_S = 3600.0
"""After this time memory is worth more than a short delay."""


class GcPolicy:
    """Sets old objects aside, from `start` to `stop`; one for a process."""

    def __init__(self, used_s: Callable[[], float] = time.process_time) -> None:
        self._used_s = used_s
        """Processor time of this program so far."""
        self._previous: tuple[int, int, int] = gc.get_threshold()
        self._left = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; what there is now is set aside."""
        self._previous = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._sweep()
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="gc-policy")

    async def stop(self) -> None:
        """Leave the collector as it was."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        gc.callbacks.remove(self._collected)
        gc.unfreeze()
        gc.set_threshold(*self._previous)

    def sweep(self) -> None:
        """Look at everything once: some 0.2 s for half a million objects."""
        begun = time.perf_counter()
        found = self._sweep()
        took_ms = (time.perf_counter() - begun) * 1000
        _log.info("of %d objects %d were garbage; %.0f ms", self._left + found, found, took_ms)

    def _sweep(self) -> int:
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._left = gc.get_freeze_count()
        return found

    def _collected(self, phase: Literal["start", "stop"], info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == OLDEST:
            gc.freeze()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            if gc.get_freeze_count() > self._left * GROWTH:
                await self._idle()
                self.sweep()

    async def _idle(self) -> None:
        """Wait for a moment in which nothing is to be done, but not for ever."""
        for _ in range(int(LONGEST_WAIT_S / LOOK_EVERY_S)):
            before = self._used_s()
            await asyncio.sleep(LOOK_EVERY_S)
            if self._used_s() - before < IDLE_SHARE * LOOK_EVERY_S:
                return
