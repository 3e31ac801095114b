"""The loop's side of the writer thread: what waits shares the next sync.

While the disk syncs one batch, everything that arrives collects for the next. A full disk refuses
until a probe succeeds; a broken one ends the queue for good.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster, Refused, StoreError
from ganeti.base.staggered_waker import StaggeredWaker
from ganeti.store.database import CannotWriteNow, Database, DiskBroken
from ganeti.store.encoding import EncodedEntry
from ganeti.store.interface import Position, Transaction
from ganeti.store.worker import Worker, tell

_BATCH_TRANSACTIONS = 1024
_BATCH_BYTES = 16 << 20
_WAITING_BYTES = 64 << 20

Outcome: TypeAlias = list[EncodedEntry] | CannotWriteNow | DiskBroken | Refused
T = TypeVar("T")


@dataclass(slots=True)
class _Waiting:
    """A transaction that is not written yet; `done` is None if nobody waits for it."""

    epoch: int
    txn: Transaction
    size: int
    done: asyncio.Future[Position] | None


class GroupCommit:
    """The queue before the disk. `written` and `lost` are called on the loop."""

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        probe_interval_s: float,
        written: Callable[[list[EncodedEntry]], None],
        lost: Callable[[str], None],
    ) -> None:
        self._database = database
        self._name = name
        self._probe_interval_s = probe_interval_s
        self._on_written = written
        self._on_lost = lost
        self._writer = Worker("store-writer")
        self._waking = StaggeredWaker()
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._is_writing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = False
        self._full: str | None = None  # why, while the disk is full
        self._lost_submits = 0
        self._probe_timer: asyncio.TimerHandle | None = None
        self.transactions = 0
        self.syncs = 0
        self.largest_batch = 0
        self.refused = 0

    @property
    def is_full(self) -> bool:
        return self._full is not None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return self._queue_bytes

    def add(self, epoch: int, txn: Transaction, size: int) -> asyncio.Future[Position]:
        """Queue a transaction; the future has its position once that is synced."""
        self._admit(size)
        done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._enqueue(_Waiting(epoch, txn, size, done))
        return done

    def add_unawaited(self, epoch: int, txn: Transaction, size: int) -> None:
        """Queue a transaction; if it is refused later, the next one is refused too."""
        self._admit(size)
        self._enqueue(_Waiting(epoch, txn, size, None))

    def forgive(self) -> None:
        """Whoever takes a new epoch reads everything again: lost submits are seen by that."""
        self._lost_submits = 0

    async def drained(self) -> None:
        """Wait until nothing waits."""
        await self._idle.wait()

    async def run(self, function: Callable[[], T]) -> T:
        """Use the database between two batches; raises like a commit."""
        try:
            return await self._writer.call(function)
        except CannotWriteNow as error:
            self._become_full(error)
            raise Refused(self._full or str(error)) from error
        except DiskBroken as error:
            self._lose(error, [])
            raise NotMaster(f"{self._name} failed: {error}") from error

    def end(self, reason: str) -> None:
        """The disk cannot be trusted, as somebody else found out: refuse what waits, for good."""
        self._lose(DiskBroken(reason, perhaps_written=False), [])

    async def close(self, last: Callable[[], None]) -> None:
        """Write what waits, run `last` on the thread, and end it."""
        self._ended = True
        self._cancel_probe()
        await self.drained()
        self._writer.post(self._database.close)
        self._writer.post(last)
        await self._writer.close()

    def _admit(self, size: int) -> None:
        """Refuse what is known at once not to succeed."""
        if self._ended:
            raise NotMaster(f"{self._name} is closed")
        if self._lost_submits:
            lost, self._lost_submits = self._lost_submits, 0
            self._refuse(f"{lost} earlier transactions that nobody waited for were refused")
        if self._full is not None:
            self._refuse(self._full)
        if self._queue_bytes + size > _WAITING_BYTES:
            self._refuse(f"{self._queue_bytes} bytes wait for {self._name} already; try again")

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        raise Refused(reason)

    def _enqueue(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        self._queue_bytes += waiting.size
        if not self._is_writing:
            self._write_next()

    def _write_next(self) -> None:
        """Give the writer all that waits, within reason."""
        batch: list[_Waiting] = []
        size = 0
        while self._queue and len(batch) < _BATCH_TRANSACTIONS and size < _BATCH_BYTES:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        self._is_writing = bool(batch)
        if not batch:
            self._idle.set()
            return
        self._idle.clear()
        loop = asyncio.get_running_loop()
        self._writer.post(lambda: self._write(loop, batch))

    def _write(self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting]) -> None:
        """On the writer: one batch, one sync."""
        outcome: Outcome
        try:
            outcome = self._database.apply([(waiting.epoch, waiting.txn) for waiting in batch])
        except (CannotWriteNow, DiskBroken, Refused) as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 - our own faults must not leave callers waiting
            outcome = DiskBroken(f"unexpected: {error!r}", perhaps_written=True)
        tell(loop, self._batch_ended, batch, outcome)

    def _batch_ended(self, batch: list[_Waiting], outcome: Outcome) -> None:
        self._queue_bytes -= sum(waiting.size for waiting in batch)
        if isinstance(outcome, list):
            self._acknowledge(batch, outcome)
        elif isinstance(outcome, DiskBroken):
            self._lose(outcome, batch)
        else:
            if isinstance(outcome, CannotWriteNow):
                self._become_full(outcome)
            # What came after may build on what is refused here, so it is refused as well.
            reason = self._full or str(outcome)
            self._fail([*batch, *self._take_queue()], lambda: Refused(reason))
        self._write_next()

    def _acknowledge(self, batch: list[_Waiting], entries: list[EncodedEntry]) -> None:
        self.transactions += len(batch)
        self.syncs += 1
        self.largest_batch = max(self.largest_batch, len(batch))
        self._on_written(entries)
        for waiting, entry in zip(batch, entries, strict=True):
            if waiting.done is not None:
                self._waking.resolve(waiting.done, entry.position)

    def _take_queue(self) -> list[_Waiting]:
        waiting = list(self._queue)
        self._queue.clear()
        self._queue_bytes = 0
        return waiting

    def _fail(self, batch: Iterable[_Waiting], error: Callable[[], GanetiError]) -> None:
        for waiting in batch:
            self.refused += 1
            if waiting.done is None:
                self._lost_submits += 1
            elif not waiting.done.done():
                waiting.done.set_exception(error())

    def _lose(self, error: DiskBroken, batch: list[_Waiting]) -> None:
        """End for good; what was being written is unknown, what still waits surely is not."""
        already, self._ended = self._ended, True
        self._cancel_probe()
        self._full = None
        reason = f"{self._name} failed: {error}"
        if error.perhaps_written:
            self._fail(batch, lambda: CommitUnknown(reason))
        else:
            self._fail(batch, lambda: Refused(reason))
        self._fail(self._take_queue(), lambda: Refused(reason))
        self._on_lost(reason)
        if not already:
            self._writer.post(self._database.close)

    def _become_full(self, error: CannotWriteNow) -> None:
        if self._full is None:
            self._full = (
                f"{self._name} cannot be written ({error}); nothing was changed; free some space"
                " on its disk, it is tried again by itself"
            )
        self._schedule_probe()

    def _schedule_probe(self) -> None:
        if self._probe_timer is None and not self._ended:
            loop = asyncio.get_running_loop()
            self._probe_timer = loop.call_later(self._probe_interval_s, self._start_probe)

    def _cancel_probe(self) -> None:
        if self._probe_timer:
            self._probe_timer.cancel()
            self._probe_timer = None

    def _start_probe(self) -> None:
        self._probe_timer = None
        loop = asyncio.get_running_loop()
        self._writer.post(lambda: self._probe(loop))

    def _probe(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the writer."""
        outcome: CannotWriteNow | DiskBroken | None = None
        try:
            self._database.probe()
        except (CannotWriteNow, DiskBroken) as error:
            outcome = error
        except StoreError:
            return  # closed meanwhile
        tell(loop, self._probed, outcome)

    def _probed(self, outcome: CannotWriteNow | DiskBroken | None) -> None:
        if outcome is None:
            self._full = None
        elif isinstance(outcome, DiskBroken):
            self._lose(outcome, [])
        else:
            self._schedule_probe()
