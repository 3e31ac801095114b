"""Two figures about the machine itself, so that measurements of different days can be compared."""

import os
import statistics
import time
from pathlib import Path

SYNCS = 20
BLOCK = bytes(4096)
SPINS = 1_000_000
REPEATS = 3


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
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        total = 0
        for number in range(SPINS):
            total += number & 7
        taken.append(time.perf_counter() - begun)
    return round(min(taken) * 1000, 1)
