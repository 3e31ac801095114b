"""Time as an interface: only its implementation asks the operating system for the time."""

import time
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """Wall time for people and records, monotonic time for deadlines (R14)."""

    def time(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment; never decreases."""
        ...


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Do not call it."""
        ...


class TimerClock(Clock, Protocol):
    """A clock that calls back."""

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call back from the running loop when the monotonic time has advanced so far."""
        ...


class SystemClock:
    """The clock of this machine."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        import asyncio  # noqa: PLC0415 - commands start faster without it

        return asyncio.get_running_loop().call_later(delay_s, callback, *args)


class BootClock(SystemClock):
    """The clock of this machine, whose monotonic time goes on while the machine sleeps."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
