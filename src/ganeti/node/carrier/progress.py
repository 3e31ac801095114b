"""The progress of a program of the node: a file beside its order, which the node daemon reads."""

import time
from pathlib import Path

from ganeti.model import wire
from ganeti.model.progress import Progress

WRITE_EVERY_S = 1.0


class ProgressFile:
    """Written by the program, at most once a second.

    Positions are bytes of the disk, `total` is 0 if unknown.
    """

    def __init__(self, order: Path, total: int = 0) -> None:
        self._order, self._total, self._written = order, total, 0.0

    def at(self, done: int) -> None:
        """Record that the program has reached this position."""
        self.of_part("", done, self._total)

    def of_part(self, part: str, done: int, total: int, *, is_time: bool = False) -> None:
        """Record a position within one of several parts; with `is_time` in seconds."""
        now = time.monotonic()
        if now - self._written >= WRITE_EVERY_S:
            self._written = now
            new = self._order.with_suffix(".progress.new")
            new.write_bytes(
                wire.encode(Progress(done=done, total=total, part=part, is_time=is_time))
            )
            new.replace(self._order.with_suffix(".progress"))


def forget_progress(order: Path) -> None:
    """Remove the files of `ProgressFile`; blocks."""
    for suffix in (".progress", ".progress.new"):
        order.with_suffix(suffix).unlink(missing_ok=True)


def read_progress(order: Path) -> Progress | None:
    """Return the progress of an order's program, None before its start; blocks."""
    try:
        content = order.with_suffix(".progress").read_bytes()
    except FileNotFoundError:
        return None
    return wire.decode(content, Progress, what="progress")
