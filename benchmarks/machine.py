"""Figures about the machine itself, so that measurements of different days can be compared."""

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

SYNCS = 20
BLOCK = bytes(4096)
SPINS = 1_000_000
REPEATS = 3
USUAL_SPIN_MS = 32.0
"""`spin_ms` of the quiet machine for which the project states its aims."""


def sync_ms(directory: Path) -> float:
    """Milliseconds of one 4 KiB append and sync on the disk of `directory` (median of some)."""
    path = directory / "sync-probe"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        taken = []
        for _ in range(SYNCS):
            begun = time.perf_counter()
            os.write(descriptor, BLOCK)
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        path.unlink()
    return round(statistics.median(taken) * 1000, 3)


def spin_ms() -> float:
    """Milliseconds of a fixed loop of this Python (the best of some)."""
    return round(min(_spin_s() for _ in range(REPEATS)) * 1000, 1)


def _spin_s() -> float:
    begun = time.perf_counter()
    total = 0
    for number in range(SPINS):
        total += number & 7
    return time.perf_counter() - begun


@dataclass
class Speed:
    """The speed of the machine during a measurement: that of a shared machine changes from second to second."""

    samples_s: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Run the loop once."""
        self.samples_s.append(_spin_s())

    @property
    def mean_spin_ms(self) -> float:
        """Milliseconds of one run of the loop, the mean of all samples."""
        return round(statistics.mean(self.samples_s) * 1000, 1)

    def at_usual_speed(self, seconds: float) -> float:
        """Convert a measured time to that of a machine with `USUAL_SPIN_MS`; in seconds."""
        return round(seconds * USUAL_SPIN_MS / self.mean_spin_ms, 2)
