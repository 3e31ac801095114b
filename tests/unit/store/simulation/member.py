"""One simulated node: a register and a log that survive a crash, and the daemons that use them."""

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.election import Electing, LastContact, NoVote, QuorumLease, Refusal, Tail, Vote
from ganeti.store.epochs import ends_leader_term
from ganeti.store.interface import CampaignKind, Position
from ganeti.store.job_ids import JobIdAllocator
from ganeti.store.register import Accepted, AcceptRequest, Promise, PromiseRequest, Register
from ganeti.store.sync_set import SyncSet
from tests.unit.store.simulation.engine import Gate, Process, World
from tests.unit.store.simulation.rules import Rules

CLUSTER = "c"
BLOCK = 4
OLDER, NEWER = "1.0.7", "1.1.0"
RENEW_S, TICK_S, PING_S = 0.5, 0.2, 0.2
HOUR_S = 3600.0


class Entry(NamedTuple):
    """One transaction; the digest covers all before it."""

    position: Position
    digest: int
    payload: Any


START = Entry(Position(0, 1), 0, None)
"""What the making of the cluster has written."""


@dataclass
class LeaderTerm:
    """What a master has only in memory."""

    epoch: int
    sync: SyncSet
    version: int
    voters: frozenset[NodeUuid]
    quorum: QuorumLease
    ids: JobIdAllocator
    ceiling: int
    by_force: bool
    forced: bool
    """Whether no majority of the voters has registered this master by force yet (R10)."""
    waiting: deque[tuple[Position, Any, Callable[[], None] | None]] = field(default_factory=deque)
    answered: dict[NodeUuid, float] = field(default_factory=dict)
    is_registering: bool = False
    is_changing_set: bool = False
    began_at: float = 0.0


class Observer:
    """What the checker learns; the member knows nothing of what it does with it."""

    def granted(self, member: "Member", request: PromiseRequest, kind: CampaignKind) -> None: ...
    def wrote(self, member: "Member", epoch: int, entry: Entry) -> None: ...
    def took_id(self, member: "Member", job_id: int) -> None: ...
    def acknowledged(self, member: "Member", entry: Entry, *, degraded: bool) -> None: ...
    def synced(self, member: "Member") -> None: ...
    def elected(self, member: "Member", kind: CampaignKind) -> None: ...


class Member:
    """A node."""

    def __init__(self, world: World, uuid: str, rules: Rules, observer: Observer) -> None:
        self.world, self.rules, self.observer = world, rules, observer
        self.uuid = NodeUuid(uuid)
        self.process = Process(uuid)
        self.others: dict[NodeUuid, Member] = {}
        self.first_voters: frozenset[NodeUuid] = frozenset()
        self.register = Register(CLUSTER, Promise(0, NodeUuid("")))
        self.kept_register = self.register
        self.log: list[Entry] = [START]
        self.synced = 1
        self.own_epoch = 0
        self.sync_s = 0.001
        self.heard: tuple[NodeUuid, float] | None = None
        self.began_at = -HOUR_S
        self.term: LeaderTerm | None = None
        self.is_campaigning = False
        self.fence = 0
        self.software = OLDER
        self.is_upgraded_next = False

    # What survives, and what does not

    def die(self) -> None:
        """The process and the system go: of what was not synced, a part is there later."""
        self.process.is_up = False
        self.process.life += 1
        self.term, self.is_campaigning, self.heard = None, False, None
        keep = self.world.random.randint(self.synced, len(self.log))
        del self.log[keep:]
        self.synced = len(self.log)
        self.register = self.kept_register

    def live(self) -> None:
        self.process.is_up, self.began_at = True, self.world.now
        if self.is_upgraded_next:
            self.software = NEWER
        self.fence = self.register.promised.epoch
        accepted = self.register.accepted
        if accepted and accepted.master == self.uuid:
            self.world.spawn(self.process, self.campaign(CampaignKind.VOTE))

    @property
    def tail(self) -> Tail:
        last = self.log[-1]
        return Tail(last.position, last.digest.to_bytes(8, "big", signed=True))

    @property
    def own_voters(self) -> frozenset[NodeUuid]:
        for entry in reversed(self.log):
            if isinstance(entry.payload, frozenset):
                return entry.payload
        return self.first_voters

    @property
    def last_id(self) -> int:
        """The greatest job id in the state."""
        jobs = [entry.payload[1] for entry in self.log if isinstance(entry.payload, tuple)]
        return max((number for number in jobs if isinstance(number, int)), default=0)

    def keep(self, register: Register) -> None:
        self.register = register
        if self.rules.register_is_durable:
            self.kept_register = register
        else:
            life = self.process.life
            self.world.at(1.0, lambda: self._keep_late(register, life))

    def spoil(self, epoch: int) -> None:
        """Someone raises this node's promise to an epoch that no master ever had."""
        promised = Promise(max(epoch, self.register.promised.epoch), NodeUuid("nobody"))
        self.register = self.kept_register = replace(self.register, promised=promised)

    def _keep_late(self, register: Register, life: int) -> None:
        if self.process.life == life:
            self.kept_register = register

    async def sync(self) -> None:
        """Wait until all that is written now is synced."""
        upto = self.log[-1]
        await self.world.sleep(self.sync_s)
        if len(self.log) > self.synced and upto in self.log[self.synced :]:
            self.synced = self.log.index(upto, self.synced) + 1
            self.observer.synced(self)

    def has_synced(self, entry: Entry) -> bool:
        """Whether this transaction would be here after a crash."""
        for at in range(self.synced - 1, -1, -1):
            if self.log[at].position <= entry.position:
                return self.log[at] == entry
        return False

    async def drain(self) -> None:
        while self.synced < len(self.log):
            await self.sync()

    # The voter (node daemon)

    def _vote(self, *, granted: bool, reason: str = "") -> Vote:
        heard = self.heard and LastContact(
            self.heard[0], self.world.now - self.heard[1], election.SILENCE_S
        )
        return Vote(granted, self.register, reason, heard or None)

    async def read(self) -> Vote:
        return self._vote(granted=True)

    async def promise(self, request: PromiseRequest, kind: CampaignKind) -> Vote:
        heard = self._vote(granted=True).heard
        accepted = self.register.accepted
        if heard is None and accepted:
            since = self.world.now - self.began_at
            heard = LastContact(accepted.master, since, election.SILENCE_S)
        answer = self.rules.vote(self.register, request, kind, heard)
        if answer.granted and answer.register:
            self.observer.granted(self, request, kind)
            self.keep(answer.register)
        return self._vote(granted=answer.granted, reason=answer.reason)

    async def accept(self, request: AcceptRequest) -> Vote:
        answer = self.rules.accept(self.register, request)
        if answer.granted and answer.register:
            self.keep(answer.register)
            self.heard = request.accepted.master, self.world.now
        return self._vote(granted=answer.granted, reason=answer.reason)

    async def renew(self, epoch: int, master: NodeUuid) -> Vote:
        answer = self.rules.check_epoch(self.register, epoch, master)
        if answer.granted and answer.register:
            self.keep(answer.register)
            self.heard = master, self.world.now
        return self._vote(granted=answer.granted, reason=answer.reason)

    # The holder of the state (master daemon)

    def _meets(self, epoch: int, master: NodeUuid) -> bool:
        """Whether an older epoch is not what calls; a greater one ends a term."""
        answer = self.rules.check_epoch(self.register, epoch, master)
        if not answer.granted or answer.register is None:
            return False
        if self.rules.fences_followers and epoch < self.fence:
            return False
        self.keep(answer.register)
        self.fence = max(self.fence, epoch)
        if self.term and self.term.epoch < epoch and self.rules.steps_down_when_fenced:
            self.end_term()
        return True

    async def fenced_tail(self, epoch: int, candidate: NodeUuid) -> Tail | None:
        if not self._meets(epoch, candidate):
            return None
        await self.drain()
        return self.tail

    async def whole_log(self, epoch: int, candidate: NodeUuid) -> list[Entry] | None:
        return list(self.log[: self.synced]) if self._meets(epoch, candidate) else None

    async def hello(self, epoch: int, master: NodeUuid) -> Entry | None:
        if not self._meets(epoch, master):
            return None
        await self.drain()
        return self.log[-1]

    async def append(
        self, epoch: int, master: NodeUuid, previous: Entry, entries: list[Entry]
    ) -> Position | None:
        """None if this history does not go on from `previous`."""
        if not self._meets(epoch, master) or self.term:
            return None
        if self.log[-1].digest != previous.digest and self.rules.moves_aside:
            return None  # also what comes twice
        before = self.log[-1].position
        self.log.extend(entry for entry in entries if entry.position > before)
        await self.drain()
        return self.log[-1].position

    async def snapshot(self, epoch: int, master: NodeUuid, entries: list[Entry]) -> Position | None:
        if not self._meets(epoch, master) or self.term:
            return None
        if self.log[-1].position > entries[-1].position:
            return None
        await self.drain()
        if not self._meets(epoch, master) or self.log[-1].position > entries[-1].position:
            return None
        self.log, self.synced = list(entries), len(entries)
        self.observer.synced(self)
        return entries[-1].position

    async def hand_over(self) -> bool:
        """The master agrees to end."""
        if self.term is None:
            return False
        self.end_term()
        await self.drain()
        return True

    # The campaign

    async def ask(
        self,
        nodes: frozenset[NodeUuid],
        handler: Callable[["Member"], Coroutine[Any, Any, Vote]],
    ) -> dict[NodeUuid, Vote | NoVote]:
        gates: dict[NodeUuid, Gate[Vote]] = {}
        for node in sorted(nodes | {self.uuid}):
            target = self.others[node]
            gates[node] = self.world.call(
                self.process,
                target.process,
                lambda target=target: handler(target),  # type: ignore[misc] # a lambda's default
            )
        return {node: (await gate) or NoVote("no answer") for node, gate in gates.items()}

    async def campaign(self, kind: CampaignKind, tries: int = 8) -> None:
        if self.is_campaigning or self.term:
            return
        self.is_campaigning = True
        for _ in range(tries):
            refusal = await self._campaign(kind)
            if refusal is None or self.term:
                break
            await self.world.sleep(0.7 + self.world.random.random())
        self.is_campaigning = False

    async def _campaign(  # noqa: C901, PLR0911, PLR0912 - one step after the other, as R7 says
        self, kind: CampaignKind
    ) -> Refusal | None:
        rules, world = self.rules, self.world
        electing = Electing(self.uuid, kind, self.own_voters, self.software)
        asked = electing.voters.union(*(self._known_voters()))
        ballot = await self.ask(asked, lambda member: member.read())
        taken = max(self.own_epoch, self.tail.position.epoch)
        epoch = rules.judge_survey(electing, ballot, taken)
        if isinstance(epoch, Refusal):
            return epoch
        if kind is CampaignKind.FORCE and not rules.force_takes_an_epoch:
            epoch = max(1, epoch - 1)
        else:
            request = PromiseRequest(CLUSTER, epoch, self.uuid)
            ballot = await self.ask(asked, lambda member: member.promise(request, kind))
        accepted = rules.judge_promises(electing, ballot)
        if isinstance(accepted, Refusal):
            return accepted
        tails = await self._tails(electing, accepted, epoch)
        source = rules.choose_source(electing, accepted, tails)
        if isinstance(source, Refusal):
            return source
        if source != self.uuid:
            other = self.others[source]
            copy = await world.call(
                self.process, other.process, lambda: other.whole_log(epoch, self.uuid), 1.0
            )
            if not copy:
                return Refusal("no copy")
            await self.drain()
            if not self._meets(epoch, self.uuid) and rules.force_takes_an_epoch:
                return Refusal("a greater epoch")
            self.log, self.synced = copy, len(copy)
            self.observer.synced(self)
        if refusal := rules.is_demoted(electing, self.own_voters):
            return refusal
        tails[self.uuid] = self.tail
        if not self._meets(epoch, self.uuid) and rules.force_takes_an_epoch:
            return Refusal("a greater epoch")
        self.own_epoch = max(self.own_epoch, epoch)
        ceiling = election.greatest_ceiling(ballot, epoch, self.last_id)
        first = rules.first_registration(electing, epoch, accepted, tails, ceiling)
        register, registered_at = AcceptRequest(CLUSTER, first), world.now
        if rules.registers_before_writing:
            refusal = await self._registered(electing, register)
            if refusal:
                return refusal
        else:
            world.spawn(self.process, self._registered(electing, register))
        if self.fence > epoch or (self.register.promised.epoch > epoch and rules.fences_followers):
            return Refusal("a greater epoch")
        self._begin_term(first, kind, registered_at)
        return None

    def _known_voters(self) -> list[frozenset[NodeUuid]]:
        accepted = self.register.accepted
        return [accepted.voters, accepted.sync_set] if accepted else []

    async def _registered(self, electing: Electing, request: AcceptRequest) -> Refusal | None:
        voters = request.accepted.voters
        ballot = await self.ask(voters, lambda member: member.accept(request))
        return self.rules.judge_accepts(electing, ballot, voters)

    async def _tails(
        self, electing: Electing, accepted: Accepted | None, epoch: int
    ) -> dict[NodeUuid, Tail]:
        wanted = set(accepted.sync_set if accepted else ())
        if electing.kind is CampaignKind.FORCE:
            wanted |= electing.voters
        await self.drain()
        gates: dict[NodeUuid, Gate[Tail | None]] = {}
        for node in sorted(wanted - {self.uuid}):
            other = self.others[node]
            gates[node] = self.world.call(
                self.process,
                other.process,
                lambda other=other: other.fenced_tail(epoch, self.uuid),  # type: ignore[misc] # a lambda's default
            )
        found = {node: await gate for node, gate in gates.items()}
        tails = {node: tail for node, tail in found.items() if tail is not None}
        tails[self.uuid] = self.tail
        return tails

    # The leader term

    def _begin_term(self, first: Accepted, kind: CampaignKind, registered_at: float) -> None:
        ceiling = first.job_id_ceiling
        now, forced = self.world.now, kind is CampaignKind.FORCE
        ids = JobIdAllocator(ceiling, block_size=BLOCK)
        if not self.rules.registers_ceilings:
            ids = JobIdAllocator(10**9, self.last_id + 1)
        sync = self.rules.sync_set(self.uuid, first.sync_set, self.log[-1].position, now)
        quorum = self.rules.quorum(self.uuid, first.voters, forced=forced, now=registered_at)
        term = LeaderTerm(
            first.epoch, sync, 0, first.voters, quorum, ids, ceiling, forced, forced, began_at=now
        )
        self.term = term
        sync.candidates_are(first.voters)
        self.observer.elected(self, kind)
        for node in sorted(self.others.keys() - {self.uuid}):
            self.world.spawn(self.process, self._link(term, self.others[node]))
        self.world.spawn(self.process, self._tick(term))
        self.world.spawn(self.process, self._renew(term))
        if self.rules.repairs_voters:
            self.world.spawn(self.process, self._change_voters(term))

    def end_term(self) -> None:
        self.term = None

    def is_serving(self, term: LeaderTerm) -> bool:
        return self.term is term

    @property
    def is_degraded(self) -> bool:
        term = self.term
        if term is None or not self.rules.says_degraded:
            return False
        if term.forced and self.rules.forced_is_degraded:
            return True
        return term.sync.members == {self.uuid} and (len(term.voters) > 1 or term.forced)

    def write(self, payload: Any, then: Callable[[], None] | None = None) -> None:
        """Append, sync, and acknowledge when the sync set has it."""
        term = self.term
        if term is None:
            return
        before = self.log[-1]
        position = before.position.following(term.epoch)
        self._append(term, Entry(position, hash((before.digest, position, payload)), payload), then)

    def _append(self, term: LeaderTerm, entry: Entry, then: Callable[[], None] | None) -> None:
        self.log.append(entry)
        self.observer.wrote(self, term.epoch, entry)
        term.waiting.append((entry.position, entry, then))
        term.sync.sent(entry.position, self.world.now)
        self.world.spawn(self.process, self._synced(term))

    async def _synced(self, term: LeaderTerm) -> None:
        await self.sync()
        if self.is_serving(term):
            term.sync.synced(self.log[self.synced - 1].position)
            self._acknowledge(term)

    def unknown_commit(self) -> None:
        """The disk does not say whether the last entry is written; it is."""
        term = self.term
        if term is None:
            return
        self.write(("unknown", None))
        if self.rules.stops_at_unknown_commits:
            self.end_term()
            self.world.spawn(self.process, self.campaign(CampaignKind.VOTE))
            return
        before = self.log[-2]
        again = Entry(self.log[-1].position, before.digest + 1, ("again", None))
        self._append(term, again, None)

    def submit(self) -> None:
        """A client's job: the ceiling of its id is registered before the id is used."""
        term = self.term
        if term is None or term.quorum.is_over(self.world.now):
            return
        ceiling = term.ids.ceiling_for(1)
        if ceiling is not None:
            self.world.spawn(self.process, self._raise_ceiling(term, ceiling))
            return
        (job_id,) = term.ids.take()
        self.observer.took_id(self, job_id)
        self.write(("job", job_id))

    async def _raise_ceiling(self, term: LeaderTerm, ceiling: int) -> None:
        if await self._update(term, term.sync.members, term.voters, ceiling):
            term.ids.raised(ceiling)

    def _acknowledge(self, term: LeaderTerm) -> None:
        term.sync.validate()
        acknowledged = term.sync.acknowledged
        while term.waiting and term.waiting[0][0] <= acknowledged:
            _, entry, then = term.waiting.popleft()
            self.observer.acknowledged(self, entry, degraded=self.is_degraded)
            if then:
                then()

    async def _tick(self, term: LeaderTerm) -> None:
        while self.is_serving(term):
            now = self.world.now
            if term.quorum.is_over(now):
                self.end_term()
                self.world.spawn(self.process, self.campaign(CampaignKind.VOTE))
                return
            term.sync.ask(now)
            wanted = term.sync.tick(now)
            self._acknowledge(term)
            if wanted is not None and not term.is_registering and not term.is_changing_set:
                self.world.spawn(self.process, self._change_set(term, wanted))
            await self.world.sleep(TICK_S)

    async def _change_set(self, term: LeaderTerm, wanted: frozenset[NodeUuid]) -> None:
        term.is_changing_set = True
        is_heard = not self.rules.is_heard_before_it_changes_the_set
        while self.is_serving(term) and not is_heard:
            agreed = await self._ask_to_renew(term)
            is_heard = self.rules.has_quorum(agreed, term.voters, forced=term.forced)
        if await self._update(term, wanted, term.voters, term.ceiling):
            term.sync.registered(wanted)
            self._acknowledge(term)
        term.is_changing_set = False

    async def _update(
        self,
        term: LeaderTerm,
        members: frozenset[NodeUuid],
        voters: frozenset[NodeUuid],
        ceiling: int,
    ) -> bool:
        """Register a change with a majority of the old and of the new voters; False if it is unknown."""
        if term.is_registering:
            return False
        term.is_registering = True
        old = term.voters
        request = self._next_version(term, members, voters, ceiling)
        counts = False
        while self.is_serving(term) and not counts:
            asked_at = self.world.now
            ballot = await self.ask(old | voters, lambda member: member.accept(request))
            agreed = [
                node for node, vote in ballot.items() if isinstance(vote, Vote) and vote.granted
            ]
            for node in agreed:
                term.quorum.agreed(node, asked_at)
                term.answered[node] = self.world.now
            counts = self.uuid in agreed and self.rules.voters_agree(
                agreed, old, voters, forced=term.forced
            )
            if not counts:
                await self.world.sleep(0.3)
        term.is_registering = False
        if not self.is_serving(term):
            return False
        term.voters, term.ceiling = voters, ceiling
        if term.quorum.voters != voters:
            term.answered |= dict.fromkeys(voters - old, self.world.now)
            term.quorum.voters_are(voters, self.world.now)
            term.sync.candidates_are(voters)
        return True

    def _next_version(
        self,
        term: LeaderTerm,
        members: frozenset[NodeUuid],
        voters: frozenset[NodeUuid],
        ceiling: int,
    ) -> AcceptRequest:
        term.version += 1
        accepted = Accepted(
            term.epoch, term.version, self.uuid, members, ceiling, voters, self.software
        )
        return AcceptRequest(CLUSTER, accepted)

    def change_voters(self, voters: frozenset[NodeUuid]) -> None:
        """Write the new list, and register it once that is acknowledged."""
        term = self.term
        if term is None or self.uuid not in voters:
            return

        if term.is_registering or self.own_voters != term.voters:
            return
        self.write(voters, lambda: self.world.spawn(self.process, self._change_voters(term)))

    async def _change_voters(self, term: LeaderTerm) -> None:
        """Register the voters that the state has, one node after the other (R3)."""
        while self.is_serving(term):
            wanted = self.own_voters
            if self.rules.one_member_at_a_time:
                wanted = election.next_voters(term.voters, wanted) or wanted
            if wanted == term.voters:
                return
            if not await self._update(term, term.sync.members, wanted, term.ceiling):
                await self.world.sleep(RENEW_S)

    async def _seek_majority(self, term: LeaderTerm) -> None:
        """A master by force is one like others once a majority of the voters has registered it."""
        term.is_registering = True
        request = self._next_version(term, term.sync.members, term.voters, term.ceiling)
        asked_at = self.world.now
        ballot = await self.ask(term.voters, lambda member: member.accept(request))
        agreed = [node for node, vote in ballot.items() if isinstance(vote, Vote) and vote.granted]
        term.is_registering = False
        if election.is_majority(agreed, term.voters):
            term.forced = False
            for node in agreed:
                term.quorum.agreed(node, asked_at)
            term.answered |= dict.fromkeys(agreed, self.world.now)
            term.quorum.is_elected()

    async def _renew(self, term: LeaderTerm) -> None:
        while self.is_serving(term):
            if term.forced and not term.is_registering:
                await self._seek_majority(term)
            await self._ask_to_renew(term)
            await self.world.sleep(RENEW_S)

    async def _ask_to_renew(self, term: LeaderTerm) -> list[NodeUuid]:
        """Who confirms now that this is the master."""
        asked_at, agreed = self.world.now, list[NodeUuid]()
        ballot = await self.ask(term.voters, lambda member: member.renew(term.epoch, self.uuid))
        for node, vote in ballot.items():
            if not isinstance(vote, Vote):
                continue
            if vote.granted:
                agreed.append(node)
                term.quorum.agreed(node, asked_at)
                term.answered[node] = self.world.now
            elif (
                vote.register.promised.excludes(term.epoch, self.uuid)
                and ends_leader_term(
                    term.epoch,
                    vote.register.promised.epoch,
                    is_candidate=True,
                    is_own_register=node == self.uuid,
                )
                and self.is_serving(term)
                and self.rules.steps_down_when_fenced
            ):
                self.end_term()
        return agreed

    async def _link(self, term: LeaderTerm, follower: "Member") -> None:
        """Keep one follower up to date."""
        while self.is_serving(term):
            if follower.uuid in term.sync.must_acknowledge | term.voters:
                await self._stream(term, follower)
            await self.world.sleep(PING_S)

    async def _stream(self, term: LeaderTerm, follower: "Member") -> None:
        epoch, call = term.epoch, self.world.call
        last = await call(self.process, follower.process, lambda: follower.hello(epoch, self.uuid))
        if last is None:
            return
        at = next((i for i, e in enumerate(self.log) if e.digest == last.digest), None)
        if at is None:
            if not self.rules.moves_aside:
                at = max(i for i, e in enumerate(self.log) if e.position <= last.position)
            elif last.position > self.log[-1].position:
                self.write(("beyond", None))  # so that its position does not go back
                return
        while self.is_serving(term):
            upto = len(self.log)  # the master syncs it meanwhile
            if at is None:
                copy = self.log[:upto]
                position = await call(
                    self.process,
                    follower.process,
                    lambda copy=copy: follower.snapshot(epoch, self.uuid, copy),  # type: ignore[misc] # a lambda's default
                    1.0,
                )
            else:
                previous, entries = self.log[at], self.log[at + 1 : upto]
                position = await call(
                    self.process,
                    follower.process,
                    lambda previous=previous, entries=entries: follower.append(  # type: ignore[misc] # a lambda's default
                        epoch, self.uuid, previous, entries
                    ),
                    1.0,
                )
            if position is None or not self.is_serving(term):
                return
            at = upto - 1
            term.sync.acked(follower.uuid, position, self.world.now)
            self._acknowledge(term)
            if len(self.log) == upto:
                await self.world.sleep(PING_S)
