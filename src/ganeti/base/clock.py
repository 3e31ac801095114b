"""Time, as a port: nothing else asks the operating system what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for people and records, monotonic time for deadlines (R14)."""

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...


class SystemClock:
    """The clock of this machine."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
