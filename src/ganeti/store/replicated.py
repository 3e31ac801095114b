"""The embedded back end on several candidates: one is the master, the others follow (R2-R10).

    Follower --campaign: survey, promises, tails, copy, own epoch, accepts--> Master(lease)
    Master --a greater epoch; 10 s without a majority; handed over--> Follower(why)
    any --EIO, failed sync, damage--> Lost(why)

`election` judges each round of a campaign; `reign` is the master at work; here are the rounds, and
what a follower does for the master or candidate that calls it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ganeti import __version__
from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.database import History, HistoryDiffers
from ganeti.store.election import Ballot, Electing, NoVote, Refusal, Tail, Vote
from ganeti.store.encoding import EncodedEntry, MemberList, encode_ceiling
from ganeti.store.feeding import send_log, send_snapshot
from ganeti.store.following import SNAPSHOT_S, FollowingStore
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
    Master,
    MemberChange,
    Membership,
    NotYet,
    Position,
    Put,
    Receipt,
    Row,
    StoreStatistics,
    Transaction,
    check_transaction,
)
from ganeti.store.ports import Ports
from ganeti.store.register import (
    Accepted,
    AcceptRequest,
    Answer,
    PromiseRequest,
    Register,
    check_epoch,
)
from ganeti.store.reign import ANSWER_S, Means, Reign
from ganeti.store.sqlite import Options
from ganeti.store.stream import (
    Channel,
    ChannelClosed,
    Done,
    Handler,
    Hello,
    Pull,
    Purpose,
    Sorry,
    Welcome,
)

HAND_OVER_S = 5.0
LAST_ACKS_S = 2.0
RELEASED_S = 60.0
"""How long a master that has ended in favour of this node need not be asked again."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ReplicatedStore(FollowingStore):
    """A candidate's store."""

    def __init__(self, path: Path, identity: Identity, ports: Ports, options: Options) -> None:
        super().__init__(path, identity, ports, options)
        self._reign: Reign | None = None
        self._handing_over = asyncio.Lock()
        self._released: float | None = None
        """When the last master ended in favour of this node; None if another one was followed since."""

    @classmethod
    async def join(
        cls, path: Path, identity: Identity, ports: Ports, options: Options | None = None
    ) -> "ReplicatedStore":
        """Open or make this candidate's database, as a follower; raises like `SqliteStore.open`."""
        store = cls(path, identity, ports, options or Options())
        try:
            await store._commits.run(store._open_database)
        except BaseException:
            await store.close()
            raise
        store._reached(store._database.history)
        register = await ports.beside(ports.register.read)
        store._met_epoch = register.promised.epoch if register else 0
        if register is not None and register.accepted is not None:
            store._knows_master(register.accepted.master)
        return store

    # Becoming the master

    async def campaign(self, how: Campaign) -> None:
        kind = how.kind
        if kind is CampaignKind.HAND_OVER and not await self._master_agrees():
            kind = CampaignKind.VOTE
        async with self._campaigning:
            await self._finish_reign("a new epoch is being taken")
        await super().campaign(Campaign(kind))

    async def _take_epoch(self, kind: CampaignKind) -> Lease:
        register = await self._ports.beside(self._ports.register.read)
        last = register.accepted if register else None
        if kind is CampaignKind.RESUME:
            self._check_last_master(last)
            kind = CampaignKind.VOTE
        if election.has_no_state(last, self._position):
            raise NotMaster(election.NO_STATE)
        self._members = await self._commits.run(self._read_members)
        electing = Electing(self._identity.node_uuid, kind, self._members.voters, __version__)
        known = last.voters | last.sync_set if last else frozenset()
        everybody = electing.voters | known | {electing.candidate}
        ballot = await self._ask(everybody, self._ports.voters.read)
        ballot = self._with_own_ears(ballot)
        epoch = _judged(election.judge_survey(electing, ballot, self._epoch))
        request = PromiseRequest(self._identity.cluster_uuid, epoch, self._identity.node_uuid)
        ballot = await self._ask(
            frozenset(ballot), lambda node: self._ports.voters.promise(node, request, kind)
        )
        accepted = _judged(election.judge_promises(electing, ballot))
        for node, calls in election.older_calls(ballot).items():
            _log.info("node %s still carries out for an earlier master: %s", node, calls)
        self._meets(epoch)
        await self._end_session()
        # A snapshot may have been whole only after the members were read.
        self._members = await self._commits.run(self._read_members)
        tails = await self._tails(electing, accepted, epoch)
        source = _judged(election.choose_source(electing, accepted, tails))
        if source != self._identity.node_uuid:
            await self._copy(source, epoch)
            self._members = await self._commits.run(self._read_members)
            tails[self._identity.node_uuid] = self._own_tail()
        self._check_met(epoch)
        await self._keep_epoch(epoch)
        self._epoch = epoch
        ceiling = max(election.greatest_ceiling(ballot), await self._stored_ceiling())
        first = election.first_registration(electing, epoch, accepted, tails, ceiling)
        is_elected = await self._register_first(electing, first)
        self._check_met(epoch)
        self._begin(first, forced=not is_elected)
        self._released = None
        return Lease(epoch)

    def _check_last_master(self, last: Accepted | None) -> None:
        """This node was the last master, or NotMaster."""
        if last is not None and last.master != self._identity.node_uuid:
            self._knows_master(last.master)
            raise NotMaster(f"node {last.master} has been the master since this one was")

    async def _ask(
        self, nodes: frozenset[NodeUuid], question: Callable[[NodeUuid], Awaitable[Vote | NoVote]]
    ) -> Ballot:
        asked = sorted(nodes)
        votes = await asyncio.gather(*(question(node) for node in asked))
        return dict(zip(asked, votes, strict=True))

    def _own_tail(self) -> Tail:
        return Tail(self._position, self._digest)

    async def _tails(
        self, electing: Electing, accepted: Accepted | None, epoch: int
    ) -> dict[NodeUuid, Tail]:
        """Fence the members of the last sync set, and learn where their histories end (R7)."""
        wanted = accepted.sync_set if accepted else frozenset[NodeUuid]()
        if electing.kind is CampaignKind.FORCE:
            wanted |= self._members.candidates
        others = sorted(wanted - {electing.candidate})
        found = await asyncio.gather(*(self._fence(node, epoch) for node in others))
        tails = {node: tail for node, tail in zip(others, found, strict=True) if tail is not None}
        return {**tails, electing.candidate: self._own_tail()}

    async def _fence(self, node: NodeUuid, epoch: int) -> Tail | None:
        try:
            channel = await self._ports.peers.connect(node)
            try:
                return await self._greet(channel, epoch)
            finally:
                channel.close()
        except (ChannelClosed, TimeoutError) as err:
            _log.info("candidate %s cannot be fenced: %s", node, str(err) or "no answer")
            return None

    async def _greet(self, channel: Channel, epoch: int) -> Tail:
        identity = self._identity
        async with asyncio.timeout(ANSWER_S):
            await channel.send(Hello(identity.cluster_uuid, epoch, identity.node_uuid, "fence"))
            answer = await channel.receive()
        if not isinstance(answer, Welcome):
            raise ChannelClosed(getattr(answer, "reason", "it does not speak the protocol"))
        return Tail(Position.from_int(answer.position), answer.digest)

    async def _copy(self, source: NodeUuid, epoch: int) -> None:
        """Take over what the source has; NotMaster if that fails."""
        try:
            channel = await self._ports.peers.connect(source)
            try:
                await self._greet(channel, epoch)
                await channel.send(Pull(self._position.as_int(), self._digest))
                while True:
                    async with asyncio.timeout(SNAPSHOT_S):
                        message = await channel.receive()
                    if isinstance(message, Done):
                        return
                    self._check_met(epoch)
                    await self._take(channel, message, epoch)
            finally:
                channel.close()
        except (ChannelClosed, TimeoutError, HistoryDiffers) as err:
            raise NotMaster(f"the state could not be copied from node {source}: {err}") from err

    async def _register_first(self, electing: Electing, first: Accepted) -> bool:
        """Whether a majority has registered it, as only a master by force need not have."""
        request = AcceptRequest(self._identity.cluster_uuid, first)
        asked = first.voters | {electing.candidate}
        ballot = await self._ask(asked, lambda node: self._ports.voters.accept(node, request))
        refusal = election.judge_accepts(electing, ballot, first.voters)
        if refusal is not None:
            raise NotMaster(refusal.reason)
        by_vote = replace(electing, kind=CampaignKind.VOTE)
        return election.judge_accepts(by_vote, ballot, first.voters) is None

    def _begin(self, first: Accepted, *, forced: bool) -> None:
        means = Means(
            identity=self._identity,
            voters=self._ports.voters,
            peers=self._ports.peers,
            history=_Source(self),
            ended=self._superseded,
        )
        self._registered_ceiling = first.job_id_ceiling
        self._reign = Reign(means, first, forced=forced)
        self._reign.start(self._members)

    # Being the master

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        size = check_transaction(txn)
        await self._until_writable(lease)
        reign = self._current_reign()
        position = await asyncio.shield(self._add(lease, txn, size))
        await reign.acknowledged(position)
        return Receipt(position, reign.is_degraded)

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        self._check_lease(lease)
        changing = asyncio.create_task(self._change_members(lease, change), name="members")
        self._keep_task(changing)
        # Shielded: what is written must be registered too, whatever becomes of the caller.
        return await asyncio.shield(changing)

    async def _change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        """One change after the other, so that the registers are never behind by two voters (R3)."""
        async with self._changing_members:
            reign = self._current_reign()
            await reign.members_settled()
            position = await self._write_members(lease, change)
            await reign.acknowledged(position)
            reign.members_are(self._members)
            await reign.members_settled()
        return Receipt(position, reign.is_degraded)

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        self._check_lease(lease)
        await self._current_reign().register(ceiling=ceiling)
        row = Put(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(ceiling))
        await self.commit(lease, Transaction((row,)))
        self._registered_ceiling = max(self._registered_ceiling, ceiling)

    async def _hand_over(self, to: NodeUuid) -> None:
        """Let `to` have everything, and end; NotMaster if that is not possible, and all goes on.

        Writes are held meanwhile: they are refused by a master that has ended, and else go on.
        """
        async with self._campaigning:
            self._check_usable()
            reign = self._current_reign()
            await reign.follower_has(to, self._position, HAND_OVER_S)
            async with self._handing_over:
                await self._drained()
                await reign.follower_has(to, self._position, LAST_ACKS_S)
                await reign.acknowledged(self._position)
                await self._end_reign("the mastership was handed over", to)

    async def _until_writable(self, lease: Lease) -> None:
        async with self._handing_over:
            self._check_lease(lease)

    def submit(self, lease: Lease, txn: Transaction) -> None:
        if self._handing_over.locked():
            raise Refused("the mastership is being handed over")
        super().submit(lease, txn)

    def _current_reign(self) -> Reign:
        if self._reign is None:
            raise NotMaster("this node is not the master")
        return self._reign

    def _written(self, entries: list[EncodedEntry]) -> None:
        super()._written(entries)
        if self._reign is not None:
            self._reign.written(entries)

    def _superseded(self, why: str) -> None:
        """The reign has ended by itself; the daemon hears of it by the role."""
        reign, self._reign = self._reign, None
        self._step_down(why)
        if reign is not None:
            self._keep_task(asyncio.create_task(reign.close(why), name="end of a reign"))

    def statistics(self) -> StoreStatistics:
        degraded = self._reign is not None and self._reign.is_degraded
        return replace(super().statistics(), degraded=degraded)

    async def step_down(self, why: str) -> None:
        await self._end_reign(why)
        await self._drained()

    async def _end_reign(self, why: str, to: NodeUuid | None = None) -> None:
        reign, self._reign = self._reign, None
        if reign is not None:
            self._step_down(why, to)
            await reign.close(why)

    # The fence: the vote has promised the epoch on a majority

    async def promise(self, epoch: int) -> None:
        if self._current_reign().epoch != epoch:
            raise NotMaster(f"epoch {epoch} is over")

    async def renew(self, epoch: int) -> None:
        await self.promise(epoch)
        await self._current_reign().renew()

    async def _finish_reign(self, why: str) -> None:
        """Take no more, and give what waits a little time to be acknowledged."""
        reign = self._reign
        if reign is None:
            return
        self._step_down(why)
        await self._drained()
        with contextlib.suppress(TimeoutError, CommitUnknown):
            async with asyncio.timeout(LAST_ACKS_S):
                await reign.acknowledged(self._position)
        await self._end_reign(why)

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        self._superseded(reason)

    async def members(self) -> Membership:
        base = await super().members()
        reign = self._reign
        if reign is None:
            return await self._as_registered(base)
        return Membership(
            master=base.master,
            epoch=base.epoch,
            voters=base.voters,
            candidates=base.candidates,
            holders=frozenset(reign.sync_set.members),
            degraded=reign.is_degraded,
            job_id_ceiling=max(base.job_id_ceiling, reign.accepted.job_id_ceiling),
        )

    async def _as_registered(self, base: Membership) -> Membership:
        """What a follower knows: who held the state when the last master registered."""
        register = await self._ports.beside(self._ports.register.read)
        accepted = register.accepted if register else None
        if accepted is None:
            return base
        ceiling = max(base.job_id_ceiling, accepted.job_id_ceiling)
        return replace(base, holders=accepted.sync_set, job_id_ceiling=ceiling)

    # Following

    @property
    def handlers(self) -> dict[Purpose, Handler]:
        """What this store answers to other candidates."""
        return {
            "replicate": self._welcome,
            "fence": self._welcome,
            "hand-over": self._answer_hand_over,
        }

    async def _welcome(self, channel: Channel, hello: Hello) -> None:
        if why := await self._refusal(hello):
            await channel.send(Sorry(why, self._met_epoch))
            return
        await self._end_reign(f"node {hello.node_uuid} has epoch {hello.epoch}")
        await self._end_session()
        await self._drained()
        self._check_readable()
        self._check_met(hello.epoch)
        await channel.send(Welcome(self._position.as_int(), self._digest))
        if hello.purpose == "fence":
            await self._answer_pull(channel)
            return
        self._followed = NodeUuid(hello.node_uuid)
        self._released = None
        self._knows_master(self._followed)
        self._heard_at = asyncio.get_running_loop().time()
        session = asyncio.create_task(self._follow(channel, hello.epoch), name="following")
        self._session = session
        self._keep_task(session)
        await asyncio.wait((session,))

    async def _refusal(self, hello: Hello) -> str:
        """Why an epoch is refused; a greater one is written down first, and met from now on (R2)."""
        master = NodeUuid(hello.node_uuid)

        def rule(register: Register | None) -> Answer:
            return check_epoch(register, hello.epoch, master)

        answer = await self._ports.beside(lambda: self._ports.register.decide(rule))
        promised = answer.register.promised.epoch if answer.register else 0
        self._met_epoch = max(self._met_epoch, promised)
        if not answer.granted:
            return answer.reason
        if hello.epoch < self._met_epoch:
            return f"epoch {hello.epoch} is over"
        if self._reign is not None and self._reign.epoch >= hello.epoch:
            return f"this node is the master in epoch {self._reign.epoch}"
        return ""

    async def _answer_pull(self, channel: Channel) -> None:
        async with asyncio.timeout(SNAPSHOT_S):
            pull = await channel.receive()
        if not isinstance(pull, Pull):
            raise ChannelClosed("only Pull may follow")
        theirs = History(Position.from_int(pull.position), pull.digest)
        source = _Source(self)
        if await source.goes_on_from(theirs):
            await send_log(channel, source.entries_after, theirs.position)
        else:
            await send_snapshot(channel, source.slices(), await source.shared_with(theirs))
        await channel.send(Done())
        await channel.receive()  # the other end closes

    async def _answer_hand_over(self, channel: Channel, hello: Hello) -> None:
        to = NodeUuid(hello.node_uuid)
        if self._reign is None or to not in self._members.candidates:
            await channel.send(Sorry("this node is not the master, or does not know the other"))
            return
        try:
            await self._hand_over(to)
        except (NotMaster, StoreError) as err:
            await channel.send(Sorry(err.message))
            return
        await channel.send(Done())

    async def _master_agrees(self) -> bool:
        """Whether there is a master, and it has ended in favour of this node, now or a moment ago."""
        role, loop = self._roles.role, asyncio.get_running_loop()
        master = role.master if isinstance(role, Follower) else None
        if master is None or master == self._identity.node_uuid:
            return False
        if self._released is not None and loop.time() - self._released < RELEASED_S:
            return True
        try:
            await self._ask_for_hand_over(master)
        except NotMaster as err:
            _log.info("no hand-over: %s", err)
            return False
        self._released = loop.time()
        return True

    async def _ask_for_hand_over(self, master: NodeUuid) -> None:
        """Ask the master to end in favour of this node; NotMaster if it does not."""
        identity = self._identity
        register = await self._ports.beside(self._ports.register.read)
        electing = Electing(
            identity.node_uuid, CampaignKind.HAND_OVER, self._members.voters, __version__
        )
        if refusal := election.is_outdated(electing, register.accepted if register else None):
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

    def _read_members(self) -> MemberList:
        row = self._database.get(META_KIND, MEMBERS_KEY)
        return MemberList.decode(row, self._identity.node_uuid)

    async def close(self) -> None:
        if self._closed:
            return
        await self._finish_reign("the store is closed")
        for task in list(self._sessions):
            task.cancel()
        if self._sessions:
            await asyncio.wait(list(self._sessions))
        await super().close()


class _Source:
    """The store as a reign reads it."""

    def __init__(self, store: ReplicatedStore) -> None:
        self._store = store

    @property
    def tail(self) -> History:
        return History(self._store._position, self._store._digest)  # noqa: SLF001 - a part of it

    async def goes_on_from(self, history: History) -> bool:
        store = self._store
        if history.position == ZERO < self.tail.position:
            # Whoever has nothing gets all at once: with a part of it, it would pass for one that has
            # everything that was acknowledged while it was a member (`election.choose_source`).
            return False
        return await store._read(partial(store._log_reader.goes_on_from, history))  # noqa: SLF001

    async def shared_with(self, history: History) -> Position:
        store = self._store
        return await store._read(partial(store._log_reader.shared_with, history))  # noqa: SLF001

    async def entries_after(self, position: Position) -> list[EncodedEntry]:
        store = self._store
        return await store._read(partial(store._log_reader.encoded_after, position))  # noqa: SLF001

    def slices(self) -> AsyncGenerator[History | list[Row], None]:
        return self._store._slices()  # noqa: SLF001

    async def move_on(self) -> None:
        store = self._store
        role = store._roles.role  # noqa: SLF001
        if isinstance(role, Master):
            await asyncio.shield(store._add(role.lease, Transaction(), 0))  # noqa: SLF001


def _judged(verdict: T | Refusal) -> T:
    """NotMaster with the reason of a refusal."""
    if isinstance(verdict, Refusal):
        raise NotYet(verdict.reason) if verdict.may_pass else NotMaster(verdict.reason)
    return verdict
