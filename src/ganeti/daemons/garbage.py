"""A policy that keeps the cyclic garbage collector from blocking the loop of a large program.

A full collection visits every object. A master with 10,000 jobs has half a million objects, and
each full collection takes 0.2 s. So the policy freezes the objects that survived a collection, and
later collections visit only new objects. A sweep of all objects finds later garbage in cycles. A
sweep runs when a mastership has ended, and otherwise at most once an hour.

CPython cannot sweep part of the frozen objects: it unfreezes and visits all of them at once. So a
sweep waits until the program is idle, when it delays hardly any client.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

_log = logging.getLogger(__name__)

THRESHOLDS = 5000, 1, 1_000_000
"""`gc` thresholds of the three generations; a pass over 10,000 objects takes 1 to 3 ms."""
SECOND = 1
"""Objects that survive a pass over this generation are not visited again: they were visited once or twice."""
SWEEP_EVERY_S = 3600.0
GROWTH = 2.0
"""A sweep waits until the number of objects has grown by this factor since the last sweep."""
LOOK_EVERY_S = 1.0
IDLE_SHARE = 0.05
"""A program that used a smaller share of a processor since the last check counts as idle."""
LONGEST_WAIT_S = 3600.0
"""Longest wait for an idle moment, after which a sweep runs anyway to free memory."""


class GcPolicy:
    """A policy for one process, which freezes old objects between `start` and `stop`."""

    def __init__(self, used_s: Callable[[], float] = time.process_time) -> None:
        self._used_s = used_s
        """Processor time that this program has used so far."""
        self._previous: tuple[int, int, int] = gc.get_threshold()
        self._left = 0
        self._is_wanted = asyncio.Event()
        """Set when a sweep is wanted at the next idle moment."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the policy and freeze all present objects; those that are frozen already are not visited."""
        self._previous = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._collect()
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="gc-policy")

    async def stop(self) -> None:
        """Restore the collector's previous settings."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        gc.callbacks.remove(self._collected)
        gc.unfreeze()
        gc.set_threshold(*self._previous)

    def sweep_soon(self) -> None:
        """Let a sweep run at the next idle moment."""
        self._is_wanted.set()

    def _sweep(self) -> None:
        """Visit every object once: some 0.2 s for half a million objects."""
        begun = time.perf_counter()
        gc.unfreeze()
        found = self._collect()
        took_ms = (time.perf_counter() - begun) * 1000
        _log.info("of %d objects %d were garbage; %.0f ms", self._left + found, found, took_ms)

    def _collect(self) -> int:
        found = gc.collect()
        gc.freeze()
        self._left = gc.get_freeze_count()
        return found

    def _collected(self, phase: Literal["start", "stop"], info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] >= SECOND:
            gc.freeze()

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_EVERY_S):
                    await self._is_wanted.wait()
            if self._is_wanted.is_set() or gc.get_freeze_count() > self._left * GROWTH:
                await self._idle()
                self._is_wanted.clear()
                self._sweep()

    async def _idle(self) -> None:
        """Wait for an idle moment, up to a limit."""
        for _ in range(int(LONGEST_WAIT_S / LOOK_EVERY_S)):
            before = self._used_s()
            await asyncio.sleep(LOOK_EVERY_S)
            if self._used_s() - before < IDLE_SHARE * LOOK_EVERY_S:
                return
