"""Transactions that wait to be written, and the outcome for each one's caller."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from ganeti.base.errors import GanetiError, Refused
from ganeti.base.staggered_waker import StaggeredWaker
from ganeti.store.interface import Position, Transaction

MAX_BYTES = 64 << 20


Written: TypeAlias = Callable[[asyncio.Future[Position], Position], None]
"""Callback that gives the caller the position of a written transaction, at once or later."""


class Waiting(msgspec.Struct, frozen=True):
    """A transaction that is not written yet; `done` is None without a waiting caller."""

    epoch: int
    txn: Transaction
    size: int
    done: asyncio.Future[Position] | None
    written: Written | None = None
    """None: the caller waits only for the write."""


class WaitingTransactions:
    """Waiting and running transactions, in order, until each has its outcome."""

    def __init__(self, destination: str) -> None:
        """`destination` appears in the text of a refusal."""
        self._destination = destination
        self._queue: deque[Waiting] = deque()
        self._waking = StaggeredWaker()
        self._lost_submits = 0
        self.bytes = 0
        self.full = ""
        """The reason why nothing can be written now; '' if writes are possible."""
        self.refused = self.transactions = self.largest_batch = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(
        self, epoch: int, txn: Transaction, size: int, written: Written | None = None
    ) -> asyncio.Future[Position]:
        """Queue a transaction; the future gets its position, or an error. Refused.

        `written`, if given, is called with the future and the position instead. Cancelling the
        future does not revoke the transaction.
        """
        self._admit(size)
        done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._enqueue(Waiting(epoch, txn, size, done, written))
        return done

    def add_unawaited(self, epoch: int, txn: Transaction, size: int) -> None:
        """Queue a transaction; if it is refused later, the next one is refused too. Refused."""
        self._admit(size)
        self._enqueue(Waiting(epoch, txn, size, None))

    def forgive(self) -> None:
        """Forget lost submits: a caller that takes a new epoch reads everything again."""
        self._lost_submits = 0

    def next(self) -> Waiting:
        """Return the oldest waiting transaction and leave it in the queue."""
        return self._queue[0]

    def take(self) -> Waiting:
        """Remove and return the oldest waiting transaction, to be written."""
        return self._queue.popleft()

    def take_all(self) -> list[Waiting]:
        return [self.take() for _ in range(len(self._queue))]

    def acknowledge(self, batch: Sequence[Waiting], positions: Sequence[Position]) -> None:
        """Record that these transactions are written, together."""
        self.transactions += len(batch)
        self.largest_batch = max(self.largest_batch, len(batch))
        for one, position in zip(batch, positions, strict=True):
            self.bytes -= one.size
            if one.done is not None:
                (one.written or self._waking.resolve)(one.done, position)

    def fail(self, batch: Iterable[Waiting], error: Callable[[], GanetiError]) -> None:
        """Record that these transactions failed, or that their outcome is unknown.

        Each caller gets its own error.
        """
        for one in batch:
            self.bytes -= one.size
            self.refused += 1
            if one.done is None:
                self._lost_submits += 1
            elif not one.done.done():
                one.done.set_exception(error())

    def _admit(self, size: int) -> None:
        """Refuse a transaction that cannot succeed."""
        if self._lost_submits:
            lost, self._lost_submits = self._lost_submits, 0
            self._refuse(f"{lost} earlier transactions without a waiting caller were refused")
        if self.full:
            self._refuse(self.full)
        if self.bytes + size > MAX_BYTES:
            self._refuse(f"{self.bytes} bytes already wait for {self._destination}; try again")

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        raise Refused(reason)

    def _enqueue(self, waiting: Waiting) -> None:
        self._queue.append(waiting)
        self.bytes += waiting.size
