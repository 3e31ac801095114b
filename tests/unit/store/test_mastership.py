"""The decisions about the role: scripts of events and instructions, and every generated order of events."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ganeti.base.errors import NotMaster, StoreError
from ganeti.base.transitions import IllegalTransition
from ganeti.model.objects import NodeUuid
from ganeti.store.interface import Follower, Lease, Lost, Master, NotYet, Role
from ganeti.store.mastership import (
    TRANSITIONS,
    Campaigned,
    CloseServices,
    EndDaemon,
    Event,
    FenceNodes,
    FencePromised,
    Instruction,
    LeaseUnusable,
    MastershipCore,
    Notify,
    OpenServices,
    Phase,
    Reply,
    RequestKind,
    RoleRequested,
    RoleSeen,
    ServeAsMaster,
    ServicesClosed,
    ServicesUp,
    StartCampaign,
    StartFailed,
    StepDown,
    Stopping,
    TimePassed,
)
from tests.support.scenarios import run_scenario, scenarios

ME, OTHER = NodeUuid("me"), NodeUuid("other")
ERRORS = {"NotMaster": NotMaster, "NotYet": NotYet, "StoreError": StoreError, "bug": RuntimeError}


# Scripts


class Script:
    """Runs the commands of one script; the clock moves by `wait` only."""

    def __init__(self) -> None:
        self.core = MastershipCore(ME)
        self.now = 0.0

    def run(self, command: str) -> list[str]:
        word, _, rest = command.partition(" ")
        if word == "wait":
            return self._wait(float(rest))
        return self._handle(_event(word, rest))

    def _handle(self, event: Event) -> list[str]:
        before = self.core.phase
        lines = [_text(one) for one in self.core.handle(event, self.now)]
        if self.core.phase is not before:
            lines.append(f"[{self.core.phase.value}]")
        return lines

    def _wait(self, seconds: float) -> list[str]:
        end, lines = self.now + seconds, list[str]()
        while (due := self.core.next_due) is not None and due <= end:
            self.now = due
            lines += [f"{self.now:g} s: {line}" for line in self._handle(TimePassed())]
        self.now = end
        return lines


def _event(word: str, rest: str) -> Event:
    first, _, text = rest.partition(" ")
    name, _, why = text.partition(" ")
    events: dict[str, Callable[[], Event]] = {
        "role": lambda: RoleSeen(_role(first, text)),
        "ask": lambda: RoleRequested(int(first), RequestKind(text)),
        "campaigned": lambda: Campaigned(ERRORS[first](text) if first else None),
        "promised": lambda: FencePromised(Lease(int(first))),
        "up": lambda: ServicesUp(Lease(int(first))),
        "failed": lambda: StartFailed(Lease(int(first)), ERRORS[name](why)),
        "closed": lambda: ServicesClosed(Lease(int(first))),
        "unusable": lambda: LeaseUnusable(Lease(int(first)), text),
        "stop": Stopping,
    }
    return events[word]()


def _role(kind: str, text: str) -> Role:
    if kind == "master":
        return Master(Lease(int(text)))
    if kind == "lost":
        return Lost(text)
    master, _, why = text.partition(" ")
    return Follower(why, None if master == "-" else NodeUuid(master))


LEASE_ONLY = {FenceNodes: "fence", OpenServices: "open", ServeAsMaster: "serve"}


def _text(instruction: Instruction) -> str:
    match instruction:
        case FenceNodes(lease) | OpenServices(lease) | ServeAsMaster(lease):
            return f"{LEASE_ONLY[type(instruction)]} {lease.epoch}"
        case StartCampaign(kind):
            return f"campaign {kind.value}"
        case CloseServices(lease, is_serving):
            return f"close {lease.epoch}" + " and serve as a follower" * is_serving
        case StepDown(lease, why):
            return f"step down from {lease.epoch}: {why}"
        case Reply(number, error):
            return f"reply {number}: " + (f"{type(error).__name__}: {error}" if error else "done")
        case Notify(text, is_warning):
            return f"{'warn' if is_warning else 'log'}: {text}"
        case EndDaemon(why):
            return f"end: {why}"


@pytest.mark.requirement("G2", "G4", "G19")
@pytest.mark.parametrize("path", scenarios("mastership"), ids=lambda path: path.stem)
def test_role_scenario_answers_as_written(path: Path) -> None:
    run_scenario(path, Script().run)


def test_an_illegal_event_names_the_events_before_it() -> None:
    core = MastershipCore(ME)
    core.handle(RoleSeen(Master(Lease(1))), 1.0)
    with pytest.raises(IllegalTransition) as caught:
        core.handle(ServicesUp(Lease(1)), 2.0)
    assert "cannot happen in phase fencing" in str(caught.value)
    assert "1.000 closed: RoleSeen" in str(caught.value)


def test_a_campaign_that_was_not_started_cannot_end() -> None:
    with pytest.raises(IllegalTransition, match="no campaign was running"):
        MastershipCore(ME).handle(Campaigned(), 0.0)


@pytest.mark.parametrize(
    "event", [FencePromised(Lease(2)), ServicesUp(Lease(2)), ServicesClosed(Lease(2))]
)
@pytest.mark.parametrize("phase", [Phase.FENCING, Phase.OPENING, Phase.CLOSING])
def test_a_report_about_another_lease_is_illegal(phase: Phase, event: Event) -> None:
    core = MastershipCore(ME)
    core.handle(RoleSeen(Master(Lease(1))), 0.0)
    if phase is Phase.OPENING:
        core.handle(FencePromised(Lease(1)), 0.0)
    if phase is Phase.CLOSING:
        core.handle(RoleSeen(Follower()), 0.0)
    assert core.phase is phase
    with pytest.raises(IllegalTransition):
        core.handle(event, 0.0)


# Generated orders of events

Move: TypeAlias = tuple[str, int]
MOVES = st.tuples(
    st.sampled_from(
        ["elect", "lose", "overtaken", "ask", "finish", "finish", "finish", "fail", "unusable",
         "wait", "break", "stop"]
    ),
    st.integers(0, 5),
)  # fmt: skip


@dataclass
class Environment:
    """A back end, a fence and services that finish in any order, and what must hold meanwhile."""

    core: MastershipCore = field(default_factory=lambda: MastershipCore(ME))
    role: Role = field(default_factory=Follower)
    now: float = 0.0
    epoch: int = 0
    asked: int = 0
    step: Instruction | None = None
    """What is under way with the services."""
    campaign: StartCampaign | None = None
    stepping_down: list[Lease] = field(default_factory=list)
    promised: set[Lease] = field(default_factory=set)
    is_open: set[Lease] = field(default_factory=set)
    """Leases of which something may be open: from `OpenServices` until ServicesClosed or StartFailed."""
    serving: Lease | None = None
    unanswered: set[int] = field(default_factory=set)
    starts: set[int] = field(default_factory=set)
    """Requests whose answer may also be that this node is a follower."""
    has_ended: bool = False
    is_stopping: bool = False

    def report(self, *events: Event) -> None:
        """As the driver does it: the present role first."""
        for event in (RoleSeen(self.role), *events):
            for instruction in self.core.handle(event, self.now):
                self._obey(instruction)
            self._check()

    def _obey(self, instruction: Instruction) -> None:
        match instruction:
            case StartCampaign():
                assert self.campaign is None, "two campaigns at once"
                self.campaign = instruction
            case FenceNodes(lease):
                assert self.step is None, f"{instruction} during {self.step}"
                assert self.role == Master(lease)
                self.step = instruction
            case OpenServices(lease):
                assert self.step is None
                assert lease in self.promised, "opened before the fence was promised"
                assert self.role == Master(lease)
                self.is_open.add(lease)
                self.step = instruction
            case ServeAsMaster(lease):
                assert self.role == Master(lease), "clients are answered under a lease that ended"
                self.serving = lease
            case CloseServices(lease, is_serving):
                assert is_serving == (self.serving == lease)
                self.step = instruction  # what was under way is cancelled
            case StepDown(lease, _):
                self.stepping_down.append(lease)
            case Reply(number, error):
                self.unanswered.remove(number)
                assert error or self.serving or number in self.starts
            case EndDaemon():
                assert isinstance(self.role, Lost)
                self.has_ended = True

    def _check(self) -> None:
        assert len(self.is_open) <= 1, "services of two leases are open together"
        assert self.serving is None or self.serving in self.is_open
        assert self.core.is_master == (self.core.phase is Phase.OPEN)

    # Moves

    def move(self, name: str, number: int) -> None:
        moves: dict[str, Callable[[int], None]] = {
            "elect": self._elect, "lose": self._lose, "overtaken": self._overtaken,
            "ask": self._ask, "finish": self._finish, "fail": self._fail,
            "unusable": self._unusable, "wait": self._wait, "break": self._break,
            "stop": self._stop,
        }  # fmt: skip
        moves[name](number)

    def _change(self, role: Role) -> None:
        if not isinstance(self.role, Lost):
            self.role = role

    def _elect(self, number: int) -> None:
        self.epoch += 1
        self._change(Master(Lease(self.epoch)))
        if number % 2:  # the daemon sees it later, or never
            self.report()

    def _lose(self, number: int) -> None:
        self._change(Follower("no majority", ME))
        if number % 2:
            self.report()

    def _overtaken(self, number: int) -> None:
        self._change(Follower("another one", OTHER))
        if number % 2:
            self.report()

    def _break(self, number: int) -> None:
        if number == 0:
            self._change(Lost("the disk is broken"))
        self.report()

    def _ask(self, number: int) -> None:
        kind = (RequestKind.START, RequestKind.FORCE, RequestKind.TAKE_OVER)[number % 3]
        self.asked += 1
        self.unanswered.add(self.asked)
        if kind is RequestKind.START:
            self.starts.add(self.asked)
        self.report(RoleRequested(self.asked, kind))

    def _finish(self, number: int) -> None:
        """One thing that is under way succeeds."""
        if self.stepping_down and number < 2:
            lease = self.stepping_down.pop(0)
            if self.role == Master(lease):
                self._change(Follower("stepped down", ME))
            self.report()
        elif self.campaign is not None and number < 4:
            self.campaign = None
            if not isinstance(self.role, Master):
                self._elect(0)
            self.report(Campaigned())
        elif self.step is not None:
            self._finish_step()

    def _finish_step(self) -> None:
        step, self.step = self.step, None
        match step:
            case FenceNodes(lease):
                self.promised.add(lease)
                self.report(FencePromised(lease))
            case OpenServices(lease):
                self.report(ServicesUp(lease))
            case CloseServices(lease, _):
                self.is_open.discard(lease)
                self.serving = None
                self.report(ServicesClosed(lease))

    def _fail(self, number: int) -> None:
        error = (NotMaster("no majority"), NotYet("a master was heard"), StoreError("broken"))
        if self.campaign is not None and number < 3:
            self.campaign = None
            self.report(Campaigned(error[number]))
        elif isinstance(self.step, FenceNodes | OpenServices):
            lease, self.step = self.step.lease, None
            self.is_open.discard(lease)
            self.report(StartFailed(lease, error[number % 3]))

    def _unusable(self, number: int) -> None:
        self.report(LeaseUnusable(Lease(max(1, self.epoch - number % 2)), "a commit is unknown"))

    def _wait(self, number: int) -> None:
        self.now += number
        due = self.core.next_due
        if due is not None and due <= self.now:
            self.report(TimePassed())

    def _stop(self, number: int) -> None:
        if number == 0:
            self.is_stopping, self.campaign = True, None  # the driver cancels the campaign
            self.report(Stopping())
            assert not self.unanswered, "a caller waits for a daemon that stops"

    def settle(self) -> None:
        """Everything that is under way fails or ends, and time passes; the daemon sees the last role."""
        self.report()
        for _ in range(300):
            if self.stepping_down:
                self._finish(0)
            elif self.campaign is not None:
                self._fail(0)
            elif self.step is not None:
                self._finish_step()
            elif self.unanswered:
                self.now = max(self.now, self.core.next_due or 0.0)
                self.report(TimePassed())
            else:
                return
        raise AssertionError(f"never at rest: {self}")


@pytest.mark.requirement("G2", "G4", "G19")
@given(st.lists(MOVES, max_size=60))
@example([("elect", 1), ("finish", 4), ("finish", 4), ("lose", 0)])
def test_no_order_of_events_opens_two_leases_or_leaves_a_caller_waiting(moves: list[Move]) -> None:
    world = Environment()
    for name, number in moves:
        world.move(name, number)
    world.settle()
    assert not world.unanswered
    role = world.role
    is_open = isinstance(role, Master) and not world.is_stopping
    if not is_open:
        assert not world.is_open
        assert world.serving is None
        assert world.core.phase is Phase.CLOSED
    if isinstance(role, Lost):
        assert world.has_ended or world.is_stopping
    world.report(Stopping())
    world.settle()
    assert not world.is_open, "what was opened is not closed when the daemon ends"


def test_every_phase_but_the_closed_one_is_left_by_a_report() -> None:
    left = {phase for (phase, _), following in TRANSITIONS.items() if following is not phase}
    assert left == {Phase.FENCING, Phase.OPENING, Phase.CLOSING}, "OPEN is left by the role alone"


@pytest.mark.requirement("G19")
def test_take_over_is_tried_again_when_the_refusal_says_that_it_passes() -> None:
    core = MastershipCore(ME)
    core.handle(RoleSeen(Follower()), 0.0)
    core.handle(RoleRequested(1, RequestKind.TAKE_OVER), 0.0)
    refusal = NotYet("a master was heard")
    refusal.passes_in_s = 2.5
    core.handle(Campaigned(refusal), 1.0)
    assert core.next_due == 3.5
