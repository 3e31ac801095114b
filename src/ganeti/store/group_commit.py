"""The loop's side of the writer thread: waiting transactions share the next sync.

A batch is announced once it is written, and again once it is synced. While the disk syncs it, new
transactions collect for the next. A full disk refuses writes until a probe succeeds; a broken disk ends
the queue permanently.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.store.database import CannotWriteNow, Database, DiskBroken
from ganeti.store.encoding import EncodedEntry
from ganeti.store.interface import Position, Transaction
from ganeti.store.waiting import Waiting, WaitingTransactions, Written
from ganeti.store.worker import Worker, tell

_BATCH_TRANSACTIONS = 1024
_BATCH_BYTES = 16 << 20

Outcome: TypeAlias = list[EncodedEntry] | CannotWriteNow | DiskBroken | Refused
T = TypeVar("T")


class GroupCommit:
    """The queue of waiting transactions. `written`, `synced` and `lost` are called on the loop."""

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        probe_interval_s: float,
        written: Callable[[list[EncodedEntry]], None],
        synced: Callable[[list[EncodedEntry]], None],
        lost: Callable[[str], None],
    ) -> None:
        self._database = database
        self._name = name
        self._probe_interval_s = probe_interval_s
        self._on_written = written
        self._on_synced = synced
        self._on_lost = lost
        self._writer = Worker("store-writer")
        self._waiting = WaitingTransactions(name)
        self._is_writing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = False
        self._probe_timer: asyncio.TimerHandle | None = None
        self.syncs = 0

    @property
    def waiting(self) -> WaitingTransactions:
        """The number of waiting transactions, and their bytes."""
        return self._waiting

    def add(
        self, epoch: int, txn: Transaction, size: int, written: Written | None = None
    ) -> asyncio.Future[Position]:
        """Queue a transaction; the future gets its position once it is synced, or when `written` sets it."""
        self._check_open()
        done = self._waiting.add(epoch, txn, size, written)
        self._begin()
        return done

    def add_unawaited(self, epoch: int, txn: Transaction, size: int) -> None:
        """Queue a transaction; if it is refused later, the next one is refused too."""
        self._check_open()
        self._waiting.add_unawaited(epoch, txn, size)
        self._begin()

    def forgive(self) -> None:
        """Forget lost submits: a caller that takes a new epoch reads everything again."""
        self._waiting.forgive()

    async def drained(self) -> None:
        """Wait until the queue is empty."""
        await self._idle.wait()

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function on the database between two batches; raises like a commit."""
        try:
            return await self._writer.call(function)
        except CannotWriteNow as error:
            self._become_full(error)
            raise Refused(self._waiting.full or str(error)) from error
        except DiskBroken as error:
            self._lose(error, [])
            raise NotMaster(f"{self._name} failed: {error}") from error

    def end(self, reason: str) -> None:
        """Refuse waiting writes permanently, because another component detected a broken disk."""
        self._lose(DiskBroken(reason, perhaps_written=False), [])

    async def close(self, last: Callable[[], None]) -> None:
        """Write what waits, run `last` on the thread, and end it."""
        self._ended = True
        self._cancel_probe()
        await self.drained()
        self._writer.post(self._database.close)
        self._writer.post(last)
        await self._writer.close()

    def _check_open(self) -> None:
        if self._ended:
            raise NotMaster(f"{self._name} is closed")

    def _begin(self) -> None:
        """Write soon: what is queued in the same turn of the loop shares the sync."""
        if not self._is_writing:
            self._is_writing = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._write_next)

    def _write_next(self) -> None:
        """Give the writer the waiting transactions, up to a limit."""
        batch: list[Waiting] = []
        size = 0
        while self._waiting and len(batch) < _BATCH_TRANSACTIONS and size < _BATCH_BYTES:
            batch.append(self._waiting.take())
            size += batch[-1].size
        self._is_writing = bool(batch)
        if not batch:
            self._idle.set()
            return
        self._idle.clear()
        loop = asyncio.get_running_loop()
        self._writer.post(lambda: self._write(loop, batch))

    def _write(self, loop: asyncio.AbstractEventLoop, batch: list[Waiting]) -> None:
        """Run on the writer: one batch, one sync."""
        outcome: Outcome
        try:
            outcome = self._database.apply([(waiting.epoch, waiting.txn) for waiting in batch])
            tell(loop, self._on_written, outcome)
            self._database.sync()
        except (CannotWriteNow, DiskBroken, Refused) as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 - our own faults must not leave callers waiting
            outcome = DiskBroken(f"unexpected: {error!r}", perhaps_written=True)
        tell(loop, self._batch_ended, batch, outcome)

    def _batch_ended(self, batch: list[Waiting], outcome: Outcome) -> None:
        if isinstance(outcome, list):
            self._acknowledge(batch, outcome)
        elif isinstance(outcome, DiskBroken):
            self._lose(outcome, batch)
        else:
            if isinstance(outcome, CannotWriteNow):
                self._become_full(outcome)
            # Later transactions may build on the refused one, so they are refused as well.
            reason = self._waiting.full or str(outcome)
            self._waiting.fail([*batch, *self._waiting.take_all()], lambda: Refused(reason))
        self._write_next()

    def _acknowledge(self, batch: list[Waiting], entries: list[EncodedEntry]) -> None:
        self.syncs += 1
        self._on_synced(entries)
        self._waiting.acknowledge(batch, [entry.position for entry in entries])

    def _lose(self, error: DiskBroken, batch: list[Waiting]) -> None:
        """End permanently.

        The outcome of running writes is unknown, waiting ones are certainly not written.
        """
        already, self._ended = self._ended, True
        self._cancel_probe()
        self._waiting.full = ""
        reason = f"{self._name} failed: {error}"
        if error.perhaps_written:
            self._waiting.fail(batch, lambda: CommitUnknown(reason))
        else:
            self._waiting.fail(batch, lambda: Refused(reason))
        self._waiting.fail(self._waiting.take_all(), lambda: Refused(reason))
        self._on_lost(reason)
        if not already:
            self._writer.post(self._database.close)

    def _become_full(self, error: CannotWriteNow) -> None:
        if not self._waiting.full:
            self._waiting.full = (
                f"{self._name} cannot be written ({error}); nothing was changed; free some space "
                "on its disk, and writes continue automatically"
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
        """Run on the writer."""
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
            self._waiting.full = ""
        elif isinstance(outcome, DiskBroken):
            self._lose(outcome, [])
        else:
            self._schedule_probe()
