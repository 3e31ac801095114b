"""The queue's access to the store, which ends permanently after a write of unknown outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ganeti.base.errors import GanetiError, NotMaster, Refused
from ganeti.store.backend import StateBackend
from ganeti.store.interface import Lease, Operation, Position, Receipt, Transaction


class Journal:
    """Writes rows, and reports once that nothing can be written any more (R13)."""

    def __init__(
        self, store: StateBackend, lease: Lease, on_end: Callable[[GanetiError], None]
    ) -> None:
        self._store = store
        self._lease = lease
        self._on_end = on_end
        self._ended: GanetiError | None = None
        self.degraded = False
        """True if only the master holds the last transaction (R6)."""

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    @property
    def ended(self) -> GanetiError | None:
        """Return why nothing can be written any more."""
        return self._ended

    def end(self, error: GanetiError) -> None:
        """End all writing."""
        if self._ended is None:
            self._ended = error
            self._on_end(error)

    def close(self, error: GanetiError) -> None:
        """Stop writing on request of the daemon, without a report."""
        if self._ended is None:
            self._ended = error

    def check(self) -> None:
        """Raise NotMaster if nothing can be written any more."""
        if self._ended is not None:
            raise NotMaster(f"the job queue is closed: {self._ended.message}")

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Write, and return once it is durable. Raises Refused, NotMaster or CommitUnknown."""
        self.check()
        await self.durable(self._store.commit(self._lease, Transaction(tuple(operations))))

    def post(self, operations: Sequence[Operation]) -> asyncio.Future[Position] | None:
        """Write in order from now on; `durable` waits for it. None if only `commit` keeps the order."""
        self.check()
        return self._store.post(self._lease, Transaction(tuple(operations)))

    async def durable(self, written: Awaitable[Receipt | Position]) -> None:
        """Return once a write is durable; raises like `commit`."""
        try:
            await written
        except Refused:
            raise
        except GanetiError as err:
            self.end(err)
            raise
        self.degraded = self._store.is_degraded

    def submit(self, operations: Sequence[Operation]) -> None:
        """Write in order without waiting. Raises Refused or NotMaster."""
        self.check()
        try:
            self._store.submit(self._lease, Transaction(tuple(operations)))
        except Refused:
            raise
        except GanetiError as err:
            self.end(err)
            raise
