"""Wait for a job to change, by subscription instead of polling (S192, S196)."""

import asyncio
from collections.abc import Callable

LOG_INTERVAL_S = 0.1
"""Log lines reach those who wait at most this often; changes of the state at once."""


class Watch:
    """Who waits for one job, and which of its log lines they may see already."""

    __slots__ = ("_job_id", "_next_release", "_timer", "_waiters", "observer", "said", "visible")

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self.said = 0
        """The serial of the last log line."""
        self.visible = 0
        """The serial of the last log line that was released to those who wait."""
        self._waiters: set[asyncio.Future[None]] | None = None
        self._next_release = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.observer: Callable[[int], None] | None = None
        """Gets the job's number at each change of the state."""

    def changed(self) -> None:
        """The job's state changed: everybody is woken at once."""
        self.visible = self.said
        if self.observer is not None:
            self.observer(self._job_id)
        self._wake()

    def log_grew(self, serial: int) -> None:
        """There is a new log line; it is released with others that come within the interval."""
        self.said = serial
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_release:
            self._release()
        else:
            self._timer = loop.call_at(self._next_release, self._release)

    async def wait(self, deadline: float) -> bool:
        """Sleep until something changes; False at `deadline` (of the loop's time)."""
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
        """How many wait."""
        return len(self._waiters or ())

    def close(self) -> None:
        """Wake everybody, and let no timer be left behind."""
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
