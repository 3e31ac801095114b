"""Durations of calls to nodes, as counts by duration."""

from bisect import bisect_left
from dataclasses import dataclass, field

BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


@dataclass
class Timing:
    """The durations of one procedure; `counts` has one more entry than BOUNDS_S, for longer calls."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0
    failed: int = 0

    def add(self, taken_s: float, *, failed: bool) -> None:
        """Record the end of one call."""
        self.counts[bisect_left(BOUNDS_S, taken_s)] += 1
        self.total_s += taken_s
        self.failed += failed

    def shown(self) -> dict[str, object]:
        """Return the figures as plain values."""
        return {
            "bounds_s": list(BOUNDS_S),
            "counts": list(self.counts),
            "total_s": round(self.total_s, 6),
            "failed": self.failed,
        }
