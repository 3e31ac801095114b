"""Time as an interface: only its implementation asks the operating system for the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for people and records, monotonic time for deadlines (R14)."""

    def time(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment; never decreases."""
        ...


class SystemClock:
    """The clock of this machine."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class BootClock(SystemClock):
    """The clock of this machine, whose monotonic time goes on while the machine sleeps."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
