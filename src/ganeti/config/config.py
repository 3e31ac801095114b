"""The configuration of the cluster: acknowledged snapshots for readers, transactions for writers.

A change is applied to the pending snapshot at once, in the order of the calls, and its rows go to
the store; readers see it when the store has acknowledged it. One transaction is written at a time,
and all waiting changes share the next one. So a refused transaction revokes exactly its own changes
and those based on them, and none of these was written.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ganeti.base.clock import Clock
from ganeti.base.errors import ConfigurationError, GanetiError, NotMaster, Refused
from ganeti.base.ids import IdSource
from ganeti.base.yield_every import YieldEvery
from ganeti.config.changes import CHANGED_BY, UNTIL_SUBMITTED, ChangedObject
from ganeti.config.index import index_of
from ganeti.config.kinds import entry_of, kind_named, tables_of
from ganeti.config.reservations import Reservations
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.upgrade import Reader
from ganeti.model.objects import Cluster
from ganeti.model.stored import Stored
from ganeti.store.backend import StateBackend
from ganeti.store.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Lease,
    Operation,
    Position,
    Transaction,
    check_transaction,
)

T = TypeVar("T")

Listener = Callable[[Snapshot], None]
ChangeListener = Callable[[int | None, Sequence[ChangedObject]], None]
LossListener = Callable[[GanetiError], None]


_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Change:
    """A change in progress: its new snapshot, its rows, and its waiting caller."""

    snapshot: Snapshot
    job_id: int | None
    objects: list[ChangedObject]
    operations: list[Operation]
    size: int
    done: asyncio.Future[None]


class Config:
    """The configuration, in memory as a whole and in the store as a row per object."""

    def __init__(
        self,
        store: StateBackend,
        lease: Lease,
        clock: Clock,
        ids: IdSource,
        snapshot: Snapshot,
    ) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._snapshot = snapshot
        self._pending = snapshot
        self._waiting: deque[_Change] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._lost: GanetiError | None = None
        self._listeners: list[Listener] = []
        self.on_lost: LossListener | None = None
        """Called once if a change has an unknown outcome (R13), or the store is lost."""
        self.on_changed: ChangeListener | None = None
        """Called with the objects of an acknowledged change, and its job."""
        self.degraded = False
        """True if only the master holds the last change (R6)."""
        self.reservations = Reservations(ids)

    @classmethod
    async def load(
        cls,
        store: StateBackend,
        lease: Lease,
        clock: Clock,
        ids: IdSource,
        *,
        keep_old: Callable[[], Awaitable[None]] | None = None,
    ) -> "Config":
        """Read the configuration, convert old rows, and check their claims.

        `keep_old` is awaited before any row is changed. ConfigurationError if the configuration is
        damaged, missing, or of a newer version.
        """
        position = 0
        reader = Reader(ids)
        async with aclosing(store.load()) as rows:
            pause = YieldEvery()
            async for item in rows:
                if isinstance(item, Position):
                    position = item.as_int()
                elif kind_named(item.kind):
                    reader.add(item.kind, item.key, item.value)
                await pause()
        reader.finish()
        if reader.changes and keep_old is not None:
            await keep_old()
        for start in range(0, len(reader.changes), MAX_OPERATIONS):
            part = tuple(reader.changes[start : start + MAX_OPERATIONS])
            receipt = await store.commit(lease, Transaction(part))
            position = receipt.position.as_int()
        return cls(store, lease, clock, ids, _snapshot_of(position, reader.objects))

    @property
    def epoch(self) -> int:
        """Return the epoch of this master."""
        return self._lease.epoch

    @property
    def snapshot(self) -> Snapshot:
        """Return the last acknowledged configuration."""
        return self._snapshot

    async def change(self, fn: Callable[[Draft], T], *, also: Sequence[Operation] = ()) -> T:
        """Apply `fn` to the pending configuration, and return once it and `also` are acknowledged.

        Raises what `fn` raises, PrereqError if a rule is broken, ConfigurationError if the change
        is too large for one transaction, Refused (not written), NotMaster or CommitUnknown.
        Cancelling the caller does not revoke the change.
        """
        if (submitted := UNTIL_SUBMITTED.get()) is not None:
            await submitted()
        if self._lost is not None:
            raise NotMaster(f"the configuration cannot be changed any more: {self._lost.message}")
        draft = Draft(self._pending, self._clock, self.epoch)
        result = fn(draft)
        snapshot, operations = draft.finish()
        operations += also
        size = _checked_size(operations)
        if not operations and self._pending is self._snapshot:
            return result
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        objects = draft.changed_objects()
        self._waiting.append(_Change(snapshot, CHANGED_BY.get(), objects, operations, size, done))
        self._pending = snapshot
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="config-writer")
        await done  # cancelling the caller cancels this future, and not the write
        return result

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each acknowledged snapshot; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def close(self) -> None:
        """Wait for running transactions."""
        if self._writer is not None:
            await asyncio.wait((self._writer,))

    async def _write(self) -> None:
        """Write the waiting changes, as much as one transaction holds at a time."""
        while self._waiting:
            batch = self._next_batch()
            operations = tuple(op for change in batch for op in change.operations)
            try:
                receipt = await self._store.commit(self._lease, Transaction(operations))
            except Refused as err:
                self._fail([*batch, *self._waiting], err)
                self._waiting.clear()
                self._pending = self._snapshot
                continue
            except GanetiError as err:
                self._lose(batch, err)
                break
            self.degraded = receipt.degraded
            self._publish(batch, receipt.position.as_int())
        self._writer = None

    def _next_batch(self) -> list[_Change]:
        batch = [self._waiting.popleft()]
        operations, size = len(batch[0].operations), batch[0].size
        while self._waiting:
            following = self._waiting[0]
            operations += len(following.operations)
            size += following.size
            if operations > MAX_OPERATIONS or size > MAX_TRANSACTION_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _publish(self, batch: list[_Change], position: int) -> None:
        last = batch[-1].snapshot
        acknowledged = replace(last, position=position)
        if self._pending is last:
            self._pending = acknowledged
        self._snapshot = acknowledged
        for change in batch:
            if not change.done.done():
                change.done.set_result(None)
        calls = [partial(listener, acknowledged) for listener in self._listeners]
        if self.on_changed is not None:
            calls += [
                partial(self.on_changed, change.job_id, change.objects)
                for change in batch
                if change.objects
            ]
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - one bad listener must not stop the others
                _log.exception("a listener of the configuration failed at position %d", position)

    def _lose(self, batch: list[_Change], err: GanetiError) -> None:
        """Stop: the pending snapshot may or may not be stored, so no reader may get it (R13)."""
        self._lost = err
        self._fail(batch, err)
        self._fail(list(self._waiting), NotMaster(f"not written: {err.message}"))
        self._waiting.clear()
        if self.on_lost is not None:
            self.on_lost(err)

    def _fail(self, changes: list[_Change], err: GanetiError) -> None:
        for change in changes:
            if not change.done.done():
                change.done.set_exception(type(err)(err.message))
                change.done.exception()  # the caller may have been cancelled


def _checked_size(operations: list[Operation]) -> int:
    try:
        return check_transaction(Transaction(tuple(operations)))
    except Refused as err:
        raise ConfigurationError(f"the change is too large: {err.message}") from err


def _snapshot_of(position: int, objects: list[Stored]) -> Snapshot:
    tables = tables_of(objects)
    clusters = [one for one in objects if isinstance(one, Cluster)]
    if len(clusters) != 1:
        raise ConfigurationError(
            f"the configuration has {len(clusters)} clusters instead of one;"
            " run `gnt-cluster init` on a new cluster, or restore a backup"
        )
    (cluster,) = clusters
    everything = [thing for table in tables.values() for thing in table.values()]
    index, conflicts = index_of(entry_of(cluster, thing) for thing in everything)
    snapshot = Snapshot(position, cluster, tables, index)
    for conflict in conflicts:
        thing = snapshot.find(conflict.claimant)
        name = thing.name if thing else conflict.claimant
        _log.error("%s: the %s %s belongs to %s", name, *conflict.claim, conflict.owner)
    return snapshot
