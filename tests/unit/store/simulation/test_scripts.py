"""Histories that chance finds too seldom: each is right with the rules, and wrong without one."""

import itertools
from collections.abc import Callable

import pytest

from ganeti.store.interface import CampaignKind
from ganeti.store.register import AcceptRequest
from tests.unit.store.simulation.engine import World
from tests.unit.store.simulation.history import Checker, short_times
from tests.unit.store.simulation.member import CLUSTER, Entry, Member
from tests.unit.store.simulation.rules import AllMembersAtOnce, RegistersAnyVersion, Rules


class Script:
    """Three nodes; the first is the master of all three."""

    def __init__(self, rules: Rules) -> None:
        self.world = World(1)
        self.checker = Checker(self.world)
        names = ("n0", "n1", "n2")
        self.members = [Member(self.world, name, rules, self.checker) for name in names]
        self.everybody = frozenset(member.uuid for member in self.members)
        for member in self.members:
            member.first_voters = self.everybody
            member.others = {one.uuid: one for one in self.members}
        self.checker.members = self.members[0].others
        self.campaign(self.members[0])
        self.until(lambda: self.set_of(0) == self.everybody)

    def campaign(self, member: Member) -> None:
        self.world.spawn(member.process, member.campaign(CampaignKind.VOTE))

    def until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> None:
        end = self.world.now + limit_s
        while not condition():
            assert self.world.now < end
            self.world.run(self.world.now + 0.01)

    def after(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def set_of(self, number: int) -> frozenset[str]:
        reign = self.members[number].reign
        return frozenset(reign.sync.members) if reign else frozenset()

    def cut(self, *links: tuple[int, int]) -> None:
        self.world.cut = {frozenset((f"n{one}", f"n{two}")) for one, two in links}

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


@pytest.mark.parametrize(("rules", "is_safe"), [(Rules, True), (AllMembersAtOnce, False)])
def test_R3_a_change_of_voters_counts_with_a_majority_of_the_old_ones(  # noqa: N802 - the rule's name
    rules: type[Rules], is_safe: bool
) -> None:
    """A master that has made itself the only voter is cut off, and the others elect another."""
    with short_times():
        script = Script(rules())
        first = script.members[0]
        script.submit(0)
        script.until(lambda: first.reign is not None and not first.reign.is_registering)
        note = script.checker.acknowledged

        def cut_then(member: Member, entry: Entry, *, degraded: bool) -> None:
            note(member, entry, degraded=degraded)
            if isinstance(entry.payload, frozenset):
                script.cut((0, 1), (0, 2))

        script.checker.acknowledged = cut_then  # type: ignore[method-assign] # acts in between
        first.change_voters(frozenset((first.uuid,)))
        script.until(lambda: bool(script.world.cut))
        script.submit(0, wait=False)
        script.campaign(script.members[1])
        script.until(lambda: script.members[1].reign is not None)
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
            if any(member.reign for member in script.members):
                break
        master = next(n for n, member in enumerate(script.members) if member.reign)
        assert (script.lost(master) is None) == is_safe
