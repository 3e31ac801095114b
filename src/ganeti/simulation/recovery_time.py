"""The time of leases and heartbeats, which can stand still while nothing happens to them."""

import asyncio
from collections.abc import Callable
from typing import Any

from ganeti.simulation.virtual_time import LoopClock


class Timer:
    """A callback that is due at a time of `RecoveryTime`."""

    def __init__(self, due: float, call: Callable[[], Any]) -> None:
        self.due, self.call = due, call
        self.handle: asyncio.TimerHandle | None = None
        self.is_over = False

    def cancel(self) -> None:
        """Do not call it."""
        self.is_over = True
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

        def call() -> None:
            timer.is_over = True
            del self._timers[timer]
            callback(*args)

        for over in [one for one in self._timers if one.is_over]:
            del self._timers[over]
        timer = Timer(self.monotonic() + max(delay_s, 0.0), call)
        self._timers[timer] = None
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
                if not timer.is_over:
                    self._arm(timer)

    def _arm(self, timer: Timer) -> None:
        timer.handle = self._loop.call_at(timer.due + self._skipped, timer.call)
