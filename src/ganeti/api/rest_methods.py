"""LUXI methods for the REST server: the number of the cluster's state, events, figures, sessions."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti.api.event_log import EventLog
from ganeti.api.login_links import LoginLinks
from ganeti.api.luxi_arguments import Arguments
from ganeti.api.luxi_server import Caller
from ganeti.api.ports import Consoles, Histories, SessionMemory, Surveys
from ganeti.base.audit_file import AuditQuery
from ganeti.base.errors import InputError
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.figures import Range
from ganeti.model.operation import ROLES
from ganeti.model.scope import Scope
from ganeti.query.settings import settings_of

WAIT_LIMIT_S = 50.0
SESSIONS_LIMIT = 512 * 1024
MAKE_LINK = "MakeLoginLink"

MAY = frozenset({
    "SubmitJobAs", "CancelJob", "ChangeJobPriority", "WaitForJobChange", "WaitForEvents",
    *("Query", "QueryFields", "QueryJobs", "QueryInstances", "QueryNodes", "QueryGroups"),
    *("QueryNetworks", "QueryImages", "QueryFilters", "QueryClusterInfo", "QueryTags"),
    *("QueryStateNumber", "QueryFigures", "QueryHaStatus"),
    *("ReplaceFilter", "DeleteFilter"),
    *("InstanceScreenshot", "OpenConsole", "QueryOverview", "QueryImpact", "QueryHistory"),
    "QuerySettings",
    *("QuerySessions", "KeepSessions", "RedeemLoginLink", "QueryAudit"),
})  # fmt: skip
"""Methods for the user of the REST server: its jobs belong to REST users (A44), and nothing else changes."""

Method = tuple[Callable[[Arguments, Caller], Awaitable[Any]], int, int]
"""The handler, and its minimum and maximum number of arguments."""


@dataclass(frozen=True)
class RestMethods:
    """The methods that only the REST server calls."""

    events: EventLog
    state_number: Callable[[], str]
    """Changes whenever the result of a query may have changed, except for changes of guests themselves."""
    figures: Callable[[], Mapping[str, Any]]
    snapshot: Callable[[], Snapshot]
    consoles: Consoles
    histories: Histories
    survey: Surveys
    last_verify: Callable[[], dict[str, Any] | None]
    audit: Callable[[AuditQuery], Awaitable[list[dict[str, Any]]]]
    sessions: SessionMemory
    links: LoginLinks

    def table(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {
            "QueryStateNumber": (self._state_number, 0, 0),
            "WaitForEvents": (self._wait_for_events, 2, 3),
            "QueryFigures": (self._figures, 0, 0),
            "OpenConsole": (self._open_console, 3, 3),
            "QueryOverview": (self._overview, 0, 0),
            "QueryImpact": (self._impact, 0, 1),
            "QueryHistory": (self._history, 5, 5),
            "QuerySettings": (self._settings, 2, 2),
            "QueryAudit": (self._audit, 1, 1),
            "QuerySessions": (self._query_sessions, 0, 0),
            "KeepSessions": (self._keep_sessions, 1, 1),
            MAKE_LINK: (self._make_link, 3, 3),
            "RedeemLoginLink": (self._redeem_link, 1, 1),
        }

    async def _state_number(self, _args: Arguments, _caller: Caller) -> str:
        return self.state_number()

    async def _wait_for_events(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        number = None if args.raw(0) is None else args.text(0)
        passing = None if args.raw(2) is None else int(args.number(2))
        timeout_s = min(max(args.number(1), 0.0), WAIT_LIMIT_S)
        return await self.events.wait(number, timeout_s, passing)

    async def _figures(self, _args: Arguments, _caller: Caller) -> dict[str, Any]:
        return dict(self.figures())

    async def _open_console(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        """Open an endpoint to an instance's console for a user with this scope (null: unlimited)."""
        scope = wire.convert(args.raw(0), Scope | None, what="scope")
        return await self.consoles.open(self.snapshot(), scope, args.text(1), args.text(2))

    async def _overview(self, _args: Arguments, _caller: Caller) -> dict[str, Any]:
        return {**await self.survey.overview(), "verify": self.last_verify()}

    async def _impact(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        """Return the effect of the loss of a node on its instances; without a name, counts for all nodes."""
        name = args.text(0, "")
        return await (self.survey.impact(name) if name else self.survey.impacts())

    async def _history(self, args: Arguments, _caller: Caller) -> dict[str, Any]:
        """Return the figures of an instance or a node between two times, each null for its default."""
        start, end, step = (
            None if args.raw(index) is None else args.number(index) for index in (2, 3, 4)
        )
        wanted = Range(start, end, None if step is None else int(step))
        return await self.histories.history(self.snapshot(), args.text(0), args.text(1), wanted)

    async def _settings(self, args: Arguments, _caller: Caller) -> Any:
        """Return the values of an object (kind, name) that a request can change."""
        return wire.plain(settings_of(self.snapshot(), args.text(0), args.text(1)))

    async def _audit(self, args: Arguments, _caller: Caller) -> list[dict[str, Any]]:
        return await self.audit(wire.convert(args.raw(0), AuditQuery, what="query"))

    async def _query_sessions(self, _args: Arguments, _caller: Caller) -> str:
        return self.sessions.sessions

    async def _keep_sessions(self, args: Arguments, _caller: Caller) -> None:
        text = args.text(0)
        if len(text) > SESSIONS_LIMIT:
            raise InputError(f"has more than {SESSIONS_LIMIT} characters", "KeepSessions[0]")
        await self.sessions.keep_sessions(text)

    async def _make_link(self, args: Arguments, _caller: Caller) -> str:
        """Return the secret of a login link for a user, or else for a role, that is valid for some seconds."""
        user, role = args.text(0), args.text(1)
        if bool(user) == bool(role) or role not in ("", *ROLES):
            roles = ", ".join(ROLES)
            raise InputError(f"must name a user or one of the roles {roles}", f"{MAKE_LINK}[1]")
        return self.links.make(user, role, args.number(2))

    async def _redeem_link(self, args: Arguments, _caller: Caller) -> dict[str, str]:
        return self.links.redeem(args.text(0))
