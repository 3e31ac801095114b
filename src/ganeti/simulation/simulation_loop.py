"""An event loop for time alone: no file, thread or signal can wake it, so each run is the same.

A simulated day has millions of turns, in nearly all of which one timer is due. asyncio's own loop asks a selector in
each, compares its timers in Python, and keeps what its debug mode needs.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

import msgspec

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

MOST_CANCELLED = 1000
"""So many timers that are cancelled may wait for their time, or half of all."""


class _Call(msgspec.Struct, eq=False):
    """A callback that is due: what callers of `call_soon` and `call_at` use of asyncio's handles."""

    loop: "SimulationLoop"
    due: float | None
    """None: in the next turn."""
    callback: Callable[..., object] | None
    """None once it was called or cancelled."""
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        """Do not call back."""
        if self.callback is not None:
            self.callback, self.args = None, ()
            if self.due is not None:
                self.loop.timer_is_cancelled()

    def cancelled(self) -> bool:
        """Return whether it does not call back any more."""
        return self.callback is None

    def when(self) -> float:
        """Return when it is due."""
        return self.loop.now if self.due is None else self.due


class SimulationLoop(asyncio.BaseEventLoop):
    """Starts at 0 seconds, and jumps to the next timer; what is given to a thread is done at once."""

    get_debug = staticmethod(
        bool
    )  # False; each future and task asks, and this is no call of Python

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._soon: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call | asyncio.Future[None]]] = []
        self._numbers = 0
        """Timers of the same time are called in the order of their numbers."""
        self._cancelled = 0
        self._is_stopping = False

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]  # a handle has more, which nothing uses
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call(self, None, callback, args, copy_context() if context is None else context)
        self._soon.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_at(  # type: ignore[override]  # as for call_soon
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Call:
        call = _Call(self, when, callback, args, copy_context() if context is None else context)
        self._numbers += 1
        heappush(self._timers, (when, self._numbers, call))
        return call

    def call_later(  # type: ignore[override]  # as for call_soon
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Call:
        return self.call_at(self.now + delay, callback, *args, context=context)

    @classmethod
    def running(cls) -> "SimulationLoop":
        """Return the loop that runs."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, cls):
            raise TypeError("simulated nodes run in simulated time only")
        return loop

    def after(self, seconds: float) -> asyncio.Future[None]:
        """Return what is done then: `asyncio.sleep` without a callback between the time and the future."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        self._numbers += 1
        heappush(self._timers, (self.now + seconds, self._numbers, future))
        return future

    @property
    def waiting_timers(self) -> int:
        """Return how many timers are kept, cancelled ones among them."""
        return len(self._timers)

    def timer_is_cancelled(self) -> None:
        """Forget cancelled timers once they are many."""
        self._cancelled += 1
        if self._cancelled > max(MOST_CANCELLED, len(self._timers) // 2):
            self._timers[:] = [one for one in self._timers if not one[2].cancelled()]
            heapify(self._timers)
            self._cancelled = 0

    def stop(self) -> None:
        super().stop()
        self._is_stopping = True

    def _run_once(self) -> None:
        """Call back until the loop is stopped; `run_forever` expects one turn, and makes no difference."""
        soon, timers = self._soon, self._timers
        while not self._is_stopping:
            if not soon:
                self._jump()
            if timers and timers[0][0] <= self.now:
                self._wake()
            for _ in range(len(soon)):
                call = soon.popleft()
                callback, call.callback = call.callback, None
                if callback is None:
                    continue
                try:
                    call.context.run(callback, *call.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as err:  # noqa: BLE001 - as asyncio does
                    said = f"Exception in callback {callback!r}"
                    self.call_exception_handler({"message": said, "exception": err})
        self._is_stopping = False

    def _wake(self) -> None:
        """Let what is due now be called in this turn."""
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            due = heappop(timers)[2]
            if isinstance(due, _Call):
                if due.callback is None:
                    self._cancelled -= 1
                else:
                    self._soon.append(due)
            elif not due.done():
                due.set_result(None)

    def _jump(self) -> None:
        """Let the next timer be due."""
        timers = self._timers
        while timers:
            when, _number, due = timers[0]
            if not due.cancelled():
                self.now = max(self.now, when)
                return
            heappop(timers)
            self._cancelled -= isinstance(due, _Call)
        raise RuntimeError("the simulation waits for something that never happens")

    def close(self) -> None:
        super().close()
        self._soon.clear()
        self._timers.clear()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        del executor
        done: asyncio.Future[_T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as err:  # noqa: BLE001 - the caller gets it, as from a thread
            done.set_exception(err)
        return done

    async def shutdown_default_executor(self, *args: float | None) -> None:
        """Do nothing: there are no threads."""
