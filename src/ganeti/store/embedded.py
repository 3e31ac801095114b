"""The embedded back end: one candidate's part of a replicated state (R2-R10).

    Follower --campaign--> Master(lease)
    Master --a greater epoch; 10 s without a majority; handed over--> Follower(why)
    any --EIO, failed sync, damage--> Lost(why)

It holds a local log, a session that follows another master, and a leader term while it is the master
itself; `campaign` has the way from one to the other. A cluster of one node has one voter and no peers.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator
from pathlib import Path

from ganeti import __version__
from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.campaign import Candidate, Elected, run_campaign
from ganeti.store.database import History, HistoryDiffers
from ganeti.store.election import Electing
from ganeti.store.encoding import EncodedEntry, MemberList
from ganeti.store.feeding import send_log, send_snapshot
from ganeti.store.follower import SNAPSHOT_S, FollowerSession, HighestEpoch
from ganeti.store.interface import (
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
    Position,
    Receipt,
    Row,
    StoreStatistics,
    Transaction,
    check_transaction,
)
from ganeti.store.leader import LeaderPorts, LeaderTerm
from ganeti.store.leased_store import LeasedStore
from ganeti.store.local_log import LocalLog, Options
from ganeti.store.ports import Ports
from ganeti.store.reason import Reason
from ganeti.store.register import Accepted, Answer, Register, check_epoch
from ganeti.store.stream import (
    Channel,
    ChannelClosed,
    Done,
    Handler,
    Hello,
    HelloAcknowledged,
    Pull,
    Purpose,
    Reject,
)

HAND_OVER_S = 5.0
LAST_ACKS_S = 2.0
RELEASED_S = 60.0
"""Time for which the consent of a master that has ended in favour of this node stays valid."""

_log = logging.getLogger(__name__)


class EmbeddedStore(LeasedStore):
    """The `StateBackend` of a candidate, and its own `Fence`: the vote has promised the epoch."""

    def __init__(self, path: Path, identity: Identity, ports: Ports, options: Options) -> None:
        super().__init__(identity)
        self._ports = ports
        self._local = LocalLog(
            path, identity, options, written=self._written, synced=self._synced, lost=self._lose
        )
        self._highest = HighestEpoch()
        self._session = FollowerSession(identity.node_uuid, self._local, self._highest)
        self._candidate = Candidate(identity, ports, self._local, self._session, self._highest)
        self._term: LeaderTerm | None = None
        self._campaigning = asyncio.Lock()
        self._handing_over = asyncio.Lock()
        self._held_up = 0
        """Number of writes that wait for the end of a hand-over; later writes queue behind them."""
        self._changing_members = asyncio.Lock()
        self._changing: set[asyncio.Task[Receipt]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._registered_ceiling = 0
        self._released: float | None = None
        """Time at which the last master ended in favour of this node.

        None if another one was followed since.
        """

    @classmethod
    async def open(
        cls, path: Path, identity: Identity, ports: Ports, options: Options | None = None
    ) -> "EmbeddedStore":
        """Open or create this candidate's database, as a follower.

        StoreError if it is damaged, in use, or of another cluster.
        """
        store = cls(path, identity, ports, options or Options())
        try:
            await store._local.open()
        except BaseException:
            await store.close()
            raise
        register = await ports.beside(ports.register.read)
        store._highest.sees(register.promised.epoch if register else 0)
        if register is not None and register.accepted is not None:
            store._knows_master(register.accepted.master)
        return store

    # Roles

    async def campaign(self, how: Campaign) -> None:
        kind = how.kind
        if kind is CampaignKind.HAND_OVER and not await self._master_agrees():
            kind = CampaignKind.VOTE
        async with self._campaigning:
            await self._finish_term("a new epoch is being taken")
            self._roles.check_usable()
            await self._local.drained()
            last = await self._last_registered()
            if kind is CampaignKind.RESUME:
                self._check_was_last(last)
                kind = CampaignKind.VOTE
            elected = await run_campaign(self._candidate, kind, last)
            self._roles.check_usable()
            self._begin_term(elected)

    def _begin_term(self, elected: Elected) -> None:
        ports = LeaderPorts(
            self._identity, self._ports.voters, self._ports.peers, self._local, self._superseded
        )
        self._released = None
        self._registered_ceiling = elected.accepted.job_id_ceiling
        self._term = LeaderTerm(
            ports, elected.accepted, forced=elected.forced, registered_at=elected.registered_at
        )
        self._term.start(self._local.members)
        self._roles.change(Master(Lease(elected.accepted.epoch)))

    async def _last_registered(self) -> Accepted | None:
        """Return the last accepted registration in this node's register."""
        register = await self._ports.beside(self._ports.register.read)
        return register.accepted if register else None

    def _check_was_last(self, last: Accepted | None) -> None:
        """Raise NotMaster unless this node was the last master."""
        if last is not None and last.master != self._identity.node_uuid:
            self._knows_master(last.master)
            raise NotMaster(Reason("node {} has been the master since this node was", last.master))

    def _knows_master(self, master: NodeUuid) -> None:
        """Record the last known master: another node, or this one."""
        if isinstance(self._roles.role, Follower):
            self._roles.change(Follower("", master))

    async def step_down(self, why: str) -> None:
        await self._end_term(why)
        await self._local.drained()

    async def _end_term(self, why: str, to: NodeUuid | None = None) -> None:
        leader, self._term = self._term, None
        if leader is not None:
            self._follows(why, to)
            await leader.close(why)

    async def _finish_term(self, why: str) -> None:
        """Accept no more writes, and give waiting writes a little time to be acknowledged."""
        leader = self._term
        if leader is None:
            return
        self._follows(why)
        await self._local.drained()
        with contextlib.suppress(TimeoutError, CommitUnknown):
            async with asyncio.timeout(LAST_ACKS_S):
                await leader.acknowledged(self._local.tail.position)
        await self._end_term(why)

    def _superseded(self, why: str) -> None:
        """Handle the end of the leader term; the role notifies the daemon."""
        leader, self._term = self._term, None
        self._follows(why)
        if leader is not None:
            ending = asyncio.create_task(leader.close(why), name="end of a leader term")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _follows(self, why: str, to: NodeUuid | None = None) -> None:
        if isinstance(self._roles.role, Master):
            self._roles.change(Follower(why, to or self._identity.node_uuid))

    def _lose(self, reason: str) -> None:
        """Close for good: callers must no longer rely on this store."""
        self._roles.change(Lost(reason))
        self._superseded(reason)

    def _current_term(self) -> LeaderTerm:
        if self._term is None:
            raise NotMaster("this node is not the master")
        return self._term

    # The fence: the vote has promised the epoch on a majority

    async def promise(self, epoch: int) -> None:
        if self._current_term().epoch != epoch:
            raise NotMaster(f"epoch {epoch} is over")

    async def renew(self, epoch: int) -> None:
        await self.promise(epoch)
        await self._current_term().renew()

    def holds(self, epoch: int) -> bool:
        leader = self._term
        return leader is not None and leader.epoch == epoch and leader.holds

    def majority_at(self, epoch: int) -> float | None:
        leader = self._term
        return -math.inf if leader is None or leader.epoch != epoch else leader.majority_at()

    # Reading and writing

    def load(self) -> AsyncGenerator[Position | Row, None]:
        return self._local.load()

    async def log_after(self, position: Position) -> list[LogEntry]:
        leader = self._current_term()
        if position == self._local.tail.position:
            await leader.acknowledged(position)
            return []
        found = await self._local.entries_after(position)
        if found:
            await leader.acknowledged(found[-1].position)
        return [entry.decoded() for entry in found]

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        size = check_transaction(txn)
        await self._until_writable(lease)
        leader = self._current_term()
        position = await self._local.add(lease.epoch, txn, size, leader.acknowledge)
        return Receipt(position, leader.is_degraded)

    def post(self, lease: Lease, txn: Transaction) -> asyncio.Future[Position] | None:
        if self._handing_over.locked() or self._held_up:
            return None
        size = check_transaction(txn)
        self._roles.check_lease(lease)
        return self._local.add(lease.epoch, txn, size, self._current_term().acknowledge)

    def submit(self, lease: Lease, txn: Transaction) -> None:
        if self._handing_over.locked():
            raise Refused("the mastership is being handed over")
        size = check_transaction(txn)
        self._roles.check_lease(lease)
        self._local.add_unawaited(lease.epoch, txn, size)

    async def _until_writable(self, lease: Lease) -> None:
        """Wait until writes are allowed; raises like `commit`.

        A caller that adds a write at once afterwards keeps the order of the calls.
        """
        if self._handing_over.locked() or self._held_up:
            self._held_up += 1
            try:
                async with self._handing_over:
                    pass
            finally:
                self._held_up -= 1
        self._roles.check_lease(lease)

    def _written(self, entries: list[EncodedEntry]) -> None:
        if self._term is not None:
            self._term.written(entries)

    def _synced(self, entries: list[EncodedEntry]) -> None:
        if self._term is not None:
            self._term.synced(entries[-1].position)

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        self._roles.check_lease(lease)
        try:
            await self._current_term().register(ceiling=ceiling)
        except Refused:
            # The register lies beside the database, and the database detects whether the disk is
            # full or broken (G16).
            await self._local.check_disk()
            raise
        await self._write_ceiling(lease, ceiling)
        self._registered_ceiling = max(self._registered_ceiling, ceiling)

    def _is_degraded(self) -> bool:
        return self._term is not None and self._term.is_degraded

    @property
    def is_degraded(self) -> bool:
        return self._is_degraded()

    def statistics(self) -> StoreStatistics:
        return self._local.statistics(self._roles.role, degraded=self.is_degraded)

    # Members

    async def members(self) -> Membership:
        self._local.check_readable()
        stored = await self._local.stored_ceiling()
        node, leader, members = self._identity.node_uuid, self._term, self._local.members
        # A follower knows the holders of the state at the last registration.
        accepted = leader.accepted if leader else await self._last_registered()
        holders = accepted.sync_set if accepted else frozenset((node,))
        registered = accepted.job_id_ceiling if accepted else 0
        return Membership(
            master=node if leader else None,
            epoch=self._local.epoch,
            voters=members.voters,
            candidates=members.candidates,
            holders=frozenset(leader.sync_set.members) if leader else holders,
            degraded=self.is_degraded,
            job_id_ceiling=max(stored, registered, self._registered_ceiling),
        )

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        self._roles.check_lease(lease)
        changing = asyncio.create_task(self._change_members(lease, change), name="members")
        self._changing.add(changing)
        changing.add_done_callback(self._change_ended)
        # Shielded: a written change must be registered even if the caller is cancelled.
        await asyncio.wait([changing])
        if changing.cancelled():
            raise CommitUnknown("the store was closed while its members changed")
        return changing.result()

    def _change_ended(self, changing: asyncio.Task[Receipt]) -> None:
        self._changing.discard(changing)
        if not changing.cancelled():
            changing.exception()  # the caller may be gone

    async def _change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        """Make one change after the other, so that the registers never lag by two voters (R3)."""
        async with self._changing_members:
            leader = self._current_term()
            await leader.members_settled()
            position = await self._write_members(lease, change)
            await leader.acknowledged(position)
            leader.members_are(self._local.members)
            await leader.members_settled()
        return Receipt(position, leader.is_degraded)

    async def _write_members(self, lease: Lease, change: MemberChange) -> Position:
        await self._until_writable(lease)
        return await super()._write_members(lease, change)

    def _add(self, lease: Lease, txn: Transaction, size: int) -> asyncio.Future[Position]:
        return self._local.add(lease.epoch, txn, size)

    def _members_now(self) -> MemberList:
        return self._local.members

    def _members_are(self, members: MemberList) -> None:
        self._local.members = members

    # What other candidates ask

    @property
    def handlers(self) -> dict[Purpose, Handler]:
        """Return handlers of calls from other candidates, by purpose."""
        return {
            "replicate": self._answer_master,
            "fence": self._answer_candidate,
            "hand-over": self._answer_hand_over,
        }

    async def _answer_master(self, channel: Channel, hello: Hello) -> None:
        if await self._meets_epoch(channel, hello):
            master = NodeUuid(hello.node_uuid)
            self._released = None
            self._knows_master(master)
            await self._session.follow(channel, master, hello.epoch)

    async def _answer_candidate(self, channel: Channel, hello: Hello) -> None:
        """Send a campaigning candidate the transactions that it lacks."""
        if not await self._meets_epoch(channel, hello):
            return
        async with asyncio.timeout(SNAPSHOT_S):
            pull = await channel.receive()
        if not isinstance(pull, Pull):
            raise ChannelClosed("the only valid message here is Pull")
        theirs = History(Position.from_int(pull.position), pull.digest)
        try:
            if await self._local.continues_from(theirs):
                await send_log(channel, self._local.entries_after, theirs.position)
            else:
                shared = await self._local.shared_with(theirs)
                await send_snapshot(channel, self._local.slices(), shared)
        except HistoryDiffers as err:
            raise ChannelClosed(str(err)) from err
        await channel.send(Done())
        await channel.receive()  # the peer closes

    async def _meets_epoch(self, channel: Channel, hello: Hello) -> bool:
        """Return whether the caller's epoch counts here; every older epoch has then ended."""
        if why := await self._refusal(hello):
            await channel.send(Reject(why, self._highest.value))
            return False
        await self._end_term(Reason(f"node {{}} has epoch {hello.epoch}", hello.node_uuid))
        await self._session.end()
        await self._local.drained()
        self._local.check_readable()
        self._highest.check(hello.epoch)
        tail = self._local.tail
        await channel.send(HelloAcknowledged(tail.position.as_int(), tail.digest))
        return True

    async def _refusal(self, hello: Hello) -> str:
        """Return why an epoch is refused.

        A greater one is written down first and recognised from now on (R2).
        """
        master = NodeUuid(hello.node_uuid)

        def rule(register: Register | None) -> Answer:
            return check_epoch(register, hello.epoch, master)

        answer = await self._ports.beside(lambda: self._ports.register.decide(rule))
        self._highest.sees(answer.register.promised.epoch if answer.register else 0)
        if not answer.granted:
            return answer.reason
        if hello.epoch < self._highest.value:
            return f"epoch {hello.epoch} is over"
        if self._term is not None and self._term.epoch >= hello.epoch:
            return f"this node is the master in epoch {self._term.epoch}"
        return ""

    # Handing over

    async def _answer_hand_over(self, channel: Channel, hello: Hello) -> None:
        to = NodeUuid(hello.node_uuid)
        if self._term is None or to not in self._local.members.candidates:
            await channel.send(Reject("this node is not the master, or the other node is unknown"))
            return
        try:
            await self._hand_over(to)
        except (NotMaster, StoreError) as err:
            await channel.send(Reject(err.message))
            return
        await channel.send(Done())

    async def _hand_over(self, to: NodeUuid) -> None:
        """Hand over: bring `to` up to date, then end. NotMaster if that fails; the term then continues.

        Writes wait meanwhile. They are refused if the term ends, and continue otherwise.
        """
        async with self._campaigning:
            self._roles.check_usable()
            leader, local = self._current_term(), self._local
            await leader.follower_has(to, local.tail.position, HAND_OVER_S)
            async with self._handing_over:
                await local.drained()
                await leader.follower_has(to, local.tail.position, LAST_ACKS_S)
                await leader.acknowledged(local.tail.position)
                await self._end_term("the mastership was handed over", to)

    async def _master_agrees(self) -> bool:
        """Return whether there is a master that has ended in favour of this node, now or a moment ago."""
        role, loop = self._roles.role, asyncio.get_running_loop()
        master = role.master if isinstance(role, Follower) else None
        if master is None or master == self._identity.node_uuid:
            return False
        if self._released is not None and loop.time() - self._released < RELEASED_S:
            return True
        try:
            await self._ask_for_hand_over(master)
        except NotMaster as err:
            _log.info("cannot hand over the mastership: %s", err)
            return False
        self._released = loop.time()
        return True

    async def _ask_for_hand_over(self, master: NodeUuid) -> None:
        """Request a hand-over from the master; NotMaster if it refuses."""
        identity, voters = self._identity, self._local.members.voters
        electing = Electing(identity.node_uuid, CampaignKind.HAND_OVER, voters, __version__)
        if refusal := election.is_outdated(electing, await self._last_registered()):
            raise NotMaster(refusal.reason)
        try:
            channel = await self._ports.peers.connect(master)
            try:
                hello = Hello(identity.cluster_uuid, 0, identity.node_uuid, "hand-over")
                async with asyncio.timeout(2 * HAND_OVER_S):
                    await channel.send(hello)
                    answer = await channel.receive()
            finally:
                channel.close()
        except (ChannelClosed, TimeoutError) as err:
            raise NotMaster(f"the master does not answer: {str(err) or 'no answer'}") from err
        if not isinstance(answer, Done):
            raise NotMaster(getattr(answer, "reason", "the master does not agree"))

    # Housekeeping

    async def close(self) -> None:
        if self._roles.is_closed:
            return
        await self._finish_term("the store is closed")
        for changing in self._changing:
            changing.cancel()
        await asyncio.gather(*self._changing, *self._ending, return_exceptions=True)
        await self._session.close()
        await self._candidate.close()
        self._roles.is_closed = True
        await self._local.close()
        self._roles.close()
