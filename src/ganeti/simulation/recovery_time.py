"""The time of leases and heartbeats, which can stand still while nothing happens to them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from ganeti.simulation.virtual_time import LoopClock


class Timer:
    """A callback that is due at a time of `RecoveryTime`; `waiting` has those that are not over."""

    def __init__(self, due: float, call: Callable[[], Any], waiting: dict["Timer", None]) -> None:
        self.due, self._call, self._waiting = due, call, waiting
        self.handle: asyncio.TimerHandle | None = None
        waiting[self] = None

    def call(self) -> None:
        """Call back."""
        del self._waiting[self]
        self._call()

    def cancel(self) -> None:
        """Do not call it."""
        self._waiting.pop(self, None)
        if self.handle is not None:
            self.handle.cancel()


class RecoveryTime(LoopClock):
    """A `Clock` with timers whose monotonic time can be stopped; wall time goes on.

    Heartbeats of healthy nodes repeat the same exchange every second. While it would have the same result, the
    simulation stops this time instead: leases do not end, no heartbeat is due, and all go on from there.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(self._loop)
        self._skipped = 0.0
        self._stopped_at: float | None = None
        self._timers: dict[Timer, None] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still."""
        return self._stopped_at is not None

    def monotonic(self) -> float:
        now = self._loop.time() if self._stopped_at is None else self._stopped_at
        return now - self._skipped

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call back when this time has advanced so far."""
        due = self.monotonic() + max(delay_s, 0.0)
        timer = Timer(due, partial(callback, *args), self._timers)
        if not self.is_stopped:
            self._arm(timer)
        return timer

    def stop(self) -> None:
        """Stand still from now on."""
        if self._stopped_at is None:
            self._stopped_at = self._loop.time()
            for timer in self._timers:
                if timer.handle is not None:
                    timer.handle.cancel()

    def go_on(self) -> None:
        """Advance again."""
        if self._stopped_at is not None:
            self._skipped += self._loop.time() - self._stopped_at
            self._stopped_at = None
            for timer in self._timers:
                self._arm(timer)

    def _arm(self, timer: Timer) -> None:
        timer.handle = self._loop.call_at(timer.due + self._skipped, timer.call)
