"""The archive of jobs: a second SQLite file, outside snapshots and transactions (F10).

A node forgets old jobs on its own schedule and records their ids as ranges. So no other archive
returns forgotten jobs, and their ids are never reused.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    with_relief,
)
from ganeti.store.encoding import row_checksum
from ganeti.store.worker import Worker

SCHEMA_VERSION = 1
_KIND = "archive"
MOST_IDS = 10_000
FORGET_AT_ONCE = 500
FREED_PAGES = 10_000

T = TypeVar("T")

_log = logging.getLogger(__name__)

IdRange = tuple[int, int]
"""The first and the last id."""


def ranges_of(ids: Iterable[int]) -> list[IdRange]:
    """Return ascending ids as few ranges."""
    ranges: list[IdRange] = []
    for job_id in ids:
        if ranges and ranges[-1][1] == job_id - 1:
            ranges[-1] = ranges[-1][0], job_id
        else:
            ranges.append((job_id, job_id))
    return ranges


class JobArchive:
    """Finished jobs by id; adding a job again is idempotent. The calls run on the given worker's thread."""

    def __init__(self, path: Path, worker: Worker, connect: Connect = connect) -> None:
        self._path = path
        self._worker = worker
        self._connect = connect
        self._connection: sqlite3.Connection | None = None

    @classmethod
    async def open(cls, path: Path, worker: Worker, connect: Connect = connect) -> "JobArchive":
        """Open or create the file; StoreError if it is damaged or newer."""
        archive = cls(path, worker, connect)
        await archive._call(archive._open)
        return archive

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        """Store jobs, synced, all or none.

        Refused if the disk is full; StoreError if the archive has one of the jobs with another
        content.
        """
        await self._call(lambda: with_relief(self._opened(), lambda: self._append(jobs)))

    async def add(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        """Like `append`, but keep existing jobs unchanged."""
        await self._call(lambda: with_relief(self._opened(), lambda: self._add(jobs)))

    async def get(self, job_id: int) -> bytes | None:
        """Return the job, or None if it is not in the archive."""
        return await self._call(lambda: self._get(job_id))

    async def ids(self, *, limit: int = MOST_IDS, below: int | None = None) -> list[int]:
        """Return the greatest ids below `below`, descending."""
        return await self._call(lambda: self._ids(limit, below))

    async def ranges(self, after: int, limit: int = MOST_IDS) -> list[IdRange]:
        """Return at most `limit` ids above `after`, as ascending ranges; none at the end."""
        return await self._call(lambda: self._ranges(after, limit))

    async def missing(self, ranges: Sequence[IdRange]) -> list[int]:
        """Return the ids of these ranges that the archive lacks.

        Accepts at most some 10,000 ids at a time.
        """
        return await self._call(lambda: self._missing(ranges))

    async def some(self, ids: Sequence[int], most_bytes: int) -> list[tuple[int, bytes]]:
        """Return the first of these jobs, at least one, in the form that `add` accepts.

        Missing jobs are skipped.
        """
        return await self._call(lambda: self._some(ids, most_bytes))

    async def forget(self, is_old: Callable[[bytes], bool]) -> int:
        """Remove old jobs in batches, oldest first, until a whole batch is not old; return their number.

        Each batch is removed and recorded as forgotten in one transaction. A damaged job is kept.
        Raises like `append`.
        """
        forgotten = 0
        after: int | None = 0
        while after is not None:
            after, count = await self._call(partial(self._forget, after, is_old))
            forgotten += count
        return forgotten

    async def count(self) -> int:
        return await self._call(lambda: self._number("SELECT count(*) FROM jobs"))

    async def greatest_id(self) -> int:
        """Return the greatest id that was ever archived, 0 if the archive never had a job."""
        return await self._call(
            lambda: self._number(
                "SELECT max((SELECT coalesce(max(id), 0) FROM jobs),"
                " (SELECT coalesce(max(last), 0) FROM forgotten))"
            )
        )

    async def close(self) -> None:
        """Close the file; the owner of the worker closes the worker."""
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
            raise StoreError(
                f"{self._path} has version {version}: it may come from a newer release"
            )
        # The version stays the same: a program that does not know this table forgets no jobs, which
        # is correct.
        connection.execute(
            "CREATE TABLE IF NOT EXISTS forgotten (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)"
        )

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
            if len(here) > last - first:
                continue
            for start, end in self._forgotten(first, last):
                here.update(range(max(start, first), min(end, last) + 1))
            missing += [job_id for job_id in range(first, last + 1) if job_id not in here]
        return missing

    def _forgotten(self, first: int, last: int) -> list[IdRange]:
        """Return the forgotten ranges that overlap this one."""
        rows = self._opened().execute(
            "SELECT first, last FROM forgotten WHERE first <= ? AND last >= ?", (last, first)
        )
        return [(start, end) for start, end in rows]

    def _forget(self, after: int, is_old: Callable[[bytes], bool]) -> tuple[int | None, int]:
        """Forget the next batch.

        Return the last id looked at, None at the end, and the number of old jobs.
        """
        connection = self._opened()
        ids = [
            job_id
            for (job_id,) in connection.execute(
                "SELECT id FROM jobs WHERE id > ? ORDER BY id LIMIT ?", (after, FORGET_AT_ONCE)
            )
        ]
        old = [job_id for job_id in ids if self._is_old(job_id, is_old)]
        if not old:
            return None, 0
        with transaction(connection):
            connection.executemany("DELETE FROM jobs WHERE id = ?", [(job_id,) for job_id in old])
            for ids_range in ranges_of(old):
                self._remember(ids_range)
        # The module steps a statement without columns only once, unless it is a script.
        connection.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")
        return ids[-1], len(old)

    def _is_old(self, job_id: int, is_old: Callable[[bytes], bool]) -> bool:
        try:
            content = self._get(job_id)
        except StoreError as err:
            _log.warning("%s; it is kept", err)
            return False
        return content is not None and is_old(content)

    def _remember(self, added: IdRange) -> None:
        """Record these ids as forgotten; merge adjacent ranges."""
        touched = self._forgotten(added[0] - 1, added[1] + 1)
        first = min(start for start, _ in (*touched, added))
        last = max(end for _, end in (*touched, added))
        connection = self._opened()
        connection.execute("DELETE FROM forgotten WHERE first BETWEEN ? AND ?", (first, last))
        connection.execute("INSERT INTO forgotten (first, last) VALUES (?, ?)", (first, last))

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
