"""A master's transactions on their way to etcd: one request in flight; waiting transactions share the next.

Each request compares the leader's key (its create revision is the lease's token) and the head. So
it is carried out at most once, and never after another master has begun: it may be sent again until
an answer gives its outcome. The outcome stays unknown only if the lease ends meanwhile (R13).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster, ProtocolError, Refused
from ganeti.store.etcd.batch import Batch
from ganeti.store.etcd.gateway import Full, Gateway, GatewayError, NotSent, Rejected
from ganeti.store.etcd.keys import Head, Keys
from ganeti.store.etcd.messages import Compare, TxnAnswer, get, put
from ganeti.store.interface import Position, Transaction
from ganeti.store.waiting import Waiting, WaitingTransactions

AGAIN_S = 0.1
PROBE_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldLease:
    """The conditions of one lease, and the callbacks of its holder."""

    epoch: int
    token: int
    """The create revision of the leader's key."""
    is_valid: Callable[[], bool]
    """Return whether the lease may still be valid, by this node's monotonic clock."""
    lost: Callable[[str], None]
    """Called when the lease is no longer of use."""
    make_room: Callable[[], Awaitable[None]]
    """Called repeatedly while etcd is full."""


class Writer:
    """The queue before etcd, for one lease."""

    def __init__(self, gateway: Gateway, keys: Keys, head: Head, held: HeldLease) -> None:
        self._gateway, self._keys, self._head, self._held = gateway, keys, head, held
        self._waiting = WaitingTransactions("etcd")
        self._task: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._ended = ""
        self.requests = 0

    @property
    def head(self) -> Head:
        return self._head

    @property
    def waiting(self) -> WaitingTransactions:
        """The number of waiting transactions, and their bytes."""
        return self._waiting

    def add(self, txn: Transaction, size: int) -> asyncio.Future[Position]:
        """Queue a transaction; the future has its position once etcd has it."""
        self._check_open()
        done = self._waiting.add(self._held.epoch, txn, size)
        self._begin()
        return done

    def add_unawaited(self, txn: Transaction, size: int) -> None:
        """Queue a transaction; if it is refused later, the next one is refused too."""
        self._check_open()
        self._waiting.add_unawaited(self._held.epoch, txn, size)
        self._begin()

    async def end(self, why: str) -> None:
        """Accept nothing more; return when all waiting transactions have their outcome."""
        self._ended = self._ended or why
        if self._probing is not None:
            self._probing.cancel()
        tasks = [task for task in (self._task, self._probing) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _check_open(self) -> None:
        if self._ended:
            raise NotMaster(f"epoch {self._held.epoch} is over: {self._ended}")

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="etcd-writer")

    async def _run(self) -> None:
        taken: list[Waiting] = []
        try:
            # One turn of the loop, so that concurrent commits share the request.
            await asyncio.sleep(0)
            while self._waiting:
                taken = []
                await self._write_next(taken)
        except Exception as err:  # a fault in this program must not leave callers waiting
            _log.exception("writing to etcd failed")
            self._end_with(taken, CommitUnknown(f"unexpected: {err!r}"))
            raise
        finally:
            self._task = None

    async def _write_next(self, taken: list[Waiting]) -> None:
        """Write waiting transactions, as many as one request holds; they are moved to `taken` before."""
        batch = Batch.begin(self._keys, self._head)
        try:
            while self._waiting and batch.add(self._held.epoch, self._waiting.next().txn):
                taken.append(self._waiting.take())
        except Refused as err:
            if not taken:
                self._fail([self._waiting.take()], err)
                self._fail(self._waiting.take_all(), err)
                return
        try:
            await self._written(batch)
        except Full as err:
            self._become_full(err)
            self._fail([*taken, *self._waiting.take_all()], Refused(self._waiting.full))
        except Rejected as err:
            self._fail([*taken, *self._waiting.take_all()], Refused(err.message))
        except (NotMaster, CommitUnknown) as err:
            self._end_with(taken, err)
        else:
            self._acknowledge(batch, taken)

    async def _written(self, batch: Batch) -> None:
        """Return when etcd has the batch.

        Rejected, Full, NotMaster (certainly not written), or CommitUnknown.
        """
        compare = [
            Compare(self._keys.leader, create_revision=self._held.token),
            self._at(batch.before),
        ]
        look = [get(self._keys.leader), get(self._keys.head)]
        requests = batch.requests()
        perhaps = False
        while True:
            try:
                answer = await self._gateway.txn(compare, requests, look)
            except (NotSent, ProtocolError) as err:
                perhaps |= isinstance(err, ProtocolError)
                reason = err.message
            except (Full, Rejected) as err:
                if await self._was_written_all_the_same(err, batch, perhaps=perhaps):
                    return
                perhaps, reason = True, err.message
            except GatewayError as err:
                perhaps, reason = True, err.message
            else:
                if answer.succeeded or self._was_written(answer, batch, perhaps=perhaps):
                    return
            if not self._held.is_valid():
                raise self._no_quorum(reason, perhaps=perhaps)
            await asyncio.sleep(AGAIN_S)

    async def _was_written_all_the_same(
        self, error: Full | Rejected, batch: Batch, *, perhaps: bool
    ) -> bool:
        """Return whether etcd has the batch.

        `error` if certainly not; False where only a next copy can tell.
        """
        if isinstance(error, Rejected):
            if not perhaps:
                raise error
            return False
        try:
            found = (await self._gateway.range(self._keys.head)).kvs
            head = Head.decode(found[0].value if found else None)
        except (GatewayError, ProtocolError):
            head = None
        if head == batch.before and not perhaps:
            raise error
        if head != batch.after:
            # An earlier copy may be in flight; the outcome of the next one is known only once etcd
            # has room.
            self._become_full(error)
        return head == batch.after

    def _at(self, head: Head) -> Compare:
        if head == Head():
            return Compare(self._keys.head, create_revision=0)
        return Compare(self._keys.head, value=head.encode())

    def _was_written(self, answer: TxnAnswer, batch: Batch, *, perhaps: bool) -> bool:
        """Return whether an earlier copy of a request was carried out; NotMaster, CommitUnknown."""
        leaders, heads = (one.response_range.kvs for one in answer.responses)
        head = Head.decode(heads[0].value if heads else None)
        if perhaps and head == batch.after:
            return True
        epoch = self._held.epoch
        if head == batch.before and not leaders:
            raise NotMaster(f"epoch {epoch} is over: its lease has ended")
        if head == batch.before:
            raise NotMaster(f"epoch {epoch} is over: another node is the master")
        if perhaps:
            raise CommitUnknown(f"epoch {epoch} ended while a transaction was being written")
        raise NotMaster(f"epoch {epoch} is over: the state has been changed by another master")

    def _no_quorum(self, reason: str, *, perhaps: bool) -> GanetiError:
        if perhaps:
            return CommitUnknown(
                f"etcd did not report the outcome of a transaction in time: {reason}"
            )
        return NotMaster(f"etcd cannot be reached: {reason}")

    # Outcomes

    def _acknowledge(self, batch: Batch, taken: list[Waiting]) -> None:
        self._head = batch.after
        self.requests += 1
        self._waiting.acknowledge(taken, batch.positions)

    def _end_with(self, taken: list[Waiting], error: GanetiError) -> None:
        """End the lease; transactions that were not sent are certainly not written."""
        self._ended = self._ended or error.message
        self._fail(taken, error)
        self._fail(self._waiting.take_all(), NotMaster(error.message))
        self._held.lost(error.message)

    def _fail(self, waiting: Iterable[Waiting], error: GanetiError) -> None:
        self._waiting.fail(waiting, lambda: type(error)(error.message))

    # A full database

    def _become_full(self, error: GanetiError) -> None:
        self._waiting.full = (
            f"etcd has no room ({error.message}); nothing was changed; it is compacted and the "
            "write retried automatically; if that does not help, raise etcd's quota"
        )
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe(), name="etcd-probe")

    async def _probe(self) -> None:
        """Make room, and retry until there is some."""
        try:
            while self._waiting.full and not self._ended:
                await asyncio.sleep(PROBE_S)
                await self._held.make_room()
                if await self._has_room():
                    self._waiting.full = ""
        finally:
            self._probing = None

    async def _has_room(self) -> bool:
        compare = [Compare(self._keys.leader, create_revision=self._held.token)]
        if self._head == Head():
            return True
        compare.append(self._at(self._head))
        try:
            await self._gateway.txn(compare, [put(self._keys.head, self._head.encode())])
        except (GatewayError, ProtocolError):
            return False
        return True
