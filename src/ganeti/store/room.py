"""Space on the state's disk that is kept for when it is full."""

import logging
import os
from pathlib import Path

from ganeti.store.worker import Worker

ROOM_BYTES = 1 << 20
"""Enough for the transactions of hundreds of cancelled and archived jobs."""

_log = logging.getLogger(__name__)


class RoomFile:
    """A file that only takes space; given up by removing it."""

    def __init__(self, path: Path, worker: Worker, size: int = ROOM_BYTES) -> None:
        self._path = path
        self._worker = worker
        self._size = size

    async def give(self) -> bool:
        """Remove the file; False if there was none."""
        return await self._worker.call(self._remove)

    async def keep(self) -> bool:
        """Make the file; False if the disk has not that much space."""
        return await self._worker.call(self._make)

    def _remove(self) -> bool:
        try:
            self._path.unlink()
        except OSError as err:
            _log.info("there is no room to give up: %s", err)
            return False
        return True

    def _make(self) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            except OSError:
                self._path.unlink()
                raise
            finally:
                os.close(descriptor)
        except OSError as err:
            _log.info("no room is kept on the disk of the state: %s", err)
            return False
        return True
