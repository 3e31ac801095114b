"""One protected instance as recovery sees it: lost with its node or on its own, recovered, or left to people.

IDLE --its node is fenced, or its guest failed--> QUEUED --a place is free--> BEGINNING --committed--> RUNNING
RUNNING --done--> IDLE     --no room--> QUEUED, later     --failed--> QUEUED, later; GIVEN_UP after its attempts
GIVEN_UP --it runs, or an administrator starts it--> IDLE
"""

from dataclasses import dataclass
from enum import StrEnum

from ganeti.model.recovery import InstanceRow
from ganeti.recovery.facts import InstanceFacts
from ganeti.recovery.messages import Alarm, Commit, Instruction, JobKind, Outcome

ROOM_RETRY_S = 60.0
"""How long an instance without room waits, unless something changes."""
BACKOFF_S = 10.0
"""How long after the first failed attempt the next one comes; doubled each time, up to MOST_BACKOFF_S."""
MOST_BACKOFF_S = 60.0


class InstanceState(StrEnum):
    """What recovery does about an instance."""

    IDLE = "idle"
    QUEUED = "queued"
    BEGINNING = "beginning"
    """The attempt is being counted in the state."""
    RUNNING = "running"
    """Its job is under way."""
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Due:
    """What a queued instance needs."""

    kind: JobKind
    at: float
    """Not before this monotonic time."""


class InstanceWatch:
    """The state of one instance; `now` is monotonic time, `wall` is for people and for the window of attempts."""

    def __init__(self, uuid: str, facts: InstanceFacts) -> None:
        self.uuid, self.facts = uuid, facts
        self.row = InstanceRow(uuid)
        self.state = InstanceState.IDLE
        self.due: Due | None = None
        self.why = ""
        """What people are told about it."""
        self._pending: InstanceRow | None = None

    def adopt(self, row: InstanceRow) -> None:
        """Take over from an older master."""
        self.row = row
        if row.given_up:
            self.state, self.why = InstanceState.GIVEN_UP, row.given_up

    def need(self, kind: JobKind, now: float, why: str) -> None:
        """Queue it, unless that has happened already."""
        if self.state is InstanceState.IDLE:
            self.state, self.due, self.why = InstanceState.QUEUED, Due(kind, now), why

    def forget(self) -> None:
        """It needs nothing any more."""
        if self.state in (InstanceState.QUEUED, InstanceState.GIVEN_UP):
            self.state, self.due, self.why = InstanceState.IDLE, None, ""

    def begin(self, wall: float) -> list[Instruction]:
        """Count an attempt; the job follows when that is durable, so that no change of master adds attempts (D13)."""
        attempts = self._recent(wall)
        if len(attempts) >= self.facts.attempts:
            given_up = (
                f"{len(attempts)} attempts within {self.facts.window_s:.0f} s; the last: {self.why}"
            )
            return self._commit(InstanceRow(self.uuid, attempts, given_up))
        return self._commit(InstanceRow(self.uuid, (*attempts, wall)))

    def committed(self, row: InstanceRow) -> tuple[JobKind | None, list[Instruction]]:
        """The row is durable: return the job that may be submitted now."""
        if row != self._pending or self.due is None:
            return None, []
        self._pending = None
        self.row = row
        if row.given_up:
            self.state, self.why = InstanceState.GIVEN_UP, row.given_up
            return None, [self._alarm()]
        self.state = InstanceState.RUNNING
        return self.due.kind, []

    def commit_failed(self, now: float) -> None:
        """Try again later."""
        self._pending = None
        self._requeue(now + BACKOFF_S)

    def ended(self, outcome: Outcome, now: float, detail: str) -> list[Instruction]:
        """Its job has ended."""
        if outcome is Outcome.DONE:
            self.state, self.due, self.why = InstanceState.IDLE, None, ""
            return []
        self.why = detail
        if outcome is Outcome.NO_ROOM:
            # The attempt did not touch the instance, so it does not count.
            self._requeue(now + ROOM_RETRY_S)
            return self._uncount()
        wait_s = BACKOFF_S * 2 ** (len(self.row.attempts) - 1)
        self._requeue(now + min(wait_s, MOST_BACKOFF_S))
        return []

    def room_changed(self, now: float) -> None:
        """What did not fit may fit now."""
        if self.state is InstanceState.QUEUED and self.due is not None:
            self.due = Due(self.due.kind, min(self.due.at, now))

    def _uncount(self) -> list[Instruction]:
        self.row = InstanceRow(self.uuid, self.row.attempts[:-1])
        return [Commit(self.row)]

    def _requeue(self, at: float) -> None:
        if self.due is not None:
            self.state, self.due = InstanceState.QUEUED, Due(self.due.kind, at)

    def _recent(self, wall: float) -> tuple[float, ...]:
        """A time in the future is one before the clock was set back."""
        return tuple(at for at in self.row.attempts if wall - self.facts.window_s < at <= wall)

    def _commit(self, row: InstanceRow) -> list[Instruction]:
        self.state, self._pending = InstanceState.BEGINNING, row
        return [Commit(row)]

    def _alarm(self) -> Alarm:
        name = self.facts.name
        return Alarm(
            name,
            f"instance {name} is left alone: {self.why}; look at its last job, then run: gnt-instance start {name}",
        )
