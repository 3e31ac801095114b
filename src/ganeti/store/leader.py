"""The work of a master: it updates followers, registers its sync set, and keeps contact to a majority.

`SyncSet` and `QuorumLease` decide; this module carries out. A leader term ends by a promise that
excludes it, by ten seconds without a majority (R9), by a hand-over, or with its store.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.base.staggered_waker import StaggeredWaker
from ganeti.model.objects import NodeUuid
from ganeti.store.database import History
from ganeti.store.election import (
    NoVote,
    QuorumLease,
    Vote,
    excluded,
    has_quorum,
    ignored,
    is_majority,
    next_voters,
)
from ganeti.store.encoding import EncodedEntry, MemberList
from ganeti.store.epochs import ends_leader_term
from ganeti.store.feeding import Feed, give, send_snapshot
from ganeti.store.interface import ZERO, Identity, Position, Transaction
from ganeti.store.local_log import LocalLog
from ganeti.store.reason import Reason
from ganeti.store.register import Accepted, AcceptRequest, Promise
from ganeti.store.stream import (
    Ack,
    Channel,
    ChannelClosed,
    Hello,
    HelloAcknowledged,
    Message,
    Peers,
    Ping,
    Reject,
    Voters,
    append_of,
)
from ganeti.store.sync_set import SyncSet

TICK_S = 0.1
"""Interval between two looks at a sync set that changes; the shortest one otherwise."""
HAND_OVER_TICK_S = 0.01
PING_S = 0.5
"""Interval at which idle followers are asked for an acknowledgement."""
RETRY_S = 0.5
ANSWER_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaderPorts:
    """Dependencies of a leader."""

    identity: Identity
    voters: Voters
    peers: Peers
    log: LocalLog
    ended: Callable[[str], None]
    """Called once if the term ends without a request."""


class LeaderTerm:
    """One leader term: the epoch of one master."""

    def __init__(
        self, ports: LeaderPorts, accepted: Accepted, *, forced: bool, registered_at: float
    ) -> None:
        """`registered_at` is the time at which the voters were asked to register this master."""
        now = asyncio.get_running_loop().time()
        self._ports = ports
        self._accepted = accepted
        self._forced = forced
        master = ports.identity.node_uuid
        self._sync = SyncSet(master, accepted.sync_set, ports.log.tail.position, now)
        self._quorum = QuorumLease(master, accepted.voters, forced=forced, now=registered_at)
        self._version = accepted.version
        self._members = MemberList(accepted.voters, accepted.sync_set)
        """The voters and possible followers in the state; the registers may not know all voters yet."""
        self._waiting: deque[tuple[Position, asyncio.Future[Position]]] = deque()
        self._waking = StaggeredWaker()
        self._feeds: dict[NodeUuid, Feed] = {}
        self._links: dict[NodeUuid, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._beat_at = now
        self._registering = asyncio.Lock()
        self._asking: set[asyncio.Task[None]] = set()
        self._set_change: asyncio.Task[None] | None = None
        self._voters_change: asyncio.Task[None] | None = None
        self._over: str | None = None
        self._ignored: dict[NodeUuid, int] = {}
        """Promised epochs that belong to no master; each was logged once."""

    @property
    def epoch(self) -> int:
        return self._accepted.epoch

    @property
    def accepted(self) -> Accepted:
        """Return the last registration that a majority has."""
        return self._accepted

    @property
    def sync_set(self) -> SyncSet:
        return self._sync

    @property
    def is_forced(self) -> bool:
        """Return whether no majority of the voters has registered this master by force yet (R10)."""
        return self._forced

    @property
    def is_degraded(self) -> bool:
        """Return whether a write may be lost.

        Only the master has it, or others may have a master (R6, R10).
        """
        is_alone = len(self._sync.members) == 1 and len(self._members.candidates) > 1
        return self._forced or is_alone

    def start(self, members: MemberList) -> None:
        """Start to serve followers."""
        self.members_are(members)

    def members_are(self, members: MemberList) -> None:
        """Follow these candidates from now on, and register these voters.

        The voters include those that an earlier master wrote down but did not register.
        """
        self._members = members
        self._follow()
        if self._voters_change is None and members.voters != self._accepted.voters:
            self._voters_change = asyncio.create_task(self._change_voters(), name="voters")

    async def members_settled(self) -> None:
        """Return once the members are effective: their voters are registered, and no write waits for others.

        NotMaster if the term ends first.
        """
        while not self._is_settled():
            if self._over is not None:
                raise NotMaster(self._over)
            await asyncio.sleep(HAND_OVER_TICK_S)

    def _is_settled(self) -> bool:
        own = self._ports.identity.node_uuid
        return (
            self._members.voters == self._accepted.voters
            and self._sync.must_acknowledge <= self._members.candidates | {own}
        )

    def _follow(self) -> None:
        """Start a link to each candidate, after the registration of its vote if it has one (R3)."""
        own = self._ports.identity.node_uuid
        others = self._members.candidates - (self._members.voters - self._accepted.voters) - {own}
        self._sync.candidates_are(others)
        for node in sorted(self._links.keys() - others):
            self._links.pop(node).cancel()
            del self._feeds[node]
        for node in sorted(others - self._links.keys()):
            self._feeds[node] = Feed()
            self._links[node] = asyncio.create_task(self._link(node), name=f"link {node}")
        self._tick_at(asyncio.get_running_loop().time())

    def written(self, entries: list[EncodedEntry]) -> None:
        """Send transactions that the master has written: the followers sync them while it does."""
        if self._over is not None:
            return
        for feed in self._feeds.values():
            feed.add(entries)
        self._sync.sent(entries[-1].position, asyncio.get_running_loop().time())

    def synced(self, position: Position) -> None:
        """Record that the master itself has synced everything up to a position."""
        if self._over is None:
            self._sync.synced(position)
            self._acknowledge()

    async def acknowledged(self, position: Position) -> None:
        """Return when every member of the sync set has synced the transaction.

        CommitUnknown if the term ends.
        """
        if self._sync.acknowledged >= position:
            return
        if self._over is not None:
            raise CommitUnknown(self._over)
        done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, done))
        await done

    def acknowledge(self, done: asyncio.Future[Position], position: Position) -> None:
        """Set `done` to the position when `acknowledged` would return; the transaction is synced here."""
        if self._sync.acknowledged >= position:
            self._waking.resolve(done, position)
        elif self._over is None:
            self._waiting.append((position, done))
        elif not done.done():
            done.set_exception(CommitUnknown(self._over))

    async def follower_has(self, node: NodeUuid, position: Position, limit_s: float) -> None:
        """Wait until a follower has everything up to a position; NotMaster if it does not in time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while (acked := self._sync.statistics().acked.get(node)) is None or acked < position:
            if self._over is not None:
                raise NotMaster(self._over)
            if loop.time() > end:
                raise NotMaster(
                    Reason(f"node {{}} does not have everything within {limit_s:g} s", node)
                )
            await asyncio.sleep(HAND_OVER_TICK_S)

    async def close(self, why: str) -> None:
        """End the term; the outcome of waiting writes is unknown."""
        self.end(why)
        changes = [task for task in (self._set_change, self._voters_change) if task is not None]
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._links.values(), *self._asking, *changes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def end(self, why: str) -> None:
        """Acknowledge nothing from now on."""
        if self._over is not None:
            return
        self._over = why
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(CommitUnknown(f"perhaps written: {why}"))
                done.exception()  # its waiters may have been cancelled
        self._waiting.clear()

    # Registrations

    async def register(
        self, *, members: frozenset[NodeUuid] | None = None, ceiling: int = 0
    ) -> None:
        """Register a change on a majority of the voters; NotMaster if the term ends.

        Refused if only a ceiling is to be raised and this node cannot store it: then no other node
        has seen it.
        """
        async with self._registering:
            new = self._next(members=members, ceiling=ceiling)
            if members is None:
                await self._keep_own(new)
            while not await self._is_registered(new):  # noqa: ASYNC110 - asking is the event
                await asyncio.sleep(RETRY_S)

    def _next(
        self,
        *,
        members: frozenset[NodeUuid] | None = None,
        voters: frozenset[NodeUuid] | None = None,
        ceiling: int = 0,
    ) -> Accepted:
        """Return the next registration; its version has never been sent before."""
        self._version += 1
        old = self._accepted
        return replace(
            old,
            version=self._version,
            sync_set=old.sync_set if members is None else members,
            voters=old.voters if voters is None else voters,
            job_id_ceiling=max(old.job_id_ceiling, ceiling),
        )

    async def _keep_own(self, new: Accepted) -> None:
        """Register on this node first, otherwise the waiting callers would wait for its disk."""
        identity = self._ports.identity
        request = AcceptRequest(identity.cluster_uuid, new)
        vote = await self._ports.voters.accept(identity.node_uuid, request)
        if not isinstance(vote, Vote):
            raise Refused(f"cannot reserve more job ids: {vote.reason}")

    async def _is_registered(self, new: Accepted) -> bool:
        """Send it once; return whether a majority of the old voters and of the new ones has registered it."""
        if self._over is not None:
            raise NotMaster(self._over)
        old = self._accepted

        def counts(agreed: set[NodeUuid]) -> bool:
            return all(self._has_quorum(agreed, voters) for voters in (old.voters, new.voters))

        if not await self._ask_to_accept(new, old.voters | new.voters, counts):
            return False
        self._accepted = new
        if new.voters != old.voters:
            self._quorum.voters_are(new.voters, asyncio.get_running_loop().time())
            self._follow()
        return True

    def _has_quorum(self, agreed: set[NodeUuid], voters: frozenset[NodeUuid]) -> bool:
        own = self._ports.identity.node_uuid
        return own in agreed and has_quorum(agreed, voters, forced=self._forced)

    async def _ask_to_accept(
        self,
        accepted: Accepted,
        nodes: frozenset[NodeUuid],
        is_enough: Callable[[set[NodeUuid]], bool],
    ) -> bool:
        request = AcceptRequest(self._ports.identity.cluster_uuid, accepted)
        return await self._ask(
            nodes, lambda node: self._ports.voters.accept(node, request), is_enough
        )

    async def _change_voters(self) -> None:
        """Register the voters of the state, one node after the other (R3).

        Other changes run between the attempts, so that voters without a majority block none of
        them.
        """
        try:
            while voters := next_voters(self._accepted.voters, self._members.voters):
                async with self._registering:
                    is_done = await self._is_registered(self._next(voters=voters))
                if not is_done:
                    await asyncio.sleep(RETRY_S)
        except NotMaster:
            return
        finally:
            self._voters_change = None
        _log.info("the voters are now %s", ", ".join(sorted(self._accepted.voters)))

    async def _seek_majority(self) -> None:
        """Return once a majority has registered a master by force, which then is a regular master."""
        accepted = self._accepted
        is_elected = await self._ask_to_accept(
            accepted, accepted.voters, lambda agreed: is_majority(agreed, accepted.voters)
        )
        # That majority does not know the registrations made by force alone in the meantime.
        if is_elected and self._accepted is accepted:
            self._forced = False
            self._quorum.is_elected()
            _log.warning(
                (
                    "a majority of the voters has registered this master by force in epoch %d: "
                    "its writes are no longer degraded"
                ),
                self.epoch,
            )

    async def _ask(
        self,
        nodes: frozenset[NodeUuid],
        question: Callable[[NodeUuid], Awaitable[Vote | NoVote]],
        is_enough: Callable[[set[NodeUuid]], bool],
    ) -> bool:
        """Return whether enough nodes agree, as soon as they do; all others are asked too.

        Ends the term where a node's promise excludes this master (R9).
        """
        agreed: set[NodeUuid] = set()
        asking = {
            asyncio.create_task(self._ask_one(node, question, agreed), name=f"ask {node}")
            for node in sorted(nodes)
        }
        self._asking |= asking
        for task in asking:
            task.add_done_callback(self._asking.discard)
        while asking and not is_enough(agreed):
            _, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        return is_enough(agreed)

    async def _ask_one(
        self,
        node: NodeUuid,
        question: Callable[[NodeUuid], Awaitable[Vote | NoVote]],
        agreed: set[NodeUuid],
    ) -> None:
        asked_at = asyncio.get_running_loop().time()
        vote = await question(node)
        if not isinstance(vote, Vote):
            return
        if vote.granted:
            agreed.add(node)
            self._quorum.agreed(node, asked_at)
        elif vote.register.promised.excludes(self.epoch, self._ports.identity.node_uuid):
            self._met(node, vote.register.promised)

    def _met(self, node: NodeUuid, promised: Promise) -> None:
        """Handle a promise that excludes this master: end the term, or ignore the node."""
        if ends_leader_term(
            self.epoch,
            promised.epoch,
            is_candidate=node in self._members.candidates,
            is_own_register=node == self._ports.identity.node_uuid,
        ):
            self._give_up(excluded(node, promised))
        elif self._ignored.get(node) != promised.epoch:
            self._ignored[node] = promised.epoch
            _log.warning("node %s: %s", node, ignored(node, promised.epoch))

    def _give_up(self, why: str) -> None:
        if self._over is None:
            self.end(why)
            self._ports.ended(why)

    # Periodic work

    def _tick_at(self, when: float) -> None:
        """Run `_tick` at that time of the loop's clock, instead of the time set before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._tick)

    def _tick(self) -> None:
        """Ask the followers at each beat, and begin a change of the sync set where it is due."""
        now = asyncio.get_running_loop().time()
        if self._over is not None:
            return
        if self._quorum.is_over(now):
            self._give_up("no answer from a majority of the voters for 10 s")
            return
        if now >= self._beat_at:
            self._beat_at = now + PING_S
            self._sync.ask(now)
            for feed in self._feeds.values():
                feed.ask()
        wanted = self._sync.tick(now)
        self._acknowledge()
        if wanted is not None and self._set_change is None:
            self._set_change = asyncio.create_task(self._change_set(wanted), name="sync set")
        if self._sync.is_changing or self._quorum.is_over(now + PING_S):
            self._tick_at(now + TICK_S)
        else:
            self._tick_at(min(self._beat_at, max(self._sync.silent_at(), now + TICK_S)))

    async def _change_set(self, wanted: frozenset[NodeUuid]) -> None:
        try:
            await self._hear_majority()
            await self.register(members=wanted)
        except NotMaster:
            return
        finally:
            self._set_change = None
        _log.info("the sync set is now %s", ", ".join(sorted(wanted)))
        self._sync.registered(wanted)
        self._acknowledge()

    @property
    def holds(self) -> bool:
        """Return whether a majority has confirmed this master so recently that no other master can exist."""
        now = asyncio.get_running_loop().time()
        return self._over is None and self._quorum.holds(now)

    def majority_at(self) -> float | None:
        """Return when the majority was asked that has confirmed this master last; None where none is needed."""
        return self._quorum.majority_at()

    async def renew(self) -> None:
        """Confirm once to all voters that this node is still the master; NotMaster if it has ended."""
        if self._forced:
            await self._seek_majority()
        voters = self._accepted.voters
        await self._ask_to_renew(lambda agreed: voters <= agreed)
        if self._over is not None:
            raise NotMaster(self._over)

    async def _hear_majority(self) -> None:
        """Return once a majority of the voters answers; NotMaster if the term ends.

        If the others receive this master's messages but it receives none, it must not register a
        set without them. It would not learn that the set is registered, and the others could not
        replace the master (R5, R7).
        """
        while not await self._ask_to_renew(
            lambda agreed: self._has_quorum(agreed, self._accepted.voters)
        ):
            if self._over is not None:
                raise NotMaster(self._over)
            await asyncio.sleep(RETRY_S)

    async def _ask_to_renew(self, is_enough: Callable[[set[NodeUuid]], bool]) -> bool:
        uuid, epoch, voters = self._ports.identity.cluster_uuid, self.epoch, self._ports.voters
        return await self._ask(
            self._accepted.voters, lambda node: voters.renew(node, uuid, epoch), is_enough
        )

    def _acknowledge(self) -> None:
        acknowledged = self._sync.acknowledged
        while self._waiting and self._waiting[0][0] <= acknowledged and self._over is None:
            position, done = self._waiting.popleft()
            self._waking.resolve(done, position)

    # Followers

    async def _link(self, node: NodeUuid) -> None:
        """Keep one follower up to date until cancelled."""
        said = ""
        while self._over is None:
            try:
                channel = await self._ports.peers.connect(node)
                try:
                    said = ""
                    await self._serve(node, channel)
                finally:
                    channel.close()
            except (ChannelClosed, TimeoutError, StoreError) as err:
                why = str(err) or type(err).__name__
                if why != said:
                    _log.info("follower %s: %s", node, why)
                said = why
            self._feeds[node].end()
            await asyncio.sleep(RETRY_S)

    async def _serve(self, node: NodeUuid, channel: Channel) -> None:
        identity = self._ports.identity
        hello = Hello(identity.cluster_uuid, self.epoch, identity.node_uuid, "replicate")
        answer = await self._exchange(channel, hello)
        if isinstance(answer, Reject):
            if answer.epoch > self.epoch:
                self._met(node, Promise(answer.epoch, NodeUuid("")))
            raise ChannelClosed(answer.reason)
        if not isinstance(answer, HelloAcknowledged):
            raise ChannelClosed("it does not use the protocol of the state stream")
        history = History(Position.from_int(answer.position), answer.digest)
        sent = history.position
        may_continue = await self._ports.log.continues_from(history)
        self._sync.has_only(node, sent if may_continue else ZERO)
        if may_continue:
            self._acked(node, sent)
        else:
            sent = await self._send_snapshot(node, channel, history)
        acks = asyncio.create_task(self._receive_acks(node, channel), name=f"acks {node}")
        sending = asyncio.create_task(self._send(node, channel, sent), name=f"send {node}")
        try:
            done, _ = await asyncio.wait((acks, sending), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            acks.cancel()
            sending.cancel()
            await asyncio.gather(acks, sending, return_exceptions=True)

    async def _exchange(self, channel: Channel, message: Message) -> Message:
        async with asyncio.timeout(ANSWER_S):
            await channel.send(message)
            return await channel.receive()

    async def _receive_acks(self, node: NodeUuid, channel: Channel) -> None:
        while True:
            message = await channel.receive()
            if not isinstance(message, Ack):
                raise ChannelClosed(
                    getattr(message, "reason", "it does not use the protocol of the state stream")
                )
            self._acked(node, Position.from_int(message.position))

    def _acked(self, node: NodeUuid, position: Position) -> None:
        if self._over is None:
            self._sync.acked(node, position, asyncio.get_running_loop().time())
            self._acknowledge()

    async def _send(self, node: NodeUuid, channel: Channel, sent: Position) -> None:
        """Send from the log until its end, then new transactions; send a ping when the feed is asked."""
        feed = self._feeds[node]
        while True:
            if not feed.is_live:
                feed.begin()
                entries = await self._ports.log.entries_after(sent)
                if entries:
                    feed.end()
            else:
                entries = feed.take(sent)
            if entries:
                await give(channel, append_of(entries))
                sent = entries[-1].position
                continue
            if feed.is_asked:
                feed.is_asked = False
                await give(channel, Ping())
                continue
            feed.news.clear()
            if not feed.entries:
                await feed.news.wait()

    async def _send_snapshot(self, node: NodeUuid, channel: Channel, theirs: History) -> Position:
        """Send everything.

        First advance the position beyond the follower's, so that it never decreases there (G2).
        """
        if theirs.position >= self._ports.log.tail.position:
            await asyncio.shield(self._ports.log.add(self.epoch, Transaction(), 0))
        shared = await self._ports.log.shared_with(theirs)
        if shared != theirs.position:
            _log.warning(
                "node %s has written up to %s changes that are not in the history of this master (both"
                " may agree up to %s); its state is replaced, and preserved there",
                node,
                theirs.position,
                shared,
            )
        return await send_snapshot(channel, self._ports.log.slices(), shared)
