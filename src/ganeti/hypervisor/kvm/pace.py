"""How fast the disks of a running guest are copied: slower while the guest uses them.

A guest's write waits for the copies of data that keep the processors and the disk busy. So while the guest uses its
disks, the copy gets an eighth of the speed that it has alone. A copy must also come to its end: once all data was
copied and only the latest writes are missing, it is not slowed down any more, and never below 32 MiB/s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_MIB_S = 32
SHARE = 8
USES_PER_S, WINDOW_S = 30, 0.25
"""A guest that makes so many requests a second, over such a time, uses its disks. Every idle system writes now and then."""
_MIB = 1024 * 1024


@dataclass
class Pace:
    """The speed of copies side by side; sizes in bytes, speeds in MiB/s for each copy (0: no limit)."""

    limit: int
    """What the administrator permits."""
    size: int
    """All copies together: what the first pass copies."""
    copies: int = 1
    speed: int = 0
    """The present limit."""
    _at: float | None = None
    _done: int = 0
    _window: tuple[float, int] = (0.0, 0)
    """Where the present window of requests begins: its time, and the requests until then."""
    _is_used: bool = False
    _full: float = 0.0
    """The highest speed so far of all copies together while they were not slowed down."""

    def __post_init__(self) -> None:
        self.speed = self.limit

    def changed(self, now: float, done: int, requests: int) -> bool:
        """Choose the speed at this time (seconds); return whether it is another one.

        `done` is what was copied, and `requests` what the guest has asked of its disks until now.
        """
        if self._at is None:
            self._window = now, requests
        elif now > self._at and self.speed == self.limit:
            self._full = max(self._full, (done - self._done) / _MIB / (now - self._at))
        self._at, self._done = now, done
        began, before_it = self._window
        if now - began >= WINDOW_S:
            self._is_used = (requests - before_it) / (now - began) >= USES_PER_S
            self._window = now, requests
        before, self.speed = self.speed, self.limit
        if self._is_used and self._full and done < self.size:
            slow = max(LEAST_MIB_S, int(self._full / self.copies / SHARE))
            self.speed = min(slow, self.limit) if self.limit else slow
        return self.speed != before


def requests_of(statistics: Sequence[Mapping[str, Any]], devices: set[str]) -> int:
    """Return how many reads and writes these devices have made, by the answer of `query-blockstats`."""
    return sum(
        one["stats"]["rd_operations"] + one["stats"]["wr_operations"]
        for one in statistics
        if devices & set(one.get("qdev", "").split("/"))
    )
