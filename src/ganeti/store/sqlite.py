"""The embedded back end: one SQLite file, one writer thread, one reader thread.

All that decides runs on the loop; the threads only carry out.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from ganeti.base.errors import StoreError
from ganeti.base.files import exclusive_file
from ganeti.store.database import Connect, Database, DiskBroken, History, Limits, connect
from ganeti.store.database_reader import LogReader, Snapshot
from ganeti.store.electorate import Electorate
from ganeti.store.encoding import EncodedEntry, MemberList, decode_ceiling
from ganeti.store.group_commit import GroupCommit
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    Identity,
    Lease,
    Position,
    Row,
    StoreStatistics,
    Transaction,
    check_transaction,
)
from ganeti.store.sole_member import SoleMember
from ganeti.store.worker import Worker

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What tests and odd disks may want otherwise."""

    limits: Limits = field(default_factory=Limits)
    probe_interval_s: float = 1.0
    connect: Connect = connect
    archive: Path | None = None
    """The archive of jobs: what is there is not missed when this state is replaced."""


class SqliteStore(SoleMember):
    """The `StateBackend` of one member: the master holds the state alone."""

    def __init__(
        self, path: Path, identity: Identity, electorate: Electorate, options: Options
    ) -> None:
        super().__init__(identity, electorate)
        self._path = path
        self._options = options
        self._database = Database(path, options.limits, options.connect)
        self._log_reader = LogReader(path, options.connect)
        self._commits = GroupCommit(
            self._database,
            name=f"the state database {path}",
            probe_interval_s=options.probe_interval_s,
            written=self._written,
            lost=self._lose,
        )
        self._reader = Worker("store-reader")
        self._open_files = contextlib.ExitStack()
        self._snapshots: set[Snapshot] = set()
        self._digest = b""

    @classmethod
    async def open(
        cls,
        path: Path,
        identity: Identity,
        electorate: Electorate,
        options: Options | None = None,
    ) -> "SqliteStore":
        """Open or make the database; StoreError if it is damaged, of others, or in use."""
        store = cls(path, identity, electorate, options or Options())
        try:
            await store._commits.run(store._open_database)
        except BaseException:
            await store.close()
            raise
        store._reached(store._database.history)
        return store

    def _open_database(self) -> None:
        """On the writer: one process at a time, and the content checked."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        try:
            is_ours = self._open_files.enter_context(exclusive_file(lock))
        except OSError as error:
            raise StoreError(f"cannot open {lock}: {error}") from error
        if not is_ours:
            raise StoreError(f"the database {self._path} is in use by another process")
        self._database.open(self._identity.cluster_uuid, self._identity.node_uuid)
        row = self._database.get(META_KIND, MEMBERS_KEY)
        self._members = MemberList.decode(row, self._identity.node_uuid)
        self._epoch = self._database.epoch

    # Writing

    def submit(self, lease: Lease, txn: Transaction) -> None:
        size = check_transaction(txn)
        self._check_lease(lease)
        self._commits.add_unawaited(lease.epoch, txn, size)

    def _written(self, entries: list[EncodedEntry]) -> None:
        """A batch is synced."""
        self._reached(History(entries[-1].position, entries[-1].digest))

    def _reached(self, history: History) -> None:
        self._position, self._digest = history.position, history.digest

    def _add(self, lease: Lease, txn: Transaction, size: int) -> asyncio.Future[Position]:
        return self._commits.add(lease.epoch, txn, size)

    async def _drained(self) -> None:
        await self._commits.drained()

    async def _keep_epoch(self, epoch: int) -> None:
        await self._commits.run(lambda: self._database.take_epoch(epoch))
        self._commits.forgive()

    async def _stored_ceiling(self) -> int:
        get = partial(self._database.get, META_KIND, JOB_ID_CEILING_KEY)
        return decode_ceiling(await self._commits.run(get))

    # Reading

    async def load(self) -> AsyncGenerator[Position | Row, None]:
        async with contextlib.aclosing(self._slices()) as slices:
            async for part in slices:
                if isinstance(part, History):
                    yield part.position
                    continue
                for row in part:
                    yield row

    async def _slices(self) -> AsyncGenerator[History | list[Row], None]:
        """A snapshot: where it stands, then its rows, some at a time."""
        self._check_readable()
        snapshot = Snapshot(self._path, self._options.connect)
        self._snapshots.add(snapshot)
        try:
            yield await self._read(snapshot.begin)
            while rows := await self._read(snapshot.next_slice):
                yield rows
        finally:
            # `close` has taken care of it if the reader does not accept any more.
            with contextlib.suppress(StoreError):
                self._reader.post(snapshot.close)
            self._snapshots.discard(snapshot)

    async def _read(self, function: Callable[[], T]) -> T:
        """Run on the reader; damage found there ends the writing too (G3)."""
        try:
            return await self._reader.call(function)
        except DiskBroken as error:
            self._commits.end(str(error))
            raise StoreError(f"the state database {self._path} failed: {error}") from error

    def statistics(self) -> StoreStatistics:
        commits = self._commits
        return StoreStatistics(
            role=self._roles.role,
            position=self._position,
            digest=self._digest,
            transactions=commits.transactions,
            syncs=commits.syncs,
            largest_batch=commits.largest_batch,
            waiting=commits.waiting,
            waiting_bytes=commits.waiting_bytes,
            refused=commits.refused,
            is_full=commits.is_full,
            log_entries=self._database.log_entries,
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._commits.close(self._open_files.close)
        self._roles.close()
        for snapshot in self._snapshots:
            self._reader.post(snapshot.close)
        self._reader.post(self._log_reader.close)
        await self._reader.close()
