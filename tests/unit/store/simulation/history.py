"""One random history of a small cluster, and what must be true of all of them."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ganeti.base.errors import GanetiError
from ganeti.model.objects import NodeUuid
from ganeti.store import election, sync_set
from ganeti.store.epochs import BOUND, LEAP
from ganeti.store.interface import MAX_EPOCH, ZERO, CampaignKind, Position
from ganeti.store.register import PromiseRequest
from tests.unit.store.simulation.engine import World
from tests.unit.store.simulation.member import NEWER, OLDER, Entry, Member, Observer
from tests.unit.store.simulation.rules import Rules

FAULTS_S, HEALING_S = 14.0, 40.0
VOTERS_S = 5
UPGRADES, WAYS, OUTLIERS = 7_000_000, 8_000_000, 9_000_000
"""Added to a seed, so that upgrades, cuts of one way and outliers change nothing else."""


class Violation(Exception):
    """A promise was broken."""


@contextmanager
def short_times() -> Iterator[None]:
    """Safety does not depend on any of these (R14), and histories are shorter with them."""
    kept = election.LEASE_S, election.SILENCE_S, election.ENDS_AFTER_S
    kept_of_sets = sync_set.SILENT_AFTER_S, sync_set.RETURNS_AFTER_S
    election.LEASE_S, election.SILENCE_S, election.ENDS_AFTER_S = 1.8, 2.0, 6.0
    sync_set.SILENT_AFTER_S, sync_set.RETURNS_AFTER_S = 0.5, 2.0
    try:
        yield
    finally:
        election.LEASE_S, election.SILENCE_S, election.ENDS_AFTER_S = kept
        sync_set.SILENT_AFTER_S, sync_set.RETURNS_AFTER_S = kept_of_sets


class Checker(Observer):
    """Sees everything from outside."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.members: dict[NodeUuid, Member] = {}
        self.kept: dict[Position, Entry] = {}  # acknowledged, to be found at the end
        self.writers: dict[int, NodeUuid] = {}
        self.entries: dict[Position, int] = {}
        self.ids: set[int] = set()
        self.newer: set[int] = set()
        """Digests of what was written by the newer software, since the last force."""
        self.shown: dict[NodeUuid, Position] = {}
        self.forced_epoch = 0
        self.acknowledgements = 0
        self.problem: str | None = None
        self.when_elected: Callable[[Member], None] = lambda member: None

    def violated(self, what: str) -> None:
        self.problem = self.problem or f"at {self.world.now:.2f} s: {what}"
        self.world.is_over = True

    def granted(self, member: Member, request: PromiseRequest, kind: CampaignKind) -> None:
        if kind is CampaignKind.FORCE:
            # An administrator gives up what this node does not have, and what others go on with.
            self.forced_epoch = max(self.forced_epoch, request.epoch)
            self.newer.clear()  # force passes over the versions too
            self.kept = {at: entry for at, entry in self.kept.items() if at.epoch >= request.epoch}
        heard = member.heard
        if kind is not CampaignKind.VOTE or heard is None or heard[0] == request.candidate:
            return
        if self.world.now - heard[1] < election.SILENCE_S:
            self.violated(f"{member.uuid} deposes {heard[0]}, which it hears")

    def wrote(self, member: Member, epoch: int, entry: Entry) -> None:
        if self.writers.setdefault(epoch, member.uuid) != member.uuid:
            self.violated(f"{member.uuid} and {self.writers[epoch]} write in epoch {epoch}")
        if member.software == NEWER and entry.position.epoch > self.forced_epoch:
            self.newer.add(entry.digest)
        if self.entries.setdefault(entry.position, entry.digest) != entry.digest:
            self.violated(f"two transactions at {entry.position}")

    def took_id(self, member: Member, job_id: int) -> None:
        if job_id in self.ids:
            self.violated(f"{member.uuid} gives job id {job_id} again")
        if member.term and not member.term.forced:  # a majority may never hear of its ceilings
            self.ids.add(job_id)

    def acknowledged(self, member: Member, entry: Entry, *, degraded: bool) -> None:
        self.acknowledgements += 1
        # What a master by force acknowledges may lose to a majority as long as it says that.
        may_be_lost = degraded and member.term is not None and member.term.by_force
        if entry.position.epoch >= self.forced_epoch and not may_be_lost:
            self.kept[entry.position] = entry
        if degraded or (member.term and len(member.term.voters) == 1):
            return
        epoch = entry.position.epoch
        holders = sum(one.has_synced(entry) for one in self.members.values())
        # A master by force may have replaced the copy of a member that had the write when it acknowledged.
        if holders < 2 and epoch >= self.forced_epoch:
            self.violated(f"{member.uuid} alone has {entry.position}, and does not say so")
        knowing = [
            one.uuid for one in self.members.values() if one.register.promised.epoch >= epoch
        ]
        if member.term and not election.has_quorum(knowing, member.term.voters):
            self.violated(f"{member.uuid} may have a rival in epoch {epoch}, and does not say so")

    def synced(self, member: Member) -> None:
        position = member.log[member.synced - 1].position
        if position < self.shown.get(member.uuid, ZERO):
            self.violated(f"{member.uuid} goes back to {position} from {self.shown[member.uuid]}")
        self.shown[member.uuid] = position

    def elected(self, member: Member, kind: CampaignKind) -> None:
        if kind is not CampaignKind.FORCE and member.software == OLDER:
            newer = self.newer & {entry.digest for entry in member.log}
            if newer:
                self.violated(f"{member.uuid} is too old for what {len(newer)} writes mean")
        for other in self.members.values():
            term = other.term
            if kind is not CampaignKind.VOTE or other is member or term is None:
                continue
            if (
                term.forced or len(term.voters) <= 2
            ):  # these have no lease: force alone replaces them
                continue
            if term.quorum.holds(self.world.now):
                self.violated(f"{other.uuid} answers clients although {member.uuid} is the master")
        self.when_elected(member)

    def look(self) -> None:
        """What is true at any moment."""
        for member in self.members.values():
            term = member.term
            if term is None or term.forced or len(term.voters) <= 2:
                continue
            since = self.world.now - election.ENDS_AFTER_S - 1.5
            fresh = {node for node, at in term.answered.items() if at > since} | {member.uuid}
            if term.began_at < since and not election.is_majority(fresh, term.voters):
                self.violated(f"{member.uuid} serves without a majority")

    def check_kept(self, master: Member) -> None:
        here = set(master.log)
        lost = sorted(at for at, entry in self.kept.items() if entry not in here)
        if lost:
            self.violated(f"{master.uuid} does not have what was acknowledged at {lost[:3]}")
        histories = {entry.digest for entry in master.log}
        for node in master.term.sync.members if master.term else ():
            other = [entry.digest for entry in self.members[node].log]
            if not histories.issuperset(other):
                self.violated(f"{node} is in the sync set with another history")
        for one, two in zip(master.log, master.log[1:], strict=False):
            if not one.position < two.position:
                self.violated(f"{two.position} comes after {one.position}")


class History:
    """What happens is decided by the seed."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.seed, self.world = seed, World(seed)
        self.random = self.world.random
        self.checker = Checker(self.world)
        self.theme = self.random.choice(("any", "any", "network", "members", "cut off"))
        count = self.random.choice((4, 5) if self.theme == "members" else (2, 3, 3, 3, 4, 5))
        names = [f"n{number}" for number in range(count)]
        self.members = [Member(self.world, name, rules, self.checker) for name in names]
        self.uses_force = self.random.random() < 0.15
        voters = frozenset(member.uuid for member in self.members)
        if count > 3 and self.random.random() < 0.5:
            voters -= {self.members[-1].uuid}
        for member in self.members:
            member.first_voters = voters
            member.others = {one.uuid: one for one in self.members}
        dice = random.Random(seed + UPGRADES)
        for member in self.members:
            member.is_upgraded_next = seed % 4 == 0 and dice.random() < 0.5
        self.checker.members = self.members[0].others
        self.rules = rules
        self.spoilt: NodeUuid | None = None
        self.ways = random.Random(seed + WAYS)
        self.one_way = self.ways.choice((0.0, 0.0, 0.5))
        """The part of the cuts in which only one side does not hear the other."""
        self.world.loss = self.random.choice((0.0, 0.0, 0.02, 0.1))
        self.world.repeats = self.random.choice((0.0, 0.0, 0.05, 0.2))
        if self.theme == "network":
            self.world.loss, self.world.repeats = 0.2, 0.4
        if self.theme == "cut off":
            self.checker.when_elected = self._cut_off

    def run(self) -> int:
        """How many writes were acknowledged; Violation."""
        try:
            self._run()
        except (GanetiError, KeyError, ValueError) as error:
            self.checker.violated(f"{type(error).__name__}: {error}")
        if self.checker.problem:
            raise Violation(self.checker.problem)
        return self.checker.acknowledgements

    def _run(self) -> None:
        first = self.members[0]
        self.world.spawn(first.process, first.campaign(CampaignKind.VOTE))
        self._clients()
        self.world.at(1.0, self._fault)
        self._outlier()
        self._advance(FAULTS_S)
        self._heal()
        if not self.checker.problem:
            self._settle()

    def _advance(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def _clients(self) -> None:
        for member in self.members:
            if member.term and self.random.random() < 0.7:
                member.submit()
        self.checker.look()
        self.world.at(0.02 + self.random.random() * 0.15, self._clients)

    def _fault(self) -> None:
        if self.world.now > FAULTS_S:
            return
        faults: tuple[Callable[[], None], ...] = (
            self._crash,
            self._crash,
            self._crash_all,
            self._part,
            self._part,
            self._mend,
            self._fail_over,
            self._fail_over,
            self._slow_disk,
            self._change_members,
            self._unknown_commit,
            self._churn,
        )
        if self.theme == "members":
            faults = (*faults, *[self._change_members] * 8, *[self._part, self._fail_over] * 2)
        if self.theme == "network":
            faults = (*faults, *[self._churn, self._fail_over] * 4)
        self.random.choice(faults)()
        self.world.at(self.random.random() * 1.6, self._fault)

    def _outlier(self) -> None:
        """In one history of four the register of one node promises an epoch that is out of bounds (R2)."""
        dice = random.Random(self.seed + OUTLIERS)
        if self.seed % 4 == 1 and len(self.members) > 2 and self.theme != "members":
            spoilt = dice.choice(self.members)
            epoch = dice.choice((MAX_EPOCH, MAX_EPOCH - 1, LEAP, 2 * BOUND))
            self.spoilt = spoilt.uuid
            self.world.at(dice.random() * FAULTS_S, lambda: spoilt.spoil(epoch))

    def _crash(self) -> None:
        masters = [one for one in self.members if one.term]
        among = masters if masters and self.random.random() < 0.5 else self.members
        self._kill(self.random.choice(among), self.random.choice((0.05, 1.0, 4.0)))

    def _kill(self, member: Member, down_s: float) -> None:
        if not member.process.is_up:
            return
        member.die()
        life = member.process.life

        def again() -> None:
            if not member.process.is_up and member.process.life == life:
                member.live()

        self.world.at(down_s * (0.5 + self.random.random()), again)

    def _crash_all(self) -> None:
        for member in self.members:
            self._kill(member, self.random.choice((0.1, 2.0)))

    def _part(self) -> None:
        if self.world.now > FAULTS_S:
            return
        group = {one.uuid for one in self.members if self.random.random() < 0.5}
        self._cut(
            (one.uuid, two.uuid)
            for one in self.members
            for two in self.members
            if one.uuid in group and two.uuid not in group
        )

    def _cut(self, links: Iterable[tuple[NodeUuid, NodeUuid]]) -> None:
        """Nothing gets from the first to the second of each; nor back, in most cases."""
        both_ways = self.ways.random() >= self.one_way
        turned = self.ways.random() < 0.5
        self.world.cut_links(
            ((two, one) if turned else (one, two) for one, two in links), both_ways=both_ways
        )

    def _mend(self) -> None:
        self.world.cut = set()

    def _churn(self) -> None:
        """The set changes: one node is cut off from one other, for as long as it takes to be dropped."""
        one, two = self.random.sample(self.members, 2)
        self._cut([(one.uuid, two.uuid)])

    def _fail_over(self) -> None:
        member = self.random.choice(self.members)
        if not member.process.is_up:
            return
        kind = CampaignKind.VOTE
        if self.uses_force and self.random.random() < 0.5:
            kind = CampaignKind.FORCE
        elif self.random.random() < 0.4:
            self.world.spawn(member.process, self._hand_over(member))
            return
        self.world.spawn(member.process, member.campaign(kind))

    async def _hand_over(self, member: Member) -> None:
        master = next((one for one in self.members if one.term), None)
        if master is None or master is member:
            return
        agreed = await self.world.call(member.process, master.process, master.hand_over)
        if agreed:
            await member.campaign(CampaignKind.HAND_OVER)

    def _cut_off(self, member: Member) -> None:
        """A master that has just begun loses some of the others, and then others take over."""
        if self.random.random() < 0.5 or self.world.now > FAULTS_S:
            return
        others = [one for one in self.members if one is not member]
        lost = self.random.sample(others, self.random.randint(1, len(others)))
        self._cut((member.uuid, one.uuid) for one in lost)
        for one in lost:
            self.world.at(3.0, lambda one=one: self._vote_for(one))  # type: ignore[misc] # a default

    def _vote_for(self, member: Member) -> None:
        if member.process.is_up:
            self.world.spawn(member.process, member.campaign(CampaignKind.VOTE))

    def _slow_disk(self) -> None:
        self.random.choice(self.members).sync_s = self.random.choice((0.001, 0.05, 0.4, 2.0))

    def _unknown_commit(self) -> None:
        for member in self.members:
            if member.term and self.random.random() < 0.5:
                member.unknown_commit()

    def _change_members(self) -> None:
        """One voter more or less; now and then the others are cut off while it happens."""
        if self.theme == "members" and self.random.random() < 0.3:
            self.world.at(self.random.random() * 0.3, self._part)
        everybody = frozenset(one.uuid for one in self.members)
        for member in self.members:
            if member.term is None or len(everybody) < 4:
                continue
            voters = member.term.voters
            if self.rules.one_member_at_a_time:
                node = self.random.choice(sorted(everybody - {member.uuid}))
                voters = voters ^ {node}
            else:
                voters = frozenset(node for node in everybody if self.random.random() < 0.5) | {
                    member.uuid
                }
            member.change_voters(voters)

    def _heal(self) -> None:
        self.world.cut, self.world.loss, self.world.repeats = set(), 0.0, 0.0
        for member in self.members:
            member.sync_s = 0.001
            if not member.process.is_up:
                member.live()

    def _settle(self) -> None:
        """In the end there is a master that acknowledges, and it has everything."""
        end = self.world.now + HEALING_S
        candidates = itertools.cycle(self.random.sample(self.members, len(self.members)))
        while self.world.now < end and not self.checker.problem:
            self._advance(2.0)
            masters = [one for one in self.members if one.term]
            if len(masters) == 1 and self._acknowledges(masters[0]):
                self.checker.check_kept(masters[0])
                self._check_voters(masters[0])
                return
            candidate = next(candidates)
            self.world.spawn(candidate.process, candidate.campaign(CampaignKind.VOTE, 1))
        if not self._is_beyond_healing():
            self.checker.violated("nobody became the master although all is well again")

    def _is_beyond_healing(self) -> bool:
        """The node with the spoilt register may alone have the last state, or half the votes or all: that needs force."""
        others = [one.register for one in self.members if one.uuid != self.spoilt]
        last = election.last_accepted(others)
        if last is None or self.spoilt is None:
            return False
        return last.sync_set == {self.spoilt} or (
            self.spoilt in last.voters and len(last.voters) <= 2
        )

    def _acknowledges(self, master: Member) -> bool:
        before, term = self.checker.acknowledgements, master.term
        self._advance(1.0)
        return master.term is term and self.checker.acknowledgements > before

    def _check_voters(self, master: Member) -> None:
        """The registers come to know the voters that the state has, whoever has written them there."""
        for _ in range(VOTERS_S):
            term = master.term
            if term is None or term.voters == master.own_voters:
                return
            self._advance(1.0)
        self.checker.violated(f"the registers do not know the voters {sorted(master.own_voters)}")
