"""The two interfaces of the state: the back end that stores it, and the fence on the nodes.

The daemon uses only these and knows no concrete back end. The embedded back end asks for votes on
request; etcd campaigns all the time. Both fit:

    role_changes  --Master(lease)-->  fence.promise(epoch)  -->  the master's services open
                  --any other role-->  they close
    while the lease lasts (`fence.keep_promised`): fence.renew(epoch); NotMaster from it --> step_down(why)

Every method may raise StoreError if the data can no longer be read or written (broken disk, damaged
content, closed store); the role is Lost then, unless the back end was closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ganeti.base.errors import NotMaster
from ganeti.model.objects import NodeUuid
from ganeti.store.interface import (
    ByteSink,
    Campaign,
    Lease,
    LogEntry,
    Master,
    MemberChange,
    Membership,
    Position,
    Receipt,
    Role,
    Row,
    StoreStatistics,
    Transaction,
)


class StateHistory(Protocol):
    """The written transactions, for readers that follow them."""

    async def log_after(self, position: Position) -> list[LogEntry]:
        """Return some acknowledged transactions after a position, in order; none after the last one.

        One entry may hold transactions that were written together. An entry may begin with a
        removed row's old content. Every master returns the same entries. Raises NotInLog if the
        following entries are no longer stored or this state never had that position; NotMaster,
        CommitUnknown, StoreError.
        """
        ...

    def statistics(self) -> StoreStatistics:
        """Return current figures; `role` is the one that `role_changes` yielded last."""
        ...


class StateBackend(StateHistory, Protocol):
    """Ordered, replicated transactions with one writer; positions are (epoch, serial).

    Epochs grow with every lease that is given, anywhere in the cluster (R2), and exceed every epoch
    that the node registers have promised. A back end with its own epochs raises them accordingly.
    """

    def role_changes(self) -> AsyncGenerator[Role, None]:
        """Yield the present role, then each change of it in order, until the back end is closed.

        Any number of listeners is allowed. Lost is the last role; a lease appears in one Master
        only.
        """
        ...

    async def campaign(self, how: Campaign) -> None:
        """Try once to become the master; return the role.

        On return `role_changes` has yielded Master(lease). A master that campaigns takes a new
        epoch: it writes all waiting transactions, then its lease ends (Follower).

        A back end with its own elections campaigns from its opening on and reports Master without a
        request. There, VOTE and RESUME wait briefly for the next election, HAND_OVER asks the
        master to step down in favour of this node, a campaign of the present master returns at
        once, and FORCE raises NotMaster with instructions to recover the quorum.

        Raises NotYet (the same request may be granted soon), NotMaster (not granted; gives the
        reason and a remedy), Refused (full disk), StoreError. No lease is left then.
        """
        ...

    async def step_down(self, why: str) -> None:
        """End the lease, if any: everything built on it must end (R13).

        The role is Follower(why) before the first wait. Waiting transactions are then written or
        refused; each waiting caller gets the receipt, Refused, NotMaster or CommitUnknown before
        this returns. A back end with its own elections lets another candidate be elected first, if
        one exists.
        """
        ...

    def load(self) -> AsyncGenerator[Position | Row, None]:
        """Yield one consistent snapshot: its position first, then all rows by kind and key.

        On a master the snapshot has everything acknowledged under its lease; on a follower it may
        be older.
        """
        ...

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        """Write, and return once the write survives the failures that the back end covers (R4).

        Raises NotMaster or Refused (certainly not written) or CommitUnknown. Calls are applied in
        order, also with `submit`. Cancelling the caller does not revoke the transaction.
        """
        ...

    def post(self, lease: Lease, txn: Transaction) -> asyncio.Future[Position] | None:
        """Queue at once what `commit` would: all that is written later comes after it, and is refused with it.

        The future gets the position. None while the order is open (during a hand-over): nothing is queued then.
        """
        ...

    def submit(self, lease: Lease, txn: Transaction) -> None:
        """Write in order without waiting; raises like `commit` for faults known at once.

        If the transaction is refused later, the next `commit` or `submit` is refused too, once,
        with that reason.
        """
        ...

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        """Make the ceiling durable; only then ids up to it may be given out (R12).

        The ceiling is also row (META_KIND, JOB_ID_CEILING_KEY) of the state, and never decreases.
        Raises like `commit`; then no id above the old ceiling may be used.
        """
        ...

    async def members(self) -> Membership:
        """Return the members as this node knows them; contacts no other node."""
        ...

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        """Add, change or remove one node; return once the change is effective. Raises like `commit`.

        Repeating a change is idempotent. Refused where the master would leave.
        """
        ...

    async def backup(self, sink: ByteSink) -> Position:
        """Write one consistent snapshot as a stream (`backup.py`); return its position."""
        ...

    @property
    def is_degraded(self) -> bool:
        """Return `Membership.is_degraded` while this node is the master.

        Fast, since each answer to a client has it.
        """
        ...

    async def close(self) -> None:
        """Write what waits, end the lease and every iteration, free all threads and files.

        This reports no role. Idempotent.
        """
        ...


class Fence(Protocol):
    """The epoch in the registers of the nodes: it makes a late master harmless.

    A node that has promised an epoch refuses the changing calls of every older one (G4). The voters
    are `Membership.voters`; with two or fewer voters, this node suffices (R10).
    """

    async def promise(self, epoch: int) -> None:
        """Return once a majority of the voters has promised `epoch` to this node.

        No service of the master opens earlier. If the vote that gave the lease has obtained the
        promises, no node is asked again. NotMaster: a node has promised a greater epoch, or no
        majority answers in time; the daemon then steps down.
        """
        ...

    async def renew(self, epoch: int) -> None:
        """Confirm once to all voters that this node is still the master; does not wait for silent ones.

        NotMaster if a node has promised a greater epoch, or no majority has agreed for SILENCE_S
        (R9): the daemon steps down.
        """
        ...

    def holds(self, epoch: int) -> bool:
        """Return whether certainly no other node is the master now (force excepted); does no input or output.

        It uses the monotonic clock, so it is right also after the process was stopped for a while.
        """
        ...

    def majority_at(self, epoch: int) -> float | None:
        """Return the loop's time when the majority was asked that has confirmed this epoch last.

        -inf if no majority has. None with two voters or fewer, where a master needs no majority (R10).
        """
        ...


@dataclass(frozen=True)
class PresentState:
    """The state that a restore would replace."""

    position: Position
    epoch: int = 0
    job_id_ceiling: int = 0
    damage: str = ""
    """The reason why the state cannot be opened; '' if it can."""


@dataclass(frozen=True)
class Restoration:
    """The position where a restored state continues, beyond all that any node may have used (R10)."""

    position: Position
    digest: bytes
    """The digest of its history, which differs from all others."""
    job_id_ceiling: int
    voters: frozenset[NodeUuid]
    covered: tuple[Position, ...] = ()
    """Last positions of states that contain nothing else of use: they are replaced without a copy."""


class StateRestorer(Protocol):
    """Replaces a candidate's whole state with given rows while no master daemon runs on its node."""

    def held(self) -> AbstractAsyncContextManager[None]:
        """Lock the state of this node for the block; StoreError if the master daemon has it open."""
        ...

    async def present_state(self) -> PresentState:
        """Return the state that a restore would replace."""
        ...

    def rows(self) -> AsyncGenerator[Row, None]:
        """Return all rows of an intact state; StoreError."""
        ...

    async def replace(self, plan: Restoration, rows: Iterable[Row]) -> str:
        """Replace the state with `rows`.

        This node alone then has it. Return where the old state is preserved.

        The state is written first, then this node's register, which has promised the epoch. After a
        crash in between, a repeated restore does both again. Returns '' if there was no old state.
        After Refused (full disk), StoreError, OSError, or an error of `rows` the state is
        unchanged.
        """
        ...


async def become_master(backend: StateBackend, how: Campaign | None = None) -> Lease:
    """Campaign, by default for votes; return the lease. Raises like `campaign`."""
    await backend.campaign(how or Campaign())
    role = backend.statistics().role
    if not isinstance(role, Master):
        raise NotMaster("the granted mastership has ended already")
    return role.lease
