"""The file that tells the watcher to rest, as other tools of Ganeti know it."""

import asyncio
from pathlib import Path

from ganeti.base.clock import Clock
from ganeti.base.files import write_atomically


class WatcherPauseFile:
    """`watcher.pause`: seconds since the epoch, as text; a time that is over counts as none."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def until(self) -> float | None:
        """When the rest ends; None if there is none."""
        try:
            end = float(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return end if end > self._clock.time() else None

    async def set(self, until: float | None) -> None:
        """Pause until a time, or (None) continue now."""
        if until is None:
            self._path.unlink(missing_ok=True)
        else:
            text = f"{until:.0f}\n".encode()
            await asyncio.to_thread(write_atomically, self._path, text, mode=0o640)
