"""The file that pauses the watcher, in the format of other Ganeti tools."""

import asyncio
from pathlib import Path

from ganeti.base.clock import Clock
from ganeti.base.files import write_atomically


class WatcherPauseFile:
    """`watcher.pause`: seconds since the epoch, as text; a past time is ignored."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def until(self) -> float | None:
        """Return the end of the pause; None without one."""
        try:
            end = float(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return end if end > self._clock.time() else None

    async def set(self, until: float | None) -> None:
        """Pause until a time, or (None) end the pause."""
        if until is None:
            self._path.unlink(missing_ok=True)
        else:
            text = f"{until:.0f}\n".encode()
            await asyncio.to_thread(write_atomically, self._path, text, mode=0o640)
