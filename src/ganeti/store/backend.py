"""The two ports of the state: the back end that keeps it, and the fence before its nodes.

The daemon works through these and knows no concrete back end. One back end asks for votes when it
is told to (embedded); another campaigns all the time by itself (etcd). Both fit:

    role_changes  --Master(lease)-->  fence.promise(epoch)  -->  the master's services open
                  --anything else-->  they close
    while the lease lasts (`fence.keep_promised`): fence.renew(epoch); NotMaster from it --> step_down(why)

Every method may raise StoreError where the data cannot be read or written any more (broken disk,
damaged content, closed store); the role is Lost then, unless the back end was closed.
"""

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
    """What was written, for who wants to know what has happened since."""

    async def log_after(self, position: Position) -> list[LogEntry]:
        """Some acknowledged transactions that follow a position, in order; none after the last one.

        What was written at once may be one entry. A row that is removed may be put before, in the same
        entry, as it was. Every master gives the same entries. Raises NotInLog where what follows is not
        kept any more, or this state never was at that position; NotMaster, CommitUnknown, StoreError.
        """
        ...

    def statistics(self) -> StoreStatistics:
        """Figures of this moment; `role` is the one that `role_changes` told last."""
        ...


class StateBackend(StateHistory, Protocol):
    """Ordered, replicated transactions with one writer; positions are (epoch, serial).

    Epochs grow with every lease that is given, anywhere in the cluster (R2), and are greater than all
    that the node registers have promised: a back end with epochs of its own raises them to that.
    """

    def role_changes(self) -> AsyncGenerator[Role, None]:
        """The role now, then each change of it in order, until the back end is closed.

        Any number may listen. Lost is the last role there is; a lease appears in one Master only.
        """
        ...

    async def campaign(self, how: Campaign) -> None:
        """Try once to become the master; the answer is the role.

        On return `role_changes` has been told Master(lease). A master that campaigns takes a new
        epoch: its lease ends first (Follower), and what waited is written before.

        A back end that elects by itself campaigns from its opening on, and says Master without
        having been asked. There VOTE and RESUME wait for the next election for a moment, HAND_OVER
        asks the master to step down in favour of this node, a campaign of the present master
        returns at once, and FORCE raises NotMaster that says how to recover the quorum.

        Raises NotYet (the same may be granted soon, without anybody doing anything), NotMaster (not
        granted; says why and what helps), Refused (full disk), StoreError. No lease is left then.
        """
        ...

    async def step_down(self, why: str) -> None:
        """End the lease, if any: what was built on it cannot go on (R13).

        The role is Follower(why) before the first wait. What waits is then written or refused;
        each waiting caller gets the receipt, Refused, NotMaster or CommitUnknown before this returns.
        A back end that elects by itself lets another candidate be elected first, if one is there.
        """
        ...

    def load(self) -> AsyncGenerator[Position | Row, None]:
        """One consistent snapshot: its position first, then all rows by kind and key.

        On a master it has all that was acknowledged under its lease; on a follower it may be older.
        """
        ...

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        """Write, and return once that survives what the back end promises (R4).

        Raises NotMaster or Refused (surely not written) or CommitUnknown. Calls are applied in
        order, also with `submit`. Cancelling the caller does not take the transaction back.
        """
        ...

    def submit(self, lease: Lease, txn: Transaction) -> None:
        """Write in order without waiting; raises like `commit` for what is known at once.

        If it is refused later, the next `commit` or `submit` is refused too, once, and says so.
        """
        ...

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        """Make durable that ids up to there may be given out; only then they are (R12).

        It is row (META_KIND, JOB_ID_CEILING_KEY) of the state too, and never goes back. Raises like
        `commit`; then no id above the old ceiling may be used.
        """
        ...

    async def members(self) -> Membership:
        """Who takes part, as this node knows it; no question is asked of other nodes for it."""
        ...

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        """Add, change or remove one node; returns once that counts. Raises like `commit`.

        What the node is already is written again, harmlessly. Refused where the master would leave.
        """
        ...

    async def backup(self, sink: ByteSink) -> Position:
        """Write one consistent snapshot as a stream (`backup.py`); its position."""
        ...

    @property
    def is_degraded(self) -> bool:
        """As in `Membership`, while this node is the master; quick, since each answer to a client says it."""
        ...

    async def close(self) -> None:
        """Write what waits, end the lease and every iteration, free all threads and files.

        No role is told for it. May be repeated.
        """
        ...


class Fence(Protocol):
    """The epoch on the registers of the nodes: it makes a late master harmless.

    A node that has promised an epoch refuses the changing calls of every older one (G4). The voters
    are `Membership.voters`; of two or fewer, this node suffices (R10).
    """

    async def promise(self, epoch: int) -> None:
        """Return once a majority of the voters has promised `epoch` to this node.

        No service of the master is open before. Where the vote that gave the lease has done it
        already, nothing is asked again. NotMaster: a node has promised a greater epoch, or no
        majority answers in time; the daemon steps down then.
        """
        ...

    async def renew(self, epoch: int) -> None:
        """Say once to all voters that this node is the master still; waits for none that hangs.

        NotMaster if a node has promised a greater epoch, or no majority has agreed for SILENCE_S
        (R9): the daemon steps down.
        """
        ...

    def holds(self, epoch: int) -> bool:
        """Return whether surely no other node is the master by now (without force); no input or output.

        By the monotonic clock, so also right after the process was stopped for a while.
        """
        ...


@dataclass(frozen=True)
class Found:
    """What is in the place of the state now."""

    position: Position
    epoch: int = 0
    job_id_ceiling: int = 0
    damage: str = ""
    """Why it cannot be opened, where that is so."""


@dataclass(frozen=True)
class Restoration:
    """The position where a restored state continues, beyond all that anybody may have used (R10)."""

    position: Position
    digest: bytes
    """Of its history, which is one of its own."""
    job_id_ceiling: int
    voters: frozenset[NodeUuid]
    covered: tuple[Position, ...] = ()
    """Ends of states of which it has all that anybody wants: no copy of them is kept."""


class StateRestorer(Protocol):
    """Puts rows in the place of a candidate's whole state, while no master daemon runs on its node."""

    def held(self) -> AbstractAsyncContextManager[None]:
        """Nobody else on this node opens the state meanwhile; StoreError if the master daemon has it."""
        ...

    async def found(self) -> Found:
        """What a restore would replace."""
        ...

    def rows(self) -> AsyncGenerator[Row, None]:
        """All rows of a state that is not damaged; StoreError."""
        ...

    async def replace(self, plan: Restoration, rows: Iterable[Row]) -> str:
        """Let `rows` be the whole state, and this node the only one with it; where the old one is kept.

        In order: the state, then this node's register, which has promised the epoch to it. If we die
        in between, a repeated restore does both again. '' where there was no old state. Refused (full
        disk), StoreError, OSError, or what `rows` raises: the state has not changed then.
        """
        ...


async def become_master(backend: StateBackend, how: Campaign | None = None) -> Lease:
    """Campaign (for votes, unless it is said how); the lease. Raises like `campaign`."""
    await backend.campaign(how or Campaign())
    role = backend.statistics().role
    if not isinstance(role, Master):
        raise NotMaster("the mastership that was granted has ended already")
    return role.lease
