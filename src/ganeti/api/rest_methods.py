"""LUXI methods for the REST server: the number of the cluster's state, events, figures."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti.api.event_log import EventLog
from ganeti.api.luxi_arguments import Arguments
from ganeti.api.luxi_server import Caller

WAIT_LIMIT_S = 50.0

MAY = frozenset({
    "SubmitJobAs", "CancelJob", "WaitForJobChange", "WaitForEvents",
    *("Query", "QueryFields", "QueryJobs", "QueryInstances", "QueryNodes", "QueryGroups"),
    *("QueryNetworks", "QueryFilters", "QueryClusterInfo", "QueryTags"),
    *("QueryStateNumber", "QueryFigures", "QueryHaStatus"),
    *("ReplaceFilter", "DeleteFilter"),
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

    def table(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {
            "QueryStateNumber": (self._state_number, 0, 0),
            "WaitForEvents": (self._wait_for_events, 2, 3),
            "QueryFigures": (self._figures, 0, 0),
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
