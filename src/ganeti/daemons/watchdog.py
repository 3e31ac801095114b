"""Notices when the loop is blocked, and names what blocked it (architecture.md, section 5).

A timer of the operating system is pushed back at each turn of a short task. If it ever fires, the
task was not run for longer than the limit; the signal's handler then sees the blocking code itself.
"""

import asyncio
import logging
import signal
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import Any

_log = logging.getLogger(__name__)

LIMIT_S = 0.05
TICK_S = 0.025


@dataclass(frozen=True)
class WatchdogStatistics:
    """How often the loop was blocked, and what did it last."""

    blocked: int
    last_culprit: str
    longest_ms: float
    """The longest of these blocks, from the last turn of the loop to the next one."""


class LoopWatchdog:
    """Watches the running loop; only in the main thread of a process, one at a time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._task: asyncio.Task[None] | None = None
        self._previous: Any = signal.SIG_DFL
        self._blocked = 0
        self._last_culprit = ""
        self._longest_ms = 0.0
        self._is_blocked = False

    def start(self) -> None:
        """Begin to watch."""
        self._previous = signal.signal(signal.SIGALRM, self._fired)
        # System calls that the timer interrupts are begun again.
        signal.siginterrupt(signal.SIGALRM, False)
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="loop-watchdog")

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def statistics(self) -> WatchdogStatistics:
        """What was seen since the start."""
        return WatchdogStatistics(self._blocked, self._last_culprit, self._longest_ms)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                begun = loop.time()
                signal.setitimer(signal.ITIMER_REAL, TICK_S + self._limit_s)
                await asyncio.sleep(TICK_S)
                if self._is_blocked:
                    self._is_blocked = False
                    self._went_on((loop.time() - begun - TICK_S) * 1000)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._previous)

    def _went_on(self, took_ms: float) -> None:
        self._longest_ms = max(self._longest_ms, took_ms)
        _log.warning("the loop goes on after it was blocked for %.0f ms", took_ms)

    def _fired(self, _number: int, frame: FrameType | None) -> None:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return
        if task is None and frame is not None and "selectors" in frame.f_code.co_filename:
            return  # it waits for events: the machine was too busy to run us, we were not
        self._blocked += 1
        self._is_blocked = True
        stack = traceback.extract_stack(frame, limit=4) if frame else []
        where = " < ".join(
            f"{entry.name} ({entry.filename}:{entry.lineno})" for entry in reversed(stack)
        )
        name = task.get_name() if task else "a callback"
        self._last_culprit = f"{name}: {where}"
        _log.warning(
            "the loop was blocked for more than %.0f ms by %s",
            self._limit_s * 1000,
            self._last_culprit,
        )
