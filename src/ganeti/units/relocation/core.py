"""The next steps of a live migration: events in, instructions out; no call, no clock, no configuration.

The states and their transitions are drawn in `docs/design/moving.md`. Two drivers carry out the instructions:
`live` while the job that migrates runs, `reconcile` after a failure or a crash, when the state is unclear.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from ganeti.base.transitions import TracedCore

QUESTION_ROUNDS = 3
"""The number of queries to both ends, if they change meanwhile or an answer is lost."""


class State(StrEnum):
    """The state of a migration."""

    PLANNED = "planned"
    PREPARING = "preparing"
    """The configuration records that the guest may be on the target too, which prepares for it."""
    RUNNING = "running"
    """The source sends the guest, which runs there."""
    TRANSFERRED = "transferred"
    """The target has all of the guest, which runs nowhere."""
    HANDED_OVER = "handed over"
    """The configuration names the target, which may have resumed the guest."""
    COMMITTED = "committed"
    """The guest is on the target."""
    UNCLEAR = "unclear"
    """Only the two ends know the location of the guest."""
    RECONCILING = "reconciling"
    """The ends and the configuration follow the answers of the ends."""
    ABORTED = "aborted"
    """The guest is on the source."""
    DOWN = "down"
    """The guest ended; its disks are on the node of the configuration."""
    STUCK = "stuck"
    """An end does not answer, or both run the guest: the mark remains until the command is repeated."""


class Instruction(Enum):
    """Orders to a driver; those of one list are carried out in order."""

    MARK = auto()
    """Record that the guest may be on the target too."""
    OPEN_ON_BOTH = auto()
    """Let both ends write to mirrored disks."""
    MAKE_DISKS = auto()
    """Create the disks on the target to which those of the source are copied."""
    ACCEPT = auto()
    SEND = auto()
    HAND_OVER = auto()
    """Record the target as the node of the guest: from now on the source's memory may be outdated."""
    TAKE_BACK = auto()
    """Record the source again: the target certainly got no command to resume the guest."""
    RESUME_TARGET = auto()
    ASK = auto()
    """Query both ends about the guest."""
    END_TARGET = auto()
    RESUME_SOURCE = auto()
    END_SOURCE = auto()
    RECORD_SOURCE = auto()
    RECORD_TARGET = auto()
    REMOVE_AT_SOURCE = auto()
    """Remove the instance's data that only the source has: its disks if they were copied, NVRAM."""
    REMOVE_AT_TARGET = auto()
    SET_ROLES = auto()
    """Open or close mirrored disks according to the configuration."""


I = Instruction  # noqa: E741 - the tables below stay readable

AT_SOURCE = {I.RESUME_SOURCE, I.END_SOURCE, I.REMOVE_AT_SOURCE}
AT_TARGET = {I.RESUME_TARGET, I.END_TARGET, I.REMOVE_AT_TARGET}


class End(Enum):
    """One end's report about the guest."""

    NOTHING = auto()
    WAITS = auto()
    """All or part of the guest, which does not run there: it is arriving, or was sent."""
    HAS_GUEST = auto()


@dataclass(frozen=True)
class Facts:
    """The facts about a migration before any event."""

    copied: bool = False
    """Each end has disks of its own."""
    mirrored: bool = False
    source_offline: bool = False
    """Marked offline, so treated as dead."""
    target_offline: bool = False
    handed_over: bool = False
    """The target may have resumed the guest."""


class Event(StrEnum):
    """A driver's report: all instructions of the last list are done, or the reason why not."""

    BEGIN = "begin"
    DONE = "done"
    NOT_SENT = "not sent"
    """The call of the last instruction certainly did not reach its node."""
    FAILED = "failed"
    """A call failed, or its answer was lost; the instructions before it are done."""
    SILENT = "silent"
    """An end does not report about the guest."""


@dataclass(frozen=True)
class Seen:
    """The reports of both ends, one after the other."""

    source: End
    target: End

    def __str__(self) -> str:
        return f"seen (source: {self.source.name.lower()}, target: {self.target.name.lower()})"


def decide_outcome(seen: Seen, *, handed_over: bool) -> State:
    """Return the guest's location from each end's report; STUCK if it runs on both.

    It is where it runs. If it runs nowhere, a source that has sent it takes it back, because a target resumes a guest
    only on command. Without a source, a target may have all of it. After the handover, a lost target may have run it:
    then the source's memory is outdated.
    """
    match seen.source, seen.target:
        case End.HAS_GUEST, End.HAS_GUEST:
            return State.STUCK
        case _, End.HAS_GUEST:
            return State.COMMITTED
        case End.HAS_GUEST, _:
            return State.ABORTED
        case End.WAITS, target if not (handed_over and target is End.NOTHING):
            return State.ABORTED
        case _, End.WAITS:
            return State.COMMITTED
    return State.DOWN


_TRANSITIONS: dict[tuple[State, Event], tuple[State, tuple[Instruction, ...]]] = {
    (State.PLANNED, Event.BEGIN): (
        State.PREPARING,
        (I.MARK, I.OPEN_ON_BOTH, I.MAKE_DISKS, I.ACCEPT),
    ),
    (State.PREPARING, Event.DONE): (State.RUNNING, (I.SEND,)),
    (State.RUNNING, Event.DONE): (State.TRANSFERRED, (I.HAND_OVER,)),
    (State.TRANSFERRED, Event.DONE): (State.HANDED_OVER, (I.RESUME_TARGET,)),
    # The job does the rest: it records the location of the guest together with the order to end the source.
    (State.HANDED_OVER, Event.DONE): (State.COMMITTED, ()),
    (State.PREPARING, Event.FAILED): (State.UNCLEAR, (I.ASK,)),
    (State.PREPARING, Event.NOT_SENT): (State.UNCLEAR, (I.ASK,)),
    (State.RUNNING, Event.FAILED): (State.UNCLEAR, (I.ASK,)),
    (State.RUNNING, Event.NOT_SENT): (State.UNCLEAR, (I.ASK,)),
    (State.TRANSFERRED, Event.FAILED): (State.UNCLEAR, (I.ASK,)),
    (State.HANDED_OVER, Event.FAILED): (State.UNCLEAR, (I.ASK,)),
    (State.HANDED_OVER, Event.NOT_SENT): (State.UNCLEAR, (I.TAKE_BACK, I.ASK)),
    (State.UNCLEAR, Event.BEGIN): (State.UNCLEAR, (I.ASK,)),
    (State.UNCLEAR, Event.SILENT): (State.STUCK, ()),
    (State.STUCK, Event.BEGIN): (State.UNCLEAR, (I.ASK,)),
}
"""State and event → the next state, and its instructions. `Seen`, and the end of `RECONCILING`, are computed."""

_NEEDS_FIRST = {
    I.RESUME_SOURCE: I.END_TARGET,
    I.REMOVE_AT_SOURCE: I.RECORD_TARGET,
    I.REMOVE_AT_TARGET: I.RECORD_SOURCE,
}
"""Instructions that must not precede another one of the same list."""

_FINISHED = {State.COMMITTED, State.ABORTED, State.DOWN}


class Migration(TracedCore):
    """The state of one migration, and the events that led to it."""

    def __init__(self, facts: Facts, state: State = State.PLANNED) -> None:
        super().__init__()
        self.facts = facts
        self.state = state
        self._story.append(str(state))
        self._round = 0
        self._seen = Seen(End.NOTHING, End.NOTHING)
        self._outcome = State.UNCLEAR
        self.instructions: list[Instruction] = []

    @property
    def is_finished(self) -> bool:
        """Whether the location of the guest is known, and no instruction is left for a driver."""
        return self.state in _FINISHED

    def handle(self, event: Event | Seen) -> list[Instruction]:
        """Process an event; return the instructions. IllegalTransition if the event is impossible now."""
        was = self.state
        if isinstance(event, Seen):
            found = self._decide(event) if was is State.UNCLEAR else None
        elif was is State.RECONCILING:
            found = self._continued(event)
        else:
            found = _TRANSITIONS.get((was, event))
        if found is None:
            raise self._illegal(f"{event} cannot happen when {was}")
        self.state, instructions = found
        self._story.append(f"{event} → {self.state}")
        self.instructions = [one for one in instructions if self._applies(one)]
        self.validate()
        return self.instructions

    def _decide(self, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
        # With disks of its own, a source whose target is dead has a matching state.
        can_resume = self.facts.copied and self.facts.target_offline
        self._seen = seen
        self._round += 1
        handed_over = self.facts.handed_over and not can_resume
        return self._follow(decide_outcome(seen, handed_over=handed_over))

    def _follow(self, outcome: State) -> tuple[State, tuple[Instruction, ...]]:
        """Bring both ends and the configuration to the decided outcome; every instruction can be repeated.

        A waiting target must be ended before the source may resume, and the configuration names the target before
        anything at the source is removed.
        """
        self._outcome = outcome
        todo: tuple[Instruction, ...]
        match outcome:
            case State.COMMITTED:
                todo = (I.RESUME_TARGET, I.RECORD_TARGET, I.END_SOURCE, I.REMOVE_AT_SOURCE)
            case State.ABORTED:
                todo = (I.END_TARGET, I.RESUME_SOURCE, I.RECORD_SOURCE, I.REMOVE_AT_TARGET)
            case State.DOWN if self.facts.handed_over and not self.facts.target_offline:
                todo = (I.END_TARGET, I.END_SOURCE, I.RECORD_TARGET, I.REMOVE_AT_SOURCE)
            case State.DOWN if self.facts.handed_over:
                todo = (I.END_TARGET, I.END_SOURCE, I.RECORD_SOURCE, I.REMOVE_AT_TARGET)
            case State.DOWN:
                todo = (I.END_TARGET, I.RECORD_SOURCE, I.REMOVE_AT_TARGET)
            case _:
                return State.STUCK, ()
        return State.RECONCILING, (*todo, I.SET_ROLES)

    def _continued(self, event: Event) -> tuple[State, tuple[Instruction, ...]] | None:
        if event is Event.DONE:
            return self._outcome, ()
        if event is not Event.FAILED:
            return None
        if self._outcome is State.COMMITTED and self._seen.target is End.WAITS:
            # Not all of the guest arrived: it ended with its source.
            return self._follow(State.DOWN)
        return (State.UNCLEAR, (I.ASK,)) if self._round < QUESTION_ROUNDS else (State.STUCK, ())

    def _applies(self, one: Instruction) -> bool:
        facts = self.facts
        if (one in AT_SOURCE and facts.source_offline) or (
            one in AT_TARGET and facts.target_offline
        ):
            return False
        if one in (I.OPEN_ON_BOTH, I.SET_ROLES):
            return facts.mirrored
        return one is not I.MAKE_DISKS or facts.copied

    def validate(self) -> None:
        """IllegalTransition if what is to be done could run a guest twice or lose a disk."""
        todo, seen = self.instructions, self._seen
        for one, other in ((I.RESUME_SOURCE, seen.target), (I.RESUME_TARGET, seen.source)):
            if one in todo and other is End.HAS_GUEST:
                raise self._illegal(f"{one.name} beside a running guest")
        for one, first in _NEEDS_FIRST.items():
            if one in todo and first not in todo[: todo.index(one)] and self._applies(first):
                raise self._illegal(f"{one.name} without {first.name} first")
