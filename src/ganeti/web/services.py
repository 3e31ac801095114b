"""Services for operations."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ganeti.base.clock import Clock, SystemClock
from ganeti.model.rest_rights import Rights
from ganeti.web.audit import Audit
from ganeti.web.bridge import BRIDGES_OF_USER
from ganeti.web.events import EventHub
from ganeti.web.logins import Logins
from ganeti.web.master import MasterConnections
from ganeti.web.openid_provider import OpenId
from ganeti.web.recent import RecentAnswers
from ganeti.web.screens import Screens
from ganeti.web.sessions import Sessions
from ganeti.web.simulations import Simulations
from ganeti.web.tickets import Tickets
from ganeti.web.ui_files import UiFiles
from ganeti.web.uploads import Uploads


@dataclass
class Services:
    """The client of the master, and the server's caches."""

    master: MasterConnections
    logins: Logins
    sessions: Sessions
    openid: OpenId
    ui: UiFiles
    audit: Audit
    allowed: Callable[[Rights], list[str]]
    """Return the names of the operations that a user with these rights may call."""
    uploads: Uploads
    events: EventHub | None = None
    clock: Clock = field(default_factory=SystemClock)
    answers: RecentAnswers = field(default_factory=RecentAnswers)
    screens: Screens = field(init=False)
    simulations: Simulations = field(init=False)
    connections: Callable[[], int] = lambda: 0
    """Return the number of clients."""
    tickets: Tickets = field(default_factory=Tickets)
    bridges: Counter[str] = field(default_factory=Counter)
    """Number of open consoles by user."""
    consoles_of_user: int = BRIDGES_OF_USER
    """Limit of open consoles of one user."""
    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of answered requests by method and status."""

    def __post_init__(self) -> None:
        self.screens = Screens(self.clock)
        self.simulations = Simulations(self.clock)
