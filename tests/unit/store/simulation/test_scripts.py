"""Histories that chance finds too seldom: each is right with the rules, and wrong without one."""

import itertools
from collections.abc import Callable

import pytest

from ganeti.store import election
from ganeti.store.interface import CampaignKind
from ganeti.store.register import AcceptRequest
from tests.unit.store.simulation.engine import World
from tests.unit.store.simulation.history import Checker, short_times
from tests.unit.store.simulation.member import CLUSTER, Entry, Member
from tests.unit.store.simulation.rules import (
    AllMembersAtOnce,
    HidesForce,
    LeavesVotersUnregistered,
    NeedsNobodyAfterForce,
    RegistersAnyVersion,
    RegistersUnheard,
    Rules,
    ServesWithoutAMajority,
    WritesBeforeRegistering,
)


class Script:
    """Nodes that all vote; the first is the master, with two others, or all, in its sync set."""

    def __init__(self, rules: Rules, nodes: int = 3) -> None:
        self.world = World(1)
        self.checker = Checker(self.world)
        names = [f"n{number}" for number in range(nodes)]
        self.members = [Member(self.world, name, rules, self.checker) for name in names]
        self.everybody = frozenset(member.uuid for member in self.members)
        for member in self.members:
            member.first_voters = self.everybody
            member.others = {one.uuid: one for one in self.members}
        self.checker.members = self.members[0].others
        self.campaign(self.members[0])
        self.until(lambda: len(self.set_of(0)) == 3)

    def campaign(self, member: Member, kind: CampaignKind = CampaignKind.VOTE) -> None:
        self.world.spawn(member.process, member.campaign(kind))

    def until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> None:
        end = self.world.now + limit_s
        while not condition():
            assert self.world.now < end
            assert not self.world.is_over, self.checker.problem
            self.world.run(self.world.now + 0.01)

    def after(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def set_of(self, number: int) -> frozenset[str]:
        term = self.members[number].term
        return frozenset(term.sync.members) if term else frozenset()

    def cut(self, *links: tuple[int, int], both_ways: bool = True) -> None:
        self.world.cut_links(((f"n{one}", f"n{two}") for one, two in links), both_ways=both_ways)

    def submit(self, number: int, *, wait: bool = True) -> None:
        before = self.checker.acknowledgements

        def done() -> bool:
            self.members[number].submit()
            return self.checker.acknowledgements > before

        if wait:
            self.until(done)
        else:
            for _ in range(10):
                self.members[number].submit()
                self.after(0.3)

    def lost(self, master: int) -> str | None:
        self.checker.check_kept(self.members[master])
        return self.checker.problem

    def force_without_a_majority(self) -> Member:
        """The master dies, and the second of five is forced, with the third alone in reach."""
        self.members[0].die()
        self.cut(*itertools.product((1, 2), (3, 4)))
        forced = self.members[1]
        self.campaign(forced, CampaignKind.FORCE)
        self.until(lambda: self.set_of(1) == {"n1", "n2"})
        return forced


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (AllMembersAtOnce, False)])
def test_R3_a_change_of_voters_counts_with_a_majority_of_the_old_ones(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    """A master that has removed a voter is cut off, and the others elect another."""
    with short_times():
        script = Script(rules())
        first = script.members[0]
        script.submit(0)
        script.until(lambda: first.term is not None and not first.term.is_registering)
        note = script.checker.acknowledged

        def cut_then(member: Member, entry: Entry, *, degraded: bool) -> None:
            note(member, entry, degraded=degraded)
            if isinstance(entry.payload, frozenset):
                script.cut((0, 1), (0, 2))

        script.checker.acknowledged = cut_then  # type: ignore[method-assign] # acts in between
        first.change_voters(frozenset((first.uuid, script.members[1].uuid)))
        script.until(lambda: bool(script.world.cut))
        script.submit(0, wait=False)
        script.campaign(script.members[1])
        script.until(lambda: script.members[1].term is not None)
        assert (script.lost(1) is None) == is_safe


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (RegistersAnyVersion, False)])
def test_R5_an_older_version_of_the_sync_set_is_refused(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    """A registration of an earlier sync set is very late, and arrives when the set is another."""
    with short_times():
        script = Script(rules())
        script.cut((0, 2))
        script.until(lambda: script.set_of(0) == {"n0", "n1"})
        late = script.members[1].register.accepted
        assert late is not None
        script.cut()
        script.until(lambda: script.set_of(0) == script.everybody)
        script.cut((0, 1))
        script.until(lambda: script.set_of(0) == {"n0", "n2"})
        script.submit(0)
        for member in script.members[1:]:
            script.world.spawn(member.process, member.accept(AcceptRequest(CLUSTER, late)))
        script.members[0].die()
        script.cut()
        for number in itertools.cycle((1, 2)):
            script.campaign(script.members[number])
            script.after(3.0)
            if any(member.term for member in script.members):
                break
        master = next(n for n, member in enumerate(script.members) if member.term)
        assert (script.lost(master) is None) == is_safe


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (LeavesVotersUnregistered, False)])
def test_R3_voters_that_a_master_did_not_live_to_register_are_registered(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    """It dies when the list of voters is acknowledged; the registers know an older one."""
    with short_times():
        script = Script(rules(), nodes=4)
        script.submit(0)
        first, second = script.members[:2]
        script.until(lambda: first.term is not None and not first.term.is_registering)
        note = script.checker.acknowledged

        def die_then(member: Member, entry: Entry, *, degraded: bool) -> None:
            note(member, entry, degraded=degraded)
            if isinstance(entry.payload, frozenset):
                script.cut((0, 1), (0, 2), (0, 3))
                script.world.at(0.0, first.die)

        script.checker.acknowledged = die_then  # type: ignore[method-assign] # acts in between
        wanted = script.everybody - {"n3"}
        first.change_voters(wanted)
        script.until(lambda: not first.process.is_up)
        script.cut()
        assert second.register.accepted is not None
        assert second.register.accepted.voters == script.everybody
        script.after(3.0)
        script.campaign(second)
        script.until(lambda: second.term is not None)
        assert second.own_voters == wanted
        script.after(2.0)
        assert (second.register.accepted.voters == wanted) == is_safe
        assert script.lost(1) is None


def heard_and_hearing_nobody(rules: Rules) -> Script:
    """The lines to the master are cut, and those from it are not: the others go on hearing it."""
    script = Script(rules)
    script.submit(0)
    script.cut((1, 0), (2, 0), both_ways=False)
    script.submit(0, wait=False)
    script.after(election.ENDS_AFTER_S + 2.0)
    script.checker.look()
    return script


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (ServesWithoutAMajority, False)])
def test_R9_master_that_sends_but_receives_nothing_ends(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    with short_times():
        script = heard_and_hearing_nobody(rules())
        assert (script.checker.problem is None) == is_safe
        assert (script.members[0].term is None) == is_safe


@pytest.mark.parametrize(("rules", "is_followed"), [(Rules, True), (RegistersUnheard, False)])
def test_R5_master_without_answers_keeps_its_sync_set(  # noqa: N802 - the rule's name
    rules: type[Rules], is_followed: bool
) -> None:
    """Or the others would take it for the only one that surely has the last state, and need force."""
    with short_times():
        script = heard_and_hearing_nobody(rules())
        second = script.members[1]
        assert second.register.accepted is not None
        assert (second.register.accepted.sync_set == script.everybody) == is_followed
        script.campaign(second)
        script.after(10.0)
        assert (second.term is not None) == is_followed
        script.cut()
        if not is_followed:
            script.until(lambda: script.members[0].term is not None or second.term is not None)
        assert script.lost(1 if second.term else 0) is None


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (HidesForce, False)])
def test_R10_a_master_by_force_is_degraded_until_a_majority_knows_it(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    with short_times():
        script = Script(rules(), nodes=5)
        forced = script.force_without_a_majority()
        assert forced.is_degraded == is_safe
        script.submit(1)
        assert (script.checker.problem is None) == is_safe
        if is_safe:
            script.cut()
            script.until(lambda: forced.term is not None and not forced.term.forced)
            assert not forced.is_degraded
            script.submit(1)
            assert script.lost(1) is None


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (NeedsNobodyAfterForce, False)])
def test_R10_a_master_by_force_that_was_elected_needs_its_majority(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    with short_times():
        script = Script(rules(), nodes=5)
        forced = script.force_without_a_majority()
        script.after(5.0)
        assert forced.term is not None
        script.cut()
        script.until(lambda: forced.term is not None and not forced.term.forced)
        script.cut(*itertools.product((1, 2), (3, 4)))
        script.after(election.ENDS_AFTER_S + 3.0)
        script.checker.look()
        assert (script.checker.problem is None) == is_safe
        assert (forced.term is None) == is_safe


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (WritesBeforeRegistering, False)])
def test_R7_a_master_is_registered_before_it_writes(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    """It is cut off as soon as it begins, writes alone and dies; a member of the last set returns."""
    with short_times():
        script = Script(rules(), nodes=5)
        script.submit(0)
        first, second, third = script.members[:3]
        first.die()
        third.die()
        script.checker.when_elected = lambda _: script.cut((1, 3), (1, 4))
        script.after(3.0)
        script.campaign(second)
        script.until(lambda: second.term is not None)
        before = script.checker.acknowledgements
        second.write(("alone", None))
        script.until(lambda: script.checker.acknowledgements > before)
        script.checker.when_elected = lambda _: None
        second.die()
        script.cut()
        first.live()
        script.after(5.0)
        assert (first.term is None) == is_safe
        if not is_safe:
            assert script.lost(0)
            return
        second.live()
        script.until(lambda: second.term is not None or first.term is not None)
        assert script.lost(1 if second.term else 0) is None
