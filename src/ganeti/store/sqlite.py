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

from ganeti.base.errors import NotMaster, StoreError
from ganeti.base.files import exclusive_file
from ganeti.store.backup import write_backup
from ganeti.store.database import Connect, Database, DiskBroken, Limits, connect
from ganeti.store.database_reader import LogReader, Snapshot
from ganeti.store.electorate import Electorate, greatest_ceiling, greatest_epoch
from ganeti.store.encoding import MemberList, decode_ceiling
from ganeti.store.group_commit import GroupCommit
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ZERO,
    ByteSink,
    Campaign,
    CampaignKind,
    Follower,
    Identity,
    Lease,
    LogEntry,
    Lost,
    Master,
    MemberChange,
    Membership,
    NodeUuid,
    Position,
    Put,
    Receipt,
    Role,
    Row,
    StoreStatistics,
    Transaction,
    check_transaction,
)
from ganeti.store.notices import LogNews, RoleFeed
from ganeti.store.register import Accepted, AcceptRequest, PromiseRequest
from ganeti.store.worker import Worker

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What tests and odd disks may want otherwise."""

    limits: Limits = field(default_factory=Limits)
    probe_interval_s: float = 1.0
    connect: Connect = connect


class SqliteStore:
    """The `Store` of one member: the master holds the state alone."""

    def __init__(
        self, path: Path, identity: Identity, electorate: Electorate, options: Options
    ) -> None:
        self._path = path
        self._identity = identity
        self._electorate = electorate
        self._options = options
        self._database = Database(path, options.limits, options.connect)
        self._log_reader = LogReader(path, options.connect)
        self._commits = GroupCommit(
            self._database,
            name=f"the state database {path}",
            probe_interval_s=options.probe_interval_s,
            written=self._written,
            lost=self._lost,
        )
        self._reader = Worker("store-reader")
        self._open_files = contextlib.ExitStack()
        self._snapshots: set[Snapshot] = set()
        self._roles = RoleFeed()
        self._news = LogNews()
        self._campaigning = asyncio.Lock()
        self._changing_members = asyncio.Lock()
        self._closed = False
        self._position = ZERO
        self._digest = b""
        self._forced = False
        self._registered_ceiling = 0
        self._members = MemberList.decode(None, identity.node_uuid)

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
        store._written(store._database.history.position)
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

    # Roles

    def role_changes(self) -> AsyncGenerator[Role, None]:
        return self._roles.changes()

    async def campaign(self, how: Campaign) -> Lease:
        async with self._campaigning:
            self._check_usable()
            self._step_down("a new epoch is being taken")
            await self._commits.drained()
            lease = await self._take_epoch(how.kind)
            self._check_usable()
            self._forced = how.kind is CampaignKind.FORCE
            self._commits.forgive()
            self._roles.change(Master(lease))
            return lease

    async def _take_epoch(self, kind: CampaignKind) -> Lease:
        """Greater than all promised ones; promised, then written here, then registered (R2, R7)."""
        registers = await self._electorate.registers()
        epoch = max(greatest_epoch(registers), self._database.epoch, self._position.epoch) + 1
        cluster, node = self._identity.cluster_uuid, self._identity.node_uuid
        await self._electorate.promise(PromiseRequest(cluster, epoch, node), kind)
        await self._commits.run(lambda: self._database.take_epoch(epoch))
        ceiling = max(greatest_ceiling(registers), await self._stored_ceiling())
        accepted = Accepted(epoch, 0, node, frozenset((node,)), ceiling)
        await self._electorate.accept(AcceptRequest(cluster, accepted), kind)
        self._registered_ceiling = ceiling
        return Lease(epoch)

    async def resign(self, to: NodeUuid | None = None) -> None:
        if to is not None and to != self._identity.node_uuid:
            raise NotMaster(f"node {to} does not follow this master, so it cannot take over")
        async with self._campaigning:
            self._check_usable()
            self._step_down("resigned")
            await self._commits.drained()

    def _step_down(self, reason: str) -> None:
        if isinstance(self._roles.role, Master):
            self._roles.change(Follower(reason))

    def _check_usable(self) -> None:
        role = self._roles.role
        if isinstance(role, Lost):
            raise NotMaster(f"the store is closed for good: {role.reason}")
        if self._closed:
            raise NotMaster("the store is closed")

    def _check_lease(self, lease: Lease) -> None:
        self._check_usable()
        role = self._roles.role
        if not isinstance(role, Master):
            raise NotMaster("this node is not the master")
        if role.lease != lease:
            raise NotMaster(f"epoch {lease.epoch} is over: this is epoch {role.lease.epoch}")

    # Writing

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        size = check_transaction(txn)
        self._check_lease(lease)
        # Shielded: a caller that is cancelled does not take back what is on its way to the disk.
        position = await asyncio.shield(self._commits.add(lease.epoch, txn, size))
        return Receipt(position, self._membership(0).degraded)

    def submit(self, lease: Lease, txn: Transaction) -> None:
        size = check_transaction(txn)
        self._check_lease(lease)
        self._commits.add_unawaited(lease.epoch, txn, size)

    def _written(self, position: Position) -> None:
        """The writer rests when this is called, so its history is at that position."""
        self._position = position
        self._digest = self._database.history.digest
        self._news.reached(position)

    def _lost(self, reason: str) -> None:
        self._roles.change(Lost(reason))
        self._news.close()

    # Reading

    async def load(self) -> AsyncGenerator[Position | Row, None]:
        self._check_readable()
        snapshot = Snapshot(self._path, self._options.connect)
        self._snapshots.add(snapshot)
        try:
            yield await self._read(snapshot.begin)
            while rows := await self._read(snapshot.next_slice):
                for row in rows:
                    yield row
        finally:
            # `close` has taken care of it if the reader does not accept any more.
            with contextlib.suppress(StoreError):
                self._reader.post(snapshot.close)
            self._snapshots.discard(snapshot)

    async def watch(self, after: Position) -> AsyncGenerator[LogEntry, None]:
        while not self._closed:
            self._check_readable()
            entries = await self._read(partial(self._log_reader.after, after))
            for entry in entries:
                yield entry
                after = entry.position
            if not entries and not await self._news.beyond(after):
                break
        if isinstance(self._roles.role, Lost):
            raise StoreError(self._roles.role.reason)

    async def backup(self, sink: ByteSink) -> Position:
        async with contextlib.aclosing(self.load()) as snapshot:
            return await write_backup(snapshot, sink)

    async def _read(self, function: Callable[[], T]) -> T:
        """Run on the reader; damage found there ends the writing too (G3)."""
        try:
            return await self._reader.call(function)
        except DiskBroken as error:
            self._commits.end(str(error))
            raise StoreError(f"the state database {self._path} failed: {error}") from error

    def _check_readable(self) -> None:
        role = self._roles.role
        if isinstance(role, Lost):
            raise StoreError(f"the store is closed for good: {role.reason}")
        if self._closed:
            raise StoreError("the store is closed")

    # Members

    async def members(self) -> Membership:
        self._check_readable()
        return self._membership(max(self._registered_ceiling, await self._stored_ceiling()))

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        async with self._changing_members:
            self._check_lease(lease)
            members = self._members.changed(change, self._identity.node_uuid)
            row = Put(META_KIND, MEMBERS_KEY, members.encode())
            written = self._commits.add(lease.epoch, Transaction((row,)), len(row.value))
            written.add_done_callback(partial(self._members_written, members))
            position = await asyncio.shield(written)
        return Receipt(position, self._membership(0).degraded)

    def _members_written(self, members: MemberList, written: asyncio.Future[Position]) -> None:
        if not written.cancelled() and written.exception() is None:
            self._members = members

    def _membership(self, ceiling: int) -> Membership:
        role, node = self._roles.role, self._identity.node_uuid
        is_master = isinstance(role, Master)
        return Membership(
            master=node if is_master else None,
            epoch=self._database.epoch,
            version=0,
            voters=self._members.voters,
            candidates=self._members.candidates,
            sync_set=frozenset((node,)),
            job_id_ceiling=ceiling,
            forced=is_master and self._forced,
        )

    async def _stored_ceiling(self) -> int:
        get = partial(self._database.get, META_KIND, JOB_ID_CEILING_KEY)
        return decode_ceiling(await self._commits.run(get))

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
        self._news.close()
        for snapshot in self._snapshots:
            self._reader.post(snapshot.close)
        self._reader.post(self._log_reader.close)
        await self._reader.close()
