"""The history files of a node. All methods block, and are called by one thread at a time.

Nothing is synced: after a power cut the last half minute is missing. A file that is damaged, too short, of another
version or not a regular file is replaced by an empty one.
"""

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ganeti.history import format as form
from ganeti.history.format import FILE_BYTES, Row
from ganeti.model.figures import RINGS, Ring, Values

FILES_LIMIT = 1024
"""Files of one node, which have 335 KiB each."""
NODE = "node"
"""The name of the node's own file; those of guests have the UUIDs of their instances."""
_NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,35}", re.ASCII)
_NEW = ".new"

log = logging.getLogger(__name__)


class HistoryFile:
    """The open file of one object."""

    def __init__(self, path: Path, now: float) -> None:
        """Open the file, or begin it again; OSError."""
        self._path = path
        found = _opened(path, os.O_RDWR)
        self._descriptor = _begun(path) if found is None else found
        try:
            whole = os.pread(
                self._descriptor, RINGS[0].slots * form.SLOT_BYTES, form.offset(RINGS[0], 0)
            )
        except BaseException:
            self.close()
            raise
        self._last: float | None = form.newest(whole, now)
        """The time of the last recorded values."""

    @property
    def is_gone(self) -> bool:
        """Return whether the file has lost its name."""
        return os.fstat(self._descriptor).st_nlink == 0

    def record(self, now: float, values: Values) -> None:
        """Record the values of the present step, and the means of the coarser steps that have ended; OSError."""
        if self._last is not None:
            for one in form.due(self._last, now):
                found = [row.values for row in self.read(one.finer, one.first, one.last)]
                if found:
                    self._write(one.ring, one.number, form.mean(found))
        self._write(RINGS[0], int(now // RINGS[0].step), values)
        self._last = now

    def read(self, ring: Ring, first: int, last: int) -> Iterator[Row]:
        """Return the known steps among these; OSError."""
        return _read(self._descriptor, ring, first, last)

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, ring: Ring, number: int, values: Values) -> None:
        os.pwrite(self._descriptor, form.slot(number, values), form.offset(ring, number))


class Histories:
    """The history files of a node in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, HistoryFile] = {}

    def record(self, now: float, found: Mapping[str, Values]) -> None:
        """Record the values of objects by name, and close the files of all others.

        OSError for the first file that could not be written, after all others.
        """
        for name in self._open.keys() - found.keys():
            self._open.pop(name).close()
        if not found or not 0 <= now < form.END_S:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        failed: list[OSError] = []
        for name, values in found.items():
            try:
                file = self._file(name, now)
                if file is not None:
                    file.record(now, values)
            except OSError as err:
                failed.append(err)
        if failed:
            raise failed[0]

    def _file(self, name: str, now: float) -> HistoryFile | None:
        file = self._open.get(name)
        if file is not None and file.is_gone:
            self._open.pop(name).close()
            file = None
        if file is None and len(self._open) < FILES_LIMIT:
            file = self._open[name] = HistoryFile(self._path(name), now)
        return file

    def read(self, name: str, ring: Ring, start: float, end: float) -> list[Row]:
        """Return the known steps from `start` to `end`, without changing the file; none without a valid file."""
        descriptor = _opened(self._path(name), os.O_RDONLY)
        if descriptor is None:
            return []
        try:
            first, last = int(start // ring.step), int(end // ring.step)
            return [row for row in _read(descriptor, ring, first, last) if start <= row.time <= end]
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        """Return whether an object has a file."""
        return is_name(name) and self._path(name).exists()

    def forget(self, name: str) -> None:
        """Remove the file of an object; no-op if there is none."""
        if name in self._open:
            self._open.pop(name).close()
        self._path(name).unlink(missing_ok=True)

    def prune(self, now: float) -> None:
        """Remove files that were not written for as long as a history lasts, and rests of interrupted writes."""
        found = sorted(self._directory.iterdir()) if self._directory.is_dir() else []
        for path in found:
            with contextlib.suppress(OSError):
                too_old = path.lstat().st_mtime < now - RINGS[-1].lasts_s
                if path.name not in self._open and (too_old or path.suffix == _NEW):
                    path.unlink()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _path(self, name: str) -> Path:
        if not is_name(name):
            raise ValueError(f"{name!r:.60} is not the name of a history")
        return self._directory / name


def is_name(name: str) -> bool:
    """Return whether an object with this name can have a history."""
    return _NAME.fullmatch(name) is not None


def _opened(path: Path, flags: int) -> int | None:
    """Open the file if it is whole; None if there is none, or it is not a history of this object."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as err:
        if not isinstance(err, FileNotFoundError):
            log.warning("the history %s cannot be opened: %s", path, err.strerror)
        return None
    state = os.fstat(descriptor)
    is_whole = stat.S_ISREG(state.st_mode) and state.st_size == FILE_BYTES
    if is_whole and os.pread(descriptor, form.HEADER_BYTES, 0) == form.header(path.name):
        return descriptor
    os.close(descriptor)
    log.warning("the history %s is damaged, or of another version", path)
    return None


def _begun(path: Path) -> int:
    """Return an empty file with this name, which replaces another one at once; OSError."""
    new = path.with_name(path.name + _NEW)
    new.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600)
    try:
        os.ftruncate(descriptor, FILE_BYTES)
        os.pwrite(descriptor, form.header(path.name), 0)
        new.replace(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read(descriptor: int, ring: Ring, first: int, last: int) -> Iterator[Row]:
    for piece in form.pieces(ring, first, last):
        yield from form.rows(ring, piece, os.pread(descriptor, piece.size, piece.offset))
