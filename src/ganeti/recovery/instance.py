"""One protected instance as recovery sees it: lost with its node or on its own, recovered, or left to people.

PROTECTED --its node is fenced, or its guest failed--> QUEUED --a place is free--> BEGINNING --committed--> RUNNING
RUNNING --done--> PROTECTED     --no room--> QUEUED, until room appears     --failed--> QUEUED, later; GIVEN_UP after its attempts
GIVEN_UP --it runs, or an administrator starts it--> PROTECTED
"""

from dataclasses import dataclass
from enum import StrEnum

from ganeti.model.recovery import InstanceRow
from ganeti.recovery.facts import InstanceFacts
from ganeti.recovery.messages import Alarm, Commit, Instruction, JobKind, Outcome

ROOM_RETRY_S = 60.0
"""How long an instance without room waits if no room appears; doubled each time, up to MOST_ROOM_RETRY_S."""
MOST_ROOM_RETRY_S = 3600.0
ROOM_RETRIES = 12
"""So often, about seven hours under one master (D13); then only room that appears brings the next attempt."""
QUEUE_RETRY_S = 60.0
"""How long an instance waits while the job queue takes no jobs."""
BACKOFF_S = 10.0
"""How long after the first failed attempt the next one comes; doubled each time, up to MOST_BACKOFF_S."""
MOST_BACKOFF_S = 60.0


class InstanceState(StrEnum):
    """What recovery does about an instance."""

    PROTECTED = "protected"
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
    is_for_room: bool = False
    """It comes earlier if room appears."""


class InstanceWatch:
    """The state of one instance; `now` is monotonic time, `wall` is for people and for the window of attempts."""

    def __init__(self, uuid: str, facts: InstanceFacts) -> None:
        self.uuid, self.facts = uuid, facts
        self.row = InstanceRow(uuid)
        self.state = InstanceState.PROTECTED
        self.due: Due | None = None
        self.why = ""
        """What people are told about it."""
        self.doubt = ""
        """Why its guest may still run on its fenced node."""
        self._pending: InstanceRow | None = None
        self._not_before = float("-inf")
        """The next attempt, after one that failed."""
        self._refusals = 0
        """How often in a row there was no room for it."""
        self._has_new_room = False
        """Room has appeared since its job began."""
        self.since = float("-inf")
        """When it came into its state, as far as this master has seen."""
        self._seen: InstanceState | None = None

    def look(self, now: float) -> None:
        """Notice since when it is in its state."""
        if self.state is not self._seen:
            self._seen, self.since = self.state, now

    def recent(self, wall: float) -> tuple[float, ...]:
        """Return the attempts within the window. A time in the future is one before the clock was set back."""
        return tuple(at for at in self.row.attempts if wall - self.facts.window_s < at <= wall)

    def adopt(self, row: InstanceRow) -> None:
        """Take over from an older master."""
        self.row = row
        if row.given_up:
            self.state, self.why = InstanceState.GIVEN_UP, row.given_up

    def need(self, kind: JobKind, now: float, why: str) -> None:
        """Queue it, unless that has happened already."""
        if self.state is InstanceState.PROTECTED:
            due = Due(kind, max(now, self._not_before))
            self.state, self.due, self.why = InstanceState.QUEUED, due, why

    def cancel(self) -> None:
        """What it was queued for is not needed any more."""
        if self.state is InstanceState.QUEUED:
            self._rest()

    def reset(self) -> list[Instruction]:
        """It runs, or an administrator has moved or stopped it: earlier attempts do not count."""
        self.cancel()
        self._refusals = 0
        self._not_before = float("-inf")
        if self.state is not InstanceState.GIVEN_UP:
            return []
        self._rest()
        self.row = InstanceRow(self.uuid)
        return [Commit(self.row)]

    def begin(self, wall: float) -> list[Instruction]:
        """Count an attempt; the job follows when that is durable, so that no change of master adds attempts (D13)."""
        attempts = self.recent(wall)
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
            return None, [Alarm(self.facts.name, self.alarm)]
        if not self.facts.is_wanted:
            self._rest()
            return None, []
        self.state, self._has_new_room = InstanceState.RUNNING, False
        return self.due.kind, []

    def commit_failed(self, row: InstanceRow, now: float) -> None:
        """Try again later."""
        if row == self._pending:
            self._pending = None
            self._requeue(now + BACKOFF_S)

    def ended(self, outcome: Outcome, now: float, detail: str) -> list[Instruction]:
        """Its job has ended."""
        if outcome is Outcome.DONE or not self.facts.is_wanted:
            if self.due is not None and self.due.kind is JobKind.FAIL_OVER:
                # The configuration may still name the lost node for a moment.
                self._not_before = now + BACKOFF_S
            self._rest()
            self._refusals = 0
            return []
        self.why = detail
        if outcome is Outcome.NOT_ACCEPTED:
            self._requeue(now + QUEUE_RETRY_S)
            return self._uncount()
        if outcome is Outcome.NO_ROOM:
            return self._wait_for_room(now)
        wait_s = BACKOFF_S * 2 ** (len(self.row.attempts) - 1)
        self._not_before = now + min(wait_s, MOST_BACKOFF_S)
        self._requeue(self._not_before)
        return []

    @property
    def is_for_room(self) -> bool:
        """Return whether it waits for room, or its job may find none."""
        is_waiting = self.due is not None and self.due.is_for_room
        return is_waiting or self.state is InstanceState.RUNNING

    def room_appeared(self, now: float) -> None:
        """It may fit now; attempts are spaced however often that happens."""
        if self.state is InstanceState.QUEUED and self.due is not None and self.due.is_for_room:
            at = min(max(now, self._not_before), self.due.at)
            self.due = Due(self.due.kind, at, is_for_room=True)
        elif self.state is InstanceState.RUNNING:
            self._has_new_room = True

    def _wait_for_room(self, now: float) -> list[Instruction]:
        """Wait for room. The attempt did not touch the instance, so it does not count."""
        self._not_before = now + min(BACKOFF_S * 2**self._refusals, MOST_BACKOFF_S)
        wait_s = min(ROOM_RETRY_S * 2**self._refusals, MOST_ROOM_RETRY_S)
        at = now + wait_s if self._refusals < ROOM_RETRIES else float("inf")
        self._refusals += 1
        self._requeue(self._not_before if self._has_new_room else at, is_for_room=True)
        is_first = self._refusals == 1
        return [*self._uncount(), *([Alarm(self.facts.name, self.alarm)] if is_first else [])]

    def _uncount(self) -> list[Instruction]:
        self.row = InstanceRow(self.uuid, self.row.attempts[:-1])
        return [Commit(self.row)]

    def _rest(self) -> None:
        self.state, self.due, self.why = InstanceState.PROTECTED, None, ""

    def _requeue(self, at: float, *, is_for_room: bool = False) -> None:
        if self.due is not None:
            self.state, self.due = InstanceState.QUEUED, Due(self.due.kind, at, is_for_room)

    def _commit(self, row: InstanceRow) -> list[Instruction]:
        self.state, self._pending = InstanceState.BEGINNING, row
        return [Commit(row)]

    @property
    def alarm(self) -> str:
        """Return what administrators must do for it, or ''."""
        name = self.facts.name
        if self.doubt:
            return f"instance {name}: {self.doubt}"
        if self.state is InstanceState.QUEUED and self.due is not None and self.due.is_for_room:
            return (
                f"instance {name} waits for room: {self.why}; it is started once a node has room for it; add a node, or"
                " stop, move or remove another instance"
            )
        if self.state is not InstanceState.GIVEN_UP:
            return ""
        return (
            f"instance {name} is left alone: {self.why}; look at its last job, then run:"
            f" gnt-instance start {name}"
        )
