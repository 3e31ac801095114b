"""What operations work with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ganeti.base.clock import Clock, SystemClock
from ganeti.web.events import EventHub
from ganeti.web.master import MasterConnections
from ganeti.web.recent import RecentAnswers


@dataclass
class Services:
    """The master, and what the server remembers."""

    master: MasterConnections
    events: EventHub | None = None
    clock: Clock = field(default_factory=SystemClock)
    answers: RecentAnswers = field(default_factory=RecentAnswers)
    connections: Callable[[], int] = lambda: 0
    """How many clients there are."""
    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    """How many requests were answered, by method and status."""
