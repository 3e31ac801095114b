"""A backup of a running store as a file of mode 0600; a failed backup leaves no file."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ganeti.base.errors import HostError
from ganeti.base.files import AtomicFile
from ganeti.store.backend import StateBackend
from ganeti.store.interface import Position
from ganeti.store.worker import Worker

SYNC_EVERY_BYTES = 4 << 20
"""Bytes between two syncs: a longer sync would delay other users of the worker."""

T = TypeVar("T")


class BackupFiles:
    """Writes backups of one store; blocking calls run on a worker, so the loop is not blocked."""

    def __init__(
        self,
        store: StateBackend,
        worker: Worker,
        *,
        make: Callable[[Path], AtomicFile] = AtomicFile,
    ) -> None:
        self._store = store
        self._worker = worker
        self._make = make
        self._writing = asyncio.Lock()

    async def write(self, path: Path) -> Position:
        """Write one consistent snapshot to `path`, replacing a file there at the end; return its position.

        HostError if the file cannot be written, StoreError if the state cannot be read. After an
        error or a cancellation the old file is unchanged.
        """
        async with self._writing:
            sink = _Sink(path, self._worker, self._make)
            try:
                await sink.open()
                position = await self._store.backup(sink)
                await sink.keep()
            except OSError as err:
                raise HostError(f"cannot write {path}: {err.strerror or err}") from err
            finally:
                await asyncio.shield(sink.discard())
            return position


class _Sink:
    """The `ByteSink` of one file."""

    def __init__(self, path: Path, worker: Worker, make: Callable[[Path], AtomicFile]) -> None:
        self._path, self._worker, self._make = path, worker, make
        self._file: AtomicFile | None = None
        self._unsynced = 0

    async def open(self) -> None:
        def made() -> None:
            self._file = self._make(self._path)

        await self._worker.call(made)

    async def write(self, data: bytes) -> None:
        await self._on_file(lambda file: self._write(file, data))

    async def keep(self) -> None:
        await self._on_file(lambda file: file.keep())

    async def discard(self) -> None:
        """Remove the partial file of a failed backup."""
        await self._on_file(lambda file: file.discard())

    def _write(self, file: AtomicFile, data: bytes) -> None:
        file.write(data)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_EVERY_BYTES:
            file.sync()
            self._unsynced = 0

    async def _on_file(self, act: Callable[[AtomicFile], T]) -> None:
        def task() -> None:
            if self._file is not None:
                act(self._file)

        await self._worker.call(task)
