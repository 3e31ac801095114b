"""The archive of jobs: a second SQLite file, outside snapshots and transactions (F10)."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from ganeti.base.errors import Refused, StoreError
from ganeti.store.database import (
    CannotWriteNow,
    Connect,
    DiskBroken,
    configure,
    connect,
    create_private,
    schema_version,
    transaction,
)
from ganeti.store.encoding import row_checksum
from ganeti.store.worker import Worker

SCHEMA_VERSION = 1
_KIND = "archive"
MOST_IDS = 10_000

T = TypeVar("T")

IdRange = tuple[int, int]
"""The first and the last id."""


def ranges_of(ids: Iterable[int]) -> list[IdRange]:
    """Ascending ids as few ranges."""
    ranges: list[IdRange] = []
    for job_id in ids:
        if ranges and ranges[-1][1] == job_id - 1:
            ranges[-1] = ranges[-1][0], job_id
        else:
            ranges.append((job_id, job_id))
    return ranges


class JobArchive:
    """Finished jobs by id; adding one twice is harmless. Its thread is the worker given to it."""

    def __init__(self, path: Path, worker: Worker, connect: Connect = connect) -> None:
        self._path = path
        self._worker = worker
        self._connect = connect
        self._connection: sqlite3.Connection | None = None

    @classmethod
    async def open(cls, path: Path, worker: Worker, connect: Connect = connect) -> "JobArchive":
        """Open or make the file; StoreError if it is damaged or newer."""
        archive = cls(path, worker, connect)
        await archive._call(archive._open)
        return archive

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        """Keep jobs for good, synced, all or none.

        Refused if the disk is full; StoreError if one is there already with another content.
        """
        await self._call(lambda: self._append(jobs))

    async def add(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        """As `append`, but jobs that are there already stay as they are."""
        await self._call(lambda: self._add(jobs))

    async def get(self, job_id: int) -> bytes | None:
        """The job, or None if it is not in the archive."""
        return await self._call(lambda: self._get(job_id))

    async def ids(self, *, limit: int = MOST_IDS, below: int | None = None) -> list[int]:
        """The greatest ids below `below`, descending."""
        return await self._call(lambda: self._ids(limit, below))

    async def ranges(self, after: int, limit: int = MOST_IDS) -> list[IdRange]:
        """The ids above `after`, at most so many, as ranges in order; none at the end."""
        return await self._call(lambda: self._ranges(after, limit))

    async def missing(self, ranges: Sequence[IdRange]) -> list[int]:
        """Which ids of these ranges are not in the archive; for at most some 10,000 ids at a time."""
        return await self._call(lambda: self._missing(ranges))

    async def some(self, ids: Sequence[int], most_bytes: int) -> list[tuple[int, bytes]]:
        """The first of these jobs, at least one, as `add` takes them; those not there are left out."""
        return await self._call(lambda: self._some(ids, most_bytes))

    async def count(self) -> int:
        return await self._call(lambda: self._number("SELECT count(*) FROM jobs"))

    async def greatest_id(self) -> int:
        """0 if the archive is empty."""
        return await self._call(lambda: self._number("SELECT coalesce(max(id), 0) FROM jobs"))

    async def close(self) -> None:
        """Close the file; the worker is its owner's to close."""
        await self._worker.call(self._close)

    async def _call(self, function: Callable[[], T]) -> T:
        try:
            return await self._worker.call(function)
        except CannotWriteNow as error:
            raise Refused(
                f"the archive of jobs {self._path} cannot be written ({error}); nothing was changed"
            ) from error
        except (DiskBroken, sqlite3.Error) as error:
            raise StoreError(f"the archive of jobs {self._path} failed: {error}") from error

    def _open(self) -> None:
        create_private(self._path)
        self._connection = self._connect(self._path)
        try:
            self._prepare(self._connection)
        except BaseException:
            self._close()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        configure(connection)
        version = schema_version(connection)
        if version == 0:
            with transaction(connection):
                connection.execute(
                    "CREATE TABLE jobs (id INTEGER PRIMARY KEY, content BLOB NOT NULL,"
                    " checksum INTEGER NOT NULL)"
                )
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise StoreError(f"{self._path} has version {version}: made by a newer version?")

    def _append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        connection = self._opened()
        with transaction(connection):
            for job_id, content in jobs:
                found = self._get(job_id)
                if found is not None and found != content:
                    raise StoreError(f"job {job_id} is in the archive with another content")
                _insert(connection, job_id, content)

    def _add(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        connection = self._opened()
        with transaction(connection):
            for job_id, content in jobs:
                _insert(connection, job_id, content)

    def _get(self, job_id: int) -> bytes | None:
        row = self._opened().execute("SELECT content, checksum FROM jobs WHERE id = ?", (job_id,))
        found = row.fetchone()
        if found is None:
            return None
        content, checksum = bytes(found[0]), found[1]
        if row_checksum(_KIND, str(job_id), content) != checksum:
            raise StoreError(f"job {job_id} in {self._path} is damaged")
        return content

    def _ids(self, limit: int, below: int | None) -> list[int]:
        rows = self._opened().execute(
            "SELECT id FROM jobs WHERE id < ? ORDER BY id DESC LIMIT ?",
            (2**63 - 1 if below is None else below, limit),
        )
        return [job_id for (job_id,) in rows]

    def _ranges(self, after: int, limit: int) -> list[IdRange]:
        found = self._opened().execute(
            "SELECT id FROM jobs WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        return ranges_of(job_id for (job_id,) in found)

    def _missing(self, ranges: Sequence[IdRange]) -> list[int]:
        missing: list[int] = []
        for first, last in ranges:
            rows = self._opened().execute(
                "SELECT id FROM jobs WHERE id BETWEEN ? AND ?", (first, last)
            )
            here = {job_id for (job_id,) in rows}
            if len(here) <= last - first:
                missing += [job_id for job_id in range(first, last + 1) if job_id not in here]
        return missing

    def _some(self, ids: Sequence[int], most_bytes: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        size = 0
        for job_id in ids:
            content = self._get(job_id)
            if content is None:
                continue
            size += len(content)
            if found and size > most_bytes:
                break
            found.append((job_id, content))
        return found

    def _number(self, query: str) -> int:
        (number,) = self._opened().execute(query).fetchone()
        return int(number)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"the archive of jobs {self._path} is closed")
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _insert(connection: sqlite3.Connection, job_id: int, content: bytes) -> None:
    connection.execute(
        "INSERT INTO jobs (id, content, checksum) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (job_id, content, row_checksum(_KIND, str(job_id), content)),
    )
