"""A back end of the state in memory, without threads, with faults at every step where one can happen.

The contract suite of back ends holds it to the port, so what is built on the store is tested on it: in virtual
time, with each transaction failing in turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster, Refused
from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import (
    NO_DIGEST,
    MemberList,
    chain_digest,
    decode_ceiling,
    encode_transaction,
)
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ZERO,
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
    NotInLog,
    Position,
    Put,
    Receipt,
    Role,
    Row,
    StoreStatistics,
    Transaction,
    check_transaction,
)
from ganeti.store.leased_store import LeasedStore
from ganeti.store.register import (
    Accepted,
    AcceptRequest,
    Answer,
    MemoryRegister,
    PromiseRequest,
    Register,
    RegisterKeeper,
    accept,
    join,
    promise,
)

_SLICE_ROWS = 500


@dataclass(frozen=True, slots=True)
class Refuse:
    """This transaction, and all that wait behind it, are surely not written."""

    reason: str = "no space left (injected)"


@dataclass(frozen=True, slots=True)
class Unknown:
    """The caller does not learn whether it is written; this store stops being the master."""

    written: bool


@dataclass(frozen=True, slots=True)
class Break:
    """The disk fails while this transaction is being synced; the store is lost."""

    written: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """The sync takes this much longer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies; all that was not synced is gone."""

    written: bool = False


Fault: TypeAlias = Refuse | Unknown | Break | Delay | Crash


@dataclass
class MemoryDisk:
    """What survives a crash: the synced history of one store, and its node's register."""

    identity: Identity = field(default_factory=lambda: Identity("cluster", NodeUuid("this-node")))
    log_entries: int = 20_000
    rows: dict[tuple[str, str], bytes] = field(default_factory=dict)
    log: list[LogEntry] = field(default_factory=list)
    position: Position = ZERO
    digest: bytes = NO_DIGEST
    epoch: int = 0
    register: RegisterKeeper = field(default_factory=MemoryRegister)

    def write(self, epoch: int, txn: Transaction) -> Position:
        """Apply one transaction; Refused if the serials run out."""
        position = self.position.following(epoch)
        digest = chain_digest(self.digest, position, encode_transaction(txn))
        self.log.append(LogEntry(position, self.position, digest, txn))
        del self.log[: -self.log_entries]
        self.position, self.digest = position, digest
        for operation in txn.operations:
            if isinstance(operation, Put):
                self.rows[operation.kind, operation.key] = operation.value
            else:
                self.rows.pop((operation.kind, operation.key), None)
        return position


@dataclass(slots=True)
class _Waiting:
    epoch: int
    txn: Transaction
    size: int
    ordinal: int
    done: asyncio.Future[Position] | None


class FaultyStore(LeasedStore):
    """A `StateBackend` on a `MemoryDisk`; `inject` says which transaction meets which fault."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        *,
        sync_s: float = 0.0,
    ) -> None:
        self.disk = disk or MemoryDisk()
        identity = self.disk.identity
        super().__init__(identity)
        request = PromiseRequest(identity.cluster_uuid, 0, identity.node_uuid)
        if self.disk.register.read() is None:
            self.disk.register.decide(lambda register: join(register, request))
        self._campaigning = asyncio.Lock()
        self._changing_members = asyncio.Lock()
        self._forced = False
        self._registered_ceiling = 0
        self._sync_s = sync_s
        self._faults: dict[int, Fault] = {}
        self._queue: list[_Waiting] = []
        self._syncing: asyncio.Handle | asyncio.Task[None] | None = None
        """What will begin or end the next sync."""
        self._draining: list[asyncio.Future[None]] = []
        self._accepted = 0
        self._full = False
        self._lost_submits = 0
        self._transactions = self._syncs = self._largest_batch = self._refused = 0
        self._members = self._stored_members()
        self._position, self._epoch = self.disk.position, self.disk.epoch

    # Faults

    def inject(self, fault: Fault, *, after: int = 0) -> None:
        """Let the next transaction, or the one `after` that many more, meet a fault."""
        self._faults[self._accepted + after] = fault

    def forget_faults(self) -> None:
        """Let no injected fault happen that has not happened yet."""
        self._faults.clear()

    def set_full(self, *, full: bool) -> None:
        """Refuse all writing from now on, or no longer."""
        self._full = full

    def crash(self) -> MemoryDisk:
        """Die without notice; the disk, for the next store to start from."""
        if self._syncing is not None:
            self._syncing.cancel()
            self._end_syncing()
        self._end("crashed (injected)")
        return self.disk

    # Roles

    async def campaign(self, how: Campaign) -> None:
        async with self._campaigning:
            self._roles.check_usable()
            self._step_down("a new epoch is being taken")
            await self._drained()
            lease = await self._take_epoch(how.kind)
            self._roles.check_usable()
            self._forced = how.kind is CampaignKind.FORCE
            self._roles.change(Master(lease))

    async def _take_epoch(self, kind: CampaignKind) -> Lease:
        """Greater than all promised ones; promised, then written here, then registered (R2, R7)."""
        if kind is CampaignKind.RESUME:
            self._check_was_last()
        keeper, node = self.disk.register, self._identity.node_uuid
        cluster, known = self._identity.cluster_uuid, keeper.read()
        promised = known.promised.epoch if known else 0
        epoch = max(promised, self._epoch, self._position.epoch) + 1
        self._decide(lambda old: promise(old, PromiseRequest(cluster, epoch, node)))
        self._keep_epoch(epoch)
        self._register(epoch, max(known.job_id_ceiling if known else 0, self._stored_ceiling()))
        return Lease(epoch)

    def _check_was_last(self) -> None:
        register = self.disk.register.read()
        last = register.accepted.master if register and register.accepted else None
        if last not in (None, self._identity.node_uuid):
            raise NotMaster(f"node {last} has been the master since this node was")

    def _register(self, epoch: int, ceiling: int) -> None:
        node = self._identity.node_uuid
        accepted = Accepted(epoch, 0, node, frozenset((node,)), ceiling)
        request = AcceptRequest(self._identity.cluster_uuid, accepted)
        self._decide(lambda old: accept(old, request))
        self._registered_ceiling = max(self._registered_ceiling, ceiling)

    def _decide(self, rule: Callable[[Register | None], Answer]) -> None:
        answer = self.disk.register.decide(rule)
        if not answer.granted:
            raise NotMaster(f"this node's register refused: {answer.reason}")

    async def step_down(self, why: str) -> None:
        self._step_down(why)
        await self._drained()

    def _step_down(self, reason: str, to: NodeUuid | None = None) -> None:
        if isinstance(self._roles.role, Master):
            self._roles.change(Follower(reason, to or self._identity.node_uuid))

    def _lose(self, reason: str) -> None:
        """Closed for good: nobody may believe any more what this store says."""
        self._roles.change(Lost(reason))

    # Writing

    def submit(self, lease: Lease, txn: Transaction) -> None:
        size = check_transaction(txn)
        self._roles.check_lease(lease)
        self._admit()
        self._enqueue(lease, txn, size, None)

    def _add(self, lease: Lease, txn: Transaction, size: int) -> asyncio.Future[Position]:
        self._roles.check_lease(lease)
        self._admit()
        done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._enqueue(lease, txn, size, done)
        return done

    def _admit(self) -> None:
        if self._lost_submits:
            lost, self._lost_submits = self._lost_submits, 0
            self._refuse(f"{lost} earlier transactions without a waiting caller were refused")
        if self._full:
            self._refuse("no space left (injected)")

    def _refuse(self, reason: str) -> None:
        self._refused += 1
        raise Refused(reason)

    def _enqueue(
        self, lease: Lease, txn: Transaction, size: int, done: asyncio.Future[Position] | None
    ) -> None:
        self._queue.append(_Waiting(lease.epoch, txn, size, self._accepted, done))
        self._accepted += 1
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().call_soon(self._sync)

    def _sync(self) -> None:
        """Begin a sync, which everything that waits now shares."""
        if not self._queue:
            self._end_syncing()
            return
        batch = list(self._queue)
        delays = [self._faults.get(waiting.ordinal) for waiting in batch]
        extra = sum(fault.seconds for fault in delays if isinstance(fault, Delay))
        loop = asyncio.get_running_loop()
        self._syncing = loop.call_later(self._sync_s + extra, self._synced, batch)

    def _synced(self, batch: list[_Waiting]) -> None:
        self._syncs += 1
        self._largest_batch = max(self._largest_batch, len(batch))
        for waiting in batch:
            if not self._write(waiting):
                break
        self._sync()

    def _write(self, waiting: _Waiting) -> bool:
        """Write one; False if nothing of its batch can be written any more."""
        fault = self._faults.pop(waiting.ordinal, None)
        if self._full and fault is None:
            fault = Refuse()
        if isinstance(fault, Refuse):
            self._fail_queue(Refused(fault.reason))
            return False
        if fault is None or isinstance(fault, Delay) or fault.written:
            self._position = self.disk.write(waiting.epoch, waiting.txn)
            self._transactions += 1
        if fault is None or isinstance(fault, Delay):
            self._queue.remove(waiting)
            if waiting.done and not waiting.done.done():
                waiting.done.set_result(self._position)
            return True
        self._fail(waiting, CommitUnknown("the outcome of the sync is not known (injected)"))
        self._queue.remove(waiting)
        if isinstance(fault, Unknown):
            self._step_down("the outcome of a commit is not known; take a new epoch")
            self._fail_queue(NotMaster("the outcome of an earlier commit is not known"))
        elif isinstance(fault, Break):
            self._end("the disk failed (injected)")
        else:
            self._end("crashed (injected)")
        return False

    def _fail(self, waiting: _Waiting, error: GanetiError) -> None:
        self._refused += 1
        if waiting.done is None:
            self._lost_submits += 1
        elif not waiting.done.done():
            waiting.done.set_exception(error)

    def _fail_queue(self, error: GanetiError) -> None:
        for waiting in self._queue:
            self._fail(waiting, type(error)(error.message))
        self._queue.clear()

    def _end(self, reason: str) -> None:
        self._lose(reason)
        self._fail_queue(CommitUnknown(reason))

    async def _drained(self) -> None:
        if self._syncing is not None:
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._draining.append(drained)
            await drained

    def _end_syncing(self) -> None:
        self._syncing = None
        draining, self._draining = self._draining, []
        for waiter in draining:
            if not waiter.done():
                waiter.set_result(None)

    def _keep_epoch(self, epoch: int) -> None:
        if self._full:
            self._refuse("no space left (injected)")
        self.disk.epoch = self._epoch = epoch
        self._lost_submits = 0
        self._members = self._stored_members()  # an unknown commit may have changed them

    def _stored_members(self) -> MemberList:
        row = self.disk.rows.get((META_KIND, MEMBERS_KEY))
        return MemberList.decode(row, self._identity.node_uuid)

    def _stored_ceiling(self) -> int:
        return decode_ceiling(self.disk.rows.get((META_KIND, JOB_ID_CEILING_KEY)))

    async def log_after(self, position: Position) -> list[LogEntry]:
        self._roles.check_readable()
        log = self.disk.log
        if position == self.disk.position:
            return []
        starts = [index for index, entry in enumerate(log) if entry.previous == position]
        if not starts:
            raise NotInLog(f"the log does not continue {position}; load a snapshot")
        return log[starts[0] : starts[0] + _SLICE_ROWS]

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        self._roles.check_lease(lease)
        self._register(lease.epoch, ceiling)
        await self._write_ceiling(lease, ceiling)

    # Members

    async def members(self) -> Membership:
        self._roles.check_readable()
        return self._membership(max(self._registered_ceiling, self._stored_ceiling()))

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        async with self._changing_members:
            position = await self._write_members(lease, change)
        return Receipt(position, self._is_degraded())

    def _members_now(self) -> MemberList:
        return self._members

    def _members_are(self, members: MemberList) -> None:
        self._members = members

    def _is_degraded(self) -> bool:
        if self._members.candidates != {self._identity.node_uuid}:
            return True
        is_master = isinstance(self._roles.role, Master)
        return is_master and self._forced and len(self._members.voters) > 1

    def _membership(self, ceiling: int) -> Membership:
        node = self._identity.node_uuid
        is_master = isinstance(self._roles.role, Master)
        return Membership(
            master=node if is_master else None,
            epoch=self._epoch,
            voters=self._members.voters,
            candidates=self._members.candidates,
            holders=frozenset((node,)),
            degraded=self._is_degraded(),
            job_id_ceiling=ceiling,
        )

    # Reading

    async def load(self) -> AsyncGenerator[Position | Row, None]:
        self._roles.check_readable()
        position, rows = self.disk.position, sorted(self.disk.rows.items())
        yield position
        for number, ((kind, key), value) in enumerate(rows):
            if number % _SLICE_ROWS == 0:
                await asyncio.sleep(0)
                self._roles.check_readable()
            yield Row(kind, key, value)

    @property
    def role(self) -> Role:
        """That of the statistics, for who asks often."""
        return self._roles.role

    @property
    def is_degraded(self) -> bool:
        return isinstance(self._roles.role, Master) and self._is_degraded()

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            role=self._roles.role,
            position=self.disk.position,
            digest=self.disk.digest,
            transactions=self._transactions,
            syncs=self._syncs,
            largest_batch=self._largest_batch,
            waiting=len(self._queue),
            waiting_bytes=sum(waiting.size for waiting in self._queue),
            refused=self._refused,
            is_full=self._full,
            log_entries=len(self.disk.log),
            degraded=self.is_degraded,
        )

    async def close(self) -> None:
        if self._roles.is_closed:
            return
        self._roles.is_closed = True
        await self._drained()
        self._roles.close()
