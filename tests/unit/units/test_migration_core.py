"""The core of a live migration: who has the guest, what happens next, and what never may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.transitions import IllegalTransition
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.units.relocation.core import (
    End,
    Event,
    Facts,
    Instruction,
    Migration,
    Seen,
    State,
    decide_outcome,
)
from ganeti.units.relocation.reconcile import end_of

pytestmark = pytest.mark.requirement("G5", "F20")

OUTCOMES = {
    "source": State.ABORTED,
    "target": State.COMMITTED,
    "nowhere": State.DOWN,
    "both": State.STUCK,
}
HAVING = ("running", "paused", "migrating", "shutdown")


def end(state: str | None) -> End:
    if state is None:
        return end_of(None)
    found = RunningInstance(
        name="web1", uuid="u", hypervisor="fake", memory=1, vcpus=1, state=state, cpu_time_s=0.0
    )
    return end_of(found)


@pytest.mark.parametrize(
    ("source", "target", "owner"),
    [
        ("running", None, "source"),
        ("running", "incoming", "source"),
        ("migrating", "incoming", "source"),
        ("paused", "incoming", "source"),
        ("postmigrate", None, "source"),
        ("postmigrate", "incoming", "source"),
        ("postmigrate", "running", "target"),
        ("postmigrate", "paused", "target"),
        (None, "running", "target"),
        (None, "incoming", "target"),
        (None, None, "nowhere"),
        ("running", "running", "both"),
        ("paused", "running", "both"),
        ("migrating", "paused", "both"),
    ],
)
def test_the_guest_is_where_it_runs_or_where_it_came_from(
    source: str | None, target: str | None, owner: str
) -> None:
    seen = Seen(end(source), end(target))
    assert decide_outcome(seen, handed_over=False) is OUTCOMES[owner]


@pytest.mark.parametrize("source", HAVING)
@pytest.mark.parametrize("target", HAVING)
def test_two_guests_are_never_reconciled(source: str, target: str) -> None:
    assert decide_outcome(Seen(end(source), end(target)), handed_over=False) is State.STUCK


@pytest.mark.parametrize(
    ("source", "target", "owner"),
    [
        ("postmigrate", None, "nowhere"),
        ("postmigrate", "incoming", "source"),
        ("postmigrate", "running", "target"),
        ("running", None, "source"),
        (None, "incoming", "target"),
        (None, None, "nowhere"),
    ],
)
def test_once_handed_over_a_target_that_is_gone_may_have_run_the_guest(
    source: str | None, target: str | None, owner: str
) -> None:
    seen = Seen(end(source), end(target))
    assert decide_outcome(seen, handed_over=True) is OUTCOMES[owner]


I = Instruction  # noqa: E741 - as the core's own tables have it


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (Facts(), [I.MARK, I.ACCEPT]),
        (Facts(mirrored=True), [I.MARK, I.OPEN_ON_BOTH, I.ACCEPT]),
        (Facts(copied=True), [I.MARK, I.MAKE_DISKS, I.ACCEPT]),
    ],
)
def test_migration_without_failures_hands_over_before_the_target_continues(
    facts: Facts, first: list[Instruction]
) -> None:
    core = Migration(facts)
    assert core.handle(Event.BEGIN) == first
    done = [core.handle(Event.DONE) for _ in range(4)]
    assert done == [[I.SEND], [I.HAND_OVER], [I.RESUME_TARGET], []]
    assert core.state is State.COMMITTED
    assert core.is_finished


@pytest.mark.parametrize("steps", range(4))
def test_failure_at_any_point_asks_both_ends(steps: int) -> None:
    core = Migration(Facts())
    core.handle(Event.BEGIN)
    for _ in range(steps):
        core.handle(Event.DONE)
    assert core.handle(Event.FAILED) == [I.ASK]
    assert core.state is State.UNCLEAR


def test_hand_over_is_taken_back_only_if_the_call_was_surely_not_sent() -> None:
    core = Migration(Facts())
    core.handle(Event.BEGIN)
    for _ in range(3):
        core.handle(Event.DONE)
    assert core.state is State.HANDED_OVER
    assert core.handle(Event.NOT_SENT) == [I.TAKE_BACK, I.ASK]


NOWHERE = Seen(End.NOTHING, End.NOTHING)
TO_SOURCE = [I.END_TARGET, I.RESUME_SOURCE, I.RECORD_SOURCE, I.REMOVE_AT_TARGET]
TO_TARGET = [I.RESUME_TARGET, I.RECORD_TARGET, I.END_SOURCE, I.REMOVE_AT_SOURCE]


@pytest.mark.parametrize(
    ("facts", "seen", "expected", "outcome"),
    [
        (Facts(), Seen(End.HAS_GUEST, End.WAITS), TO_SOURCE, State.ABORTED),
        (Facts(), Seen(End.WAITS, End.WAITS), TO_SOURCE, State.ABORTED),
        (Facts(handed_over=True), Seen(End.WAITS, End.HAS_GUEST), TO_TARGET, State.COMMITTED),
        (
            Facts(mirrored=True),
            Seen(End.NOTHING, End.HAS_GUEST),
            [*TO_TARGET, I.SET_ROLES],
            State.COMMITTED,
        ),
        (Facts(), NOWHERE, [I.END_TARGET, I.RECORD_SOURCE, I.REMOVE_AT_TARGET], State.DOWN),
        (
            Facts(handed_over=True),
            Seen(End.WAITS, End.NOTHING),
            [I.END_TARGET, I.END_SOURCE, I.RECORD_TARGET, I.REMOVE_AT_SOURCE],
            State.DOWN,
        ),
        (  # the target's copy is dead with it, and the source's memory fits the source's disks
            Facts(copied=True, handed_over=True, target_offline=True),
            Seen(End.WAITS, End.NOTHING),
            [I.RESUME_SOURCE, I.RECORD_SOURCE],
            State.ABORTED,
        ),
        (  # shared disks have what the target wrote
            Facts(handed_over=True, target_offline=True),
            Seen(End.WAITS, End.NOTHING),
            [I.END_SOURCE, I.RECORD_SOURCE],
            State.DOWN,
        ),
        (
            Facts(source_offline=True),
            Seen(End.NOTHING, End.WAITS),
            [I.RESUME_TARGET, I.RECORD_TARGET],
            State.COMMITTED,
        ),
    ],
)
def test_ends_and_configuration_follow_what_the_ends_have(
    facts: Facts, seen: Seen, expected: list[Instruction], outcome: State
) -> None:
    core = Migration(facts, State.UNCLEAR)
    assert core.handle(Event.BEGIN) == [I.ASK]
    assert core.handle(seen) == expected
    assert core.handle(Event.DONE) == []
    assert core.state is outcome


def test_guest_that_did_not_arrive_completely_is_down() -> None:
    core = Migration(Facts(), State.UNCLEAR)
    core.handle(Event.BEGIN)
    assert core.handle(Seen(End.NOTHING, End.WAITS)) == TO_TARGET
    assert core.handle(Event.FAILED) == [I.END_TARGET, I.RECORD_SOURCE, I.REMOVE_AT_TARGET]
    core.handle(Event.DONE)
    assert core.state is State.DOWN


@pytest.mark.parametrize(
    "events",
    [
        [Seen(End.HAS_GUEST, End.HAS_GUEST)],
        [Event.SILENT],
        [Seen(End.HAS_GUEST, End.WAITS), Event.FAILED] * 3,
    ],
    ids=["two guests", "silent end", "failing calls"],
)
def test_stuck_migration_starts_over_when_the_command_is_repeated(
    events: list[Event | Seen],
) -> None:
    core = Migration(Facts(), State.UNCLEAR)
    core.handle(Event.BEGIN)
    for event in events:
        core.handle(event)
    assert core.state is State.STUCK
    assert core.handle(Event.BEGIN) == [I.ASK]


def test_illegal_event_is_reported_with_the_story() -> None:
    core = Migration(Facts())
    core.handle(Event.BEGIN)
    core.handle(Event.DONE)
    with pytest.raises(IllegalTransition) as found:
        core.handle(Seen(End.NOTHING, End.NOTHING))
    assert str(found.value) == (
        "seen (source: nothing, target: nothing) cannot happen when running; the events before:"
        " planned; begin → preparing; done → running"
    )


@pytest.mark.parametrize(
    ("instructions", "why"),
    [
        ([I.RESUME_TARGET, I.RESUME_SOURCE], "RESUME_SOURCE without END_TARGET first"),
        ([I.RESUME_SOURCE, I.END_TARGET], "RESUME_SOURCE without END_TARGET first"),
        ([I.REMOVE_AT_SOURCE, I.RECORD_TARGET], "REMOVE_AT_SOURCE without RECORD_TARGET first"),
        ([I.REMOVE_AT_SOURCE], "REMOVE_AT_SOURCE without RECORD_TARGET first"),
        ([I.RECORD_SOURCE, I.REMOVE_AT_SOURCE], "REMOVE_AT_SOURCE without RECORD_TARGET first"),
        ([I.RECORD_TARGET, I.REMOVE_AT_TARGET], "REMOVE_AT_TARGET without RECORD_SOURCE first"),
    ],
)
def test_validate_names_instructions_that_would_do_harm(
    instructions: list[Instruction], why: str
) -> None:
    core = Migration(Facts(), State.UNCLEAR)
    core.handle(Event.BEGIN)
    core.handle(Seen(End.WAITS, End.WAITS))
    core.instructions = instructions
    with pytest.raises(IllegalTransition, match=why):
        core.validate()


def test_validate_refuses_to_resume_one_end_beside_a_guest_on_the_other() -> None:
    core = Migration(Facts(), State.UNCLEAR)
    core.handle(Event.BEGIN)
    core.handle(Seen(End.HAS_GUEST, End.WAITS))
    core.instructions = [I.RESUME_TARGET]
    with pytest.raises(IllegalTransition, match="RESUME_TARGET beside a running guest"):
        core.validate()


class CallError(Exception):
    """An instruction failed; what it did, if anything, is in the world."""

    def __init__(self, *, is_sent: bool = True) -> None:
        super().__init__()
        self.is_sent = is_sent


class MasterDiesError(Exception):
    """The driver is gone; only the world and the configuration are left."""


NOT_DONE = ("not sent", "refused", "lost", "master dies")
FAULTS = (*NOT_DONE, "answer lost", "master died", "source ends", "target ends")
COMMITS = (I.MARK, I.HAND_OVER, I.TAKE_BACK)


class World:
    """Two nodes, their disks and the configuration; `faults` says which instruction fails, and how."""

    def __init__(self, faults: dict[int, str], *, copied: bool) -> None:
        self.faults = dict(faults)
        self.copied = copied
        self.source: str | None = "running"
        self.target: str | None = None
        self.memory = 0
        """How much the guest had written when its memory on the source was the latest."""
        self.disks: dict[str, int | None] = {"source": 0, "target": None if copied else 0}
        """What was written to them, counted; None: there is none. Shared disks are the same at both."""
        self.latest = 0
        self.home, self.mark, self.handed_over = "source", False, False
        self.offline: set[str] = set()
        self.count = 0
        self.told: list[str] = []

    def write(self, end: str) -> None:
        """The guest runs on `end` and writes."""
        assert self.disks[end] is not None, self.told
        self.latest += 1
        for one in [end] if self.copied else ["source", "target"]:
            self.disks[one] = self.latest

    def check(self) -> None:
        assert not (self.source == "running" and self.target == "running"), self.told
        kept = [count for count in self.disks.values() if count is not None]
        assert max(kept, default=-1) == self.latest, self.told

    def next_fault(self) -> str:
        """What goes wrong with the next instruction; '' if nothing does."""
        self.count += 1
        return self.faults.pop(self.count, "")

    def carry_out(self, one: Instruction) -> None:
        fault = self.next_fault()
        self.told.append(f"{one.name} {fault}")
        if fault not in NOT_DONE:
            self.act(one)
        self.check()
        if fault.startswith("master"):
            raise MasterDiesError
        if fault in ("source ends", "target ends"):  # a QEMU may end by itself at any time
            setattr(self, fault.split()[0], None)
        elif fault:
            is_call = not one.name.startswith("RECORD") and one not in COMMITS
            raise CallError(is_sent=fault != "not sent" or not is_call)

    def act(self, one: Instruction) -> None:
        match one:
            case I.MARK | I.TAKE_BACK:
                self.home, self.mark, self.handed_over = "source", True, False
            case I.HAND_OVER:
                self.home, self.mark, self.handed_over = "target", True, True
            case I.MAKE_DISKS:
                self.disks["target"] = 0 if self.latest == 0 else -1
            case I.ACCEPT:
                self.target = self.target or "incoming"
            case I.SEND:
                self.send()
            case I.RECORD_SOURCE | I.RECORD_TARGET:
                home = "source" if one is I.RECORD_SOURCE else "target"
                self.home, self.mark, self.handed_over = home, False, False
            case I.REMOVE_AT_SOURCE | I.REMOVE_AT_TARGET if self.copied:
                self.disks["source" if one is I.REMOVE_AT_SOURCE else "target"] = None
            case _:
                self.finish(one)

    def send(self) -> None:
        if self.source != "running" or self.target != "incoming":
            raise CallError
        self.write("source")
        self.memory = self.latest
        if self.copied:
            self.disks["target"] = self.disks["source"]
        self.source, self.target = "sent", "arrived"

    def finish(self, one: Instruction) -> None:
        """What a node does that is told how the migration ended."""
        match one, self.source, self.target:
            case (I.RESUME_TARGET, source, "arrived"):
                assert source != "running", self.told
                self.target = "running"
                self.write("target")
            case (I.RESUME_TARGET, _, "running"):
                pass
            case (I.END_TARGET, _, "incoming" | "arrived" | None):
                self.target = None
            case (I.END_SOURCE, "sent" | None, _):
                self.source = None
            case (I.RESUME_SOURCE, "sent", target):
                assert target is None or "target" in self.offline, self.told
                assert self.disks["source"] == self.memory, f"from the past: {self.told}"
                self.source = "running"
                if "target" in self.offline and self.copied:  # what it wrote is lost with it
                    self.disks["target"], self.latest = None, self.memory
            case (I.RESUME_SOURCE, "running", _):
                pass
            case (I.RESUME_TARGET | I.END_TARGET | I.END_SOURCE | I.RESUME_SOURCE, _, _):
                raise CallError

    def seen(self) -> Seen:
        source, target = (
            End.NOTHING if state is None else End.HAS_GUEST if state == "running" else End.WAITS
            for state in (self.source, self.target)
        )
        return Seen(source, target)

    def reconcile(self) -> State:
        """As the next master does it, from what the configuration says."""
        facts = Facts(
            copied=self.copied,
            source_offline="source" in self.offline,
            target_offline="target" in self.offline,
            handed_over=self.home == "target",
        )
        core = Migration(facts, State.UNCLEAR)
        todo = core.handle(Event.BEGIN)
        while not core.is_finished and core.state is not State.STUCK:
            try:
                event: Event | Seen = Event.DONE
                if todo == [I.ASK]:
                    event = Event.SILENT if self.next_fault() else self.seen()
                    assert event != Seen(End.HAS_GUEST, End.HAS_GUEST)
                else:
                    for one in todo:
                        self.carry_out(one)
            except CallError:
                event = Event.FAILED
            todo = core.handle(event)
        return core.state

    def migrate(self) -> None:
        """As the job does it; after a failure the recorded undo reconciles."""
        core = Migration(Facts(copied=self.copied))
        todo = core.handle(Event.BEGIN)
        while not core.is_finished:
            try:
                for one in todo:
                    self.carry_out(one)
            except CallError as err:
                if I.TAKE_BACK in core.handle(Event.FAILED if err.is_sent else Event.NOT_SENT):
                    self.carry_out(I.TAKE_BACK)
                self.reconcile()
                return
            todo = core.handle(Event.DONE)
        for one in (I.RECORD_TARGET, I.END_SOURCE, I.REMOVE_AT_SOURCE):
            self.carry_out(one)


@given(
    st.dictionaries(st.integers(1, 16), st.sampled_from(FAULTS), max_size=4),
    st.booleans(),
    st.sampled_from(["", "source", "target"]),
)
def test_no_story_runs_two_guests_or_loses_a_disk(
    faults: dict[int, str], copied: bool, dies: str
) -> None:
    world = World(faults, copied=copied)
    try:
        world.migrate()
    except (MasterDiesError, CallError):
        world.told.append("the job has ended")
    if dies and world.mark:
        world.told.append(f"the {dies} is dead, and marked offline")
        setattr(world, dies, None)
        world.offline.add(dies)
    for _ in range(5):
        try:
            world.reconcile()
        except MasterDiesError:
            world.told.append("another master")
    world.faults = {}
    assert world.reconcile() in (State.COMMITTED, State.ABORTED, State.DOWN), world.told
    world.check()
    assert not world.mark, world.told
    assert world.disks[world.home] is not None or world.home in world.offline, world.told
    running = [end for end in ("source", "target") if getattr(world, end) == "running"]
    assert running in ([], [world.home]), world.told
