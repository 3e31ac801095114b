"""A loop whose clock jumps to the next timer: an hour of sleeping takes no time.

For tests without real input or output.  Mark an async test, its class or its module with
`@pytest.mark.virtual_time`, or call `run_virtual(coroutine)` from a plain test (hypothesis).
Work given to `run_in_executor` or `asyncio.to_thread` is waited for in real time, without a jump.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from ganeti.base.clock import Timer

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

# A day in 2024: far from zero, so that wall time and monotonic time cannot be confused.
WALL_START = 1_720_000_000.0


MOST_TURNS = 200_000
"""Turns of the loop at one instant after which no timer will ever be due; real waits would end by a timeout."""


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the loop's clock where the real one would wait."""

    loop: "VirtualTimeLoop"

    def __init__(self) -> None:
        super().__init__()
        self._instant, self._turns = 0.0, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            self._count()
            return super().select(0)
        if timeout is None or self.loop.is_waiting_for_threads:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.loop.now += timeout
        return ready

    def _count(self) -> None:
        if self._instant != self.loop.now:
            self._instant, self._turns = self.loop.now, 0
        self._turns += 1
        if self._turns > MOST_TURNS and not self.loop.is_waiting_for_threads:
            self._turns = 0
            raise RuntimeError(
                f"time stands still at {self.loop.now:g} s: a task repeats itself without a wait"
            )


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For tests that do no real I/O; starts at 0 seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._threads_at_work = 0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    @property
    def is_waiting_for_threads(self) -> bool:
        return self._threads_at_work > 0

    def time(self) -> float:
        return self.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        work = super().run_in_executor(executor, func, *args)
        self.thread_begins()
        work.add_done_callback(lambda _work: self.thread_is_done())
        return work

    def thread_begins(self) -> None:
        """Keep the clock still until `thread_is_done` is called as often, on the loop."""
        self._threads_at_work += 1

    def thread_is_done(self) -> None:
        """End the effect of one `thread_begins`."""
        self._threads_at_work -= 1

    async def shutdown_default_executor(self, *args: float | None) -> None:
        # From Python 3.12 on it has a deadline, to which the clock must not jump.
        self.thread_begins()
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self.thread_is_done()


class LoopClock:
    """The product's `Clock` on the time of one loop; wall time starts at `WALL_START`."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()

    def time(self) -> float:
        return WALL_START + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)
