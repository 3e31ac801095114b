"""What happened in a simulation, in order; downtimes and their reasons follow from it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What an event is about."""

    NODE_LOST = "node lost"
    """It has no power, or no process runs."""
    NODE_BACK = "node back"
    """Its node daemon answers again."""
    NODE_STATE = "node state"
    """What automatic recovery thinks of it; `detail` is a `NodeState` with the reason."""
    NODE_OFFLINE = "node offline"
    NODE_ONLINE = "node online"
    LINK_CUT = "link cut"
    LINK_HEALED = "link healed"
    POWER_CUT = "power cut"
    LEASE_OVER = "lease over"
    """A node without a lease has ended its protected guests."""
    MASTER_LOST = "master lost"
    MASTER = "master"
    """A node serves as the master."""
    JOB_QUEUED = "job queued"
    JOB_WAITS = "job waits"
    """For locks."""
    JOB_RUNS = "job runs"
    JOB_ENDED = "job ended"
    """`detail` is its status, and the error."""
    GUEST_STARTS = "guest starts"
    GUEST_UP = "guest up"
    """Its system serves."""
    GUEST_DOWN = "guest down"
    """`detail` is the reason."""
    GUEST_MOVED = "guest moved"
    """By a migration, without downtime."""
    DISK_IN_SYNC = "disk in sync"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    at: float
    """Seconds since the simulation began."""
    kind: Kind
    name: str
    """Of the node or the instance; the number of a job."""
    detail: str = ""
    node: str = ""
    """Where, for guests."""
    instances: tuple[str, ...] = ()
    """The instances that a job is about."""
    took: float = 0.0
    """Seconds that the start of a guest's process took."""


@dataclass(frozen=True, slots=True)
class Downtime:
    """A time in which an instance did not serve."""

    instance: str
    began: float
    ended: float | None
    """None: it was still down at the end."""
    why: str


@dataclass
class Trace:
    """All events of a simulation."""

    now: Callable[[], float]
    events: list[Event] = field(default_factory=list)
    _listeners: list[Callable[[Event], None]] = field(default_factory=list)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with each event from now on."""
        self._listeners.append(listener)

    def add(
        self,
        kind: Kind,
        name: str,
        detail: str = "",
        *,
        node: str = "",
        instances: tuple[str, ...] = (),
        took: float = 0.0,
    ) -> None:
        """Record what happens now."""
        event = Event(self.now(), kind, name, detail, node, instances, took)
        self.events.append(event)
        for listener in self._listeners:
            listener(event)

    def of(self, *kinds: Kind) -> list[Event]:
        """Return the events of these kinds."""
        return [event for event in self.events if event.kind in kinds]

    def downtimes(self) -> list[Downtime]:
        """Return every time in which a guest was down, by its beginning."""
        down: dict[str, Event] = {}
        found: list[Downtime] = []
        for event in self.events:
            if event.kind is Kind.GUEST_DOWN:
                down.setdefault(event.name, event)
            elif event.kind is Kind.GUEST_UP and (began := down.pop(event.name, None)):
                found.append(Downtime(event.name, began.at, event.at, began.detail))
        found += [Downtime(one.name, one.at, None, one.detail) for one in down.values()]
        return sorted(found, key=lambda one: (one.began, one.instance))
