"""Waits for a job to change, by subscription instead of polling (S192, S196)."""

import asyncio
from collections.abc import Callable

LOG_INTERVAL_S = 0.1
"""Minimum interval between releases of log lines to waiting clients.

Changes of the state are released at once.
"""


class Watch:
    """The clients that wait for one job, and the log lines that they may see already."""

    __slots__ = ("_job_id", "_next_release", "_timer", "_waiters", "observer", "said", "visible")

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self.said = 0
        """The serial of the last log line."""
        self.visible = 0
        """The serial of the last log line that was released to waiting clients."""
        self._waiters: set[asyncio.Future[None]] | None = None
        self._next_release = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.observer: Callable[[int], None] | None = None
        """Gets the job's number at each change of the state."""

    def changed(self) -> None:
        """Handle a change of the job's state: all waiting clients wake at once."""
        self.visible = self.said
        if self.observer is not None:
            self.observer(self._job_id)
        self._wake()

    def moved(self) -> None:
        """Handle progress: only the observer is notified."""
        if self.observer is not None:
            self.observer(self._job_id)

    def log_grew(self, serial: int) -> None:
        """Handle a new log line, which is released with others within the interval."""
        self.said = serial
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_release:
            self._release()
        else:
            self._timer = loop.call_at(self._next_release, self._release)

    async def wait(self, deadline: float) -> bool:
        """Wait for a change; return False at `deadline` (of the loop's time)."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(deadline, _end, woken)
        waiters = self._waiters = self._waiters or set()
        waiters.add(woken)
        try:
            await woken
        finally:
            timer.cancel()
            waiters.discard(woken)
        return loop.time() < deadline

    def count(self) -> int:
        """Return the number of waiting clients."""
        return len(self._waiters or ())

    def close(self) -> None:
        """Wake all waiting clients, and cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def _release(self) -> None:
        self._timer = None
        self._next_release = asyncio.get_running_loop().time() + LOG_INTERVAL_S
        self.visible = self.said
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            _end(waiter)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
