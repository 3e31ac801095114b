"""Services for operations."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ganeti.base.clock import Clock, SystemClock
from ganeti.web.events import EventHub
from ganeti.web.master import MasterConnections
from ganeti.web.recent import RecentAnswers


@dataclass
class Services:
    """The client of the master, and the server's caches."""

    master: MasterConnections
    events: EventHub | None = None
    clock: Clock = field(default_factory=SystemClock)
    answers: RecentAnswers = field(default_factory=RecentAnswers)
    connections: Callable[[], int] = lambda: 0
    """Return the number of clients."""
    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of answered requests by method and status."""
