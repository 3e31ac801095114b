"""A candidate's own copy of the state: one SQLite file, one writer thread, one reader thread.

All decisions run on the loop; the threads only carry out. This module does not know who may write:
the leader adds transactions, a follower session appends those of a master.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from ganeti.base.errors import StoreError
from ganeti.base.files import exclusive_file
from ganeti.base.run_to_completion import run_to_completion
from ganeti.store.database import Connect, Database, DiskBroken, History, Limits, Sync, connect
from ganeti.store.database_reader import LogReader, Snapshot
from ganeti.store.encoding import EncodedEntry, MemberList, decode_ceiling
from ganeti.store.group_commit import GroupCommit
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ZERO,
    Identity,
    Position,
    Role,
    Row,
    StoreStatistics,
    Transaction,
)
from ganeti.store.preserved_states import preserve_state, read_preserved
from ganeti.store.waiting import Written
from ganeti.store.worker import Worker

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """Settings that tests and unusual disks may change."""

    limits: Limits = field(default_factory=Limits)
    probe_interval_s: float = 1.0
    connect: Connect = connect
    sync: Sync = os.fdatasync
    archive: Path | None = None
    """The archive of jobs: archived jobs are not missing when this state is replaced."""


class LocalLog:
    """The database, its group commit and its readers; the callbacks are called on the loop."""

    def __init__(
        self,
        path: Path,
        identity: Identity,
        options: Options,
        *,
        written: Callable[[list[EncodedEntry]], None],
        synced: Callable[[list[EncodedEntry]], None],
        lost: Callable[[str], None],
    ) -> None:
        """`written` receives added transactions whose sync begins, and `synced` those whose sync has ended.

        `lost` receives the reason why the disk is broken.
        """
        self._path, self._identity, self._options = path, identity, options
        self._on_synced, self._on_lost = synced, lost
        self.database = Database(path, options.limits, options.connect, options.sync)
        self.commits = GroupCommit(
            self.database,
            name=f"the state database {path}",
            probe_interval_s=options.probe_interval_s,
            written=written,
            synced=self._synced,
            lost=self._lose,
        )
        self._log_reader = LogReader(path, options.connect)
        self._reader = Worker("store-reader")
        self._open_files = contextlib.ExitStack()
        self._snapshots: set[Snapshot] = set()
        self._replacing = asyncio.Lock()
        self._failure = ""
        self.tail = History()
        """The end of the synced history."""
        self.members = MemberList.decode(None, identity.node_uuid)
        """The members as read or written here last."""
        self.epoch = 0
        """The greatest epoch in which this node was to write."""

    async def open(self) -> None:
        """Open or create the database; StoreError if it is damaged, in use, or of another cluster."""
        await self.commits.run(self._open_database)
        self.tail = self.database.history

    def _open_database(self) -> None:
        """Run on the writer: lock out other processes, and check the content."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        try:
            is_ours = self._open_files.enter_context(exclusive_file(lock))
        except OSError as error:
            raise StoreError(f"cannot open {lock}: {error}") from error
        if not is_ours:
            raise StoreError(f"the database {self._path} is in use by another process")
        self.database.open(self._identity.cluster_uuid, self._identity.node_uuid)
        self.members = self._stored_members()
        self.epoch = self.database.epoch

    async def close(self) -> None:
        """Write what waits, end all reads, free threads and files."""
        self._failure = self._failure or "the store is closed"
        await self.commits.close(self._open_files.close)
        for snapshot in self._snapshots:
            self._reader.post(snapshot.close)
        self._reader.post(self._log_reader.close)
        await self._reader.close()

    def check_readable(self) -> None:
        """Raise StoreError if the log is closed or its disk is broken."""
        if self._failure:
            raise StoreError(self._failure)

    def _lose(self, reason: str) -> None:
        self._failure = f"the store is closed permanently: {reason}"
        self._on_lost(reason)

    # Writing as the master

    def add(
        self, epoch: int, txn: Transaction, size: int, written: Written | None = None
    ) -> asyncio.Future[Position]:
        """Queue a transaction; the future gets its position once it is synced, or when `written` sets it.

        Raises like `commit`.
        """
        return self.commits.add(epoch, txn, size, written)

    def add_unawaited(self, epoch: int, txn: Transaction, size: int) -> None:
        """Behave like `StateBackend.submit`."""
        self.commits.add_unawaited(epoch, txn, size)

    async def drained(self) -> None:
        """Wait until no write is queued."""
        await self.commits.drained()

    async def check_disk(self) -> None:
        """Write a probe: Refused while there is no room.

        NotMaster if the disk is broken, after a call of `lost`.
        """
        await self.commits.run(self.database.probe)

    async def keep_epoch(self, epoch: int) -> None:
        """Write the epoch down, synced, and forget lost submits."""
        await self.commits.run(lambda: self.database.take_epoch(epoch))
        self.commits.forgive()
        self.epoch = epoch

    def _synced(self, entries: list[EncodedEntry]) -> None:
        self.reached(History(entries[-1].position, entries[-1].digest))
        self._on_synced(entries)

    def reached(self, history: History) -> None:
        """Advance the end of the synced history."""
        self.tail = history

    # Writing a master's transactions

    async def append(self, entries: list[EncodedEntry]) -> None:
        """Append transactions of another master; HistoryDiffers if they do not continue the history here."""

        async def append() -> None:
            await self.commits.run(lambda: self.database.append(entries))
            self.reached(History(entries[-1].position, entries[-1].digest))

        async with self._replacing:
            await run_to_completion(append())

    async def replace(
        self,
        history: History,
        shared: Position,
        rows: AsyncIterator[list[Row]],
        check: Callable[[], None],
    ) -> None:
        """Replace the state by these rows; preserve the old state unless the new history continues it (R9).

        `shared` is the last position that both histories may share. The state is unchanged if `rows`
        or `check`, called after the last row, raises.
        """
        old, database, kept = self.tail, self.database, list[Path]()

        def keep(connection: sqlite3.Connection) -> None:
            kept.append(preserve_state(connection, self._path, old, shared))

        async def end() -> None:
            await self.commits.run(lambda: database.end_snapshot(history))
            self.reached(history)

        async with self._replacing:
            try:
                diverges = old.position not in (ZERO, shared)
                await self.commits.run(lambda: database.begin_snapshot(keep if diverges else None))
                async for some in rows:
                    await self.commits.run(partial(database.add_snapshot_rows, some))
                check()
            except BaseException:
                await run_to_completion(self.commits.run(database.abandon_snapshot))
                raise
            await run_to_completion(end())
            for path in kept:
                await self._report_preserved(path)

    async def _report_preserved(self, path: Path) -> None:
        archive = self._options.archive
        preserved = await self._read(lambda: read_preserved(path, self._path, archive))
        _log.warning(
            "the master's state replaced the state of this node, which is preserved in %s: %s",
            path,
            preserved.summary() if preserved else "it cannot be read",
        )

    # Reading

    async def read_members(self) -> MemberList:
        """Return the list in the rows, and use it as `members` from now on."""
        self.members = await self.commits.run(self._stored_members)
        return self.members

    def _stored_members(self) -> MemberList:
        row = self.database.get(META_KIND, MEMBERS_KEY)
        return MemberList.decode(row, self._identity.node_uuid)

    async def stored_ceiling(self) -> int:
        """Return the ceiling of job ids in the rows."""
        get = partial(self.database.get, META_KIND, JOB_ID_CEILING_KEY)
        return decode_ceiling(await self.commits.run(get))

    async def load(self) -> AsyncGenerator[Position | Row, None]:
        """Behave like `StateBackend.load`."""
        async with contextlib.aclosing(self.slices()) as slices:
            async for part in slices:
                if isinstance(part, History):
                    yield part.position
                    continue
                for row in part:
                    yield row

    async def slices(self) -> AsyncGenerator[History | list[Row], None]:
        """Yield a snapshot: its position, then its rows, in batches."""
        self.check_readable()
        snapshot = Snapshot(self._path, self._options.connect)
        self._snapshots.add(snapshot)
        try:
            yield await self._read(snapshot.begin)
            while rows := await self._read(snapshot.next_slice):
                yield rows
        finally:
            # `close` cleans up if the reader accepts no more calls.
            with contextlib.suppress(StoreError):
                self._reader.post(snapshot.close)
            self._snapshots.discard(snapshot)

    async def continues_from(self, history: History) -> bool:
        """Return whether a follower at exactly this position may be sent what follows in the log."""
        if history.position == ZERO < self.tail.position:
            # An empty follower gets everything at once. With part of it, it would look like a
            # follower with everything acknowledged while it was a member
            # (`election.choose_source`).
            return False
        return await self._read(partial(self._log_reader.continues_from, history))

    async def shared_with(self, history: History) -> Position:
        """Return the last position that another history may share with this one; ZERO if unknown."""
        return await self._read(partial(self._log_reader.shared_with, history))

    async def entries_after(self, position: Position) -> list[EncodedEntry]:
        """Return some transactions after a position; NotInLog."""
        return await self._read(partial(self._log_reader.encoded_after, position))

    async def _read(self, function: Callable[[], T]) -> T:
        """Run on the reader; damage found there also ends the writing (G3)."""
        try:
            return await self._reader.call(function)
        except DiskBroken as error:
            self.commits.end(str(error))
            raise StoreError(f"the state database {self._path} failed: {error}") from error

    def statistics(self, role: Role, *, degraded: bool) -> StoreStatistics:
        """Return current figures."""
        commits, waiting = self.commits, self.commits.waiting
        return StoreStatistics(
            role=role,
            position=self.tail.position,
            digest=self.tail.digest,
            transactions=waiting.transactions,
            syncs=commits.syncs,
            largest_batch=waiting.largest_batch,
            waiting=len(waiting),
            waiting_bytes=waiting.bytes,
            refused=waiting.refused,
            is_full=bool(waiting.full),
            log_entries=self.database.log_entries,
            degraded=degraded,
        )
