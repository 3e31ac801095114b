"""Reserve space on the state's disk, which is released when the disk is full."""

import ctypes
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from ganeti.store.worker import Worker

ROOM_BYTES = (16 << 20, 4 << 20, 1 << 20)
"""Sizes in order of preference; each 4 MiB suffice for some hundred jobs."""
_KEEP_SIZE = 1
"""The mode of fallocate(2) that reserves space beyond the end of a file without extending it."""
_libc = ctypes.CDLL(None, use_errno=True)

_log = logging.getLogger(__name__)


class RoomFile:
    """A file that only reserves space; removing it releases the space.

    At once, the space is reserved again for the databases `heirs`, so other writers on the full
    disk cannot take it.
    """

    def __init__(
        self,
        path: Path,
        worker: Worker,
        sizes: Sequence[int] = ROOM_BYTES,
        heirs: Sequence[Path] = (),
    ) -> None:
        self._path = path
        self._worker = worker
        self._sizes = sizes
        self._heirs = [Path(f"{path}{part}") for path in heirs for part in ("", "-wal")]

    async def give(self) -> bool:
        """Remove the file; return False if it did not exist."""
        return await self._worker.call(self._remove)

    async def keep(self) -> bool:
        """Create the file; return False if the disk has too little space."""
        return await self._worker.call(self._make)

    def _remove(self) -> bool:
        try:
            size = self._path.stat().st_size
            self._path.unlink()
        except OSError as err:
            _log.info("cannot release the reserved disk space: %s", err)
            return False
        for heir in self._heirs:
            _reserve(heir, size // len(self._heirs))
        return True

    def _make(self) -> bool:
        return any(self._makes(size) for size in self._sizes)

    def _makes(self, size: int) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
            except OSError:
                self._path.unlink()
                raise
            finally:
                os.close(descriptor)
        except OSError as err:
            _log.info("cannot reserve %d bytes on the disk of the state: %s", size, err)
            return False
        return True


def _reserve(path: Path, size: int) -> None:
    """Reserve space into which the file will grow.

    Without support by the file system, the first writer gets it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        end = ctypes.c_int64(os.fstat(descriptor).st_size)
        _libc.fallocate(descriptor, _KEEP_SIZE, end, ctypes.c_int64(size))
    finally:
        os.close(descriptor)
