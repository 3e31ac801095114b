"""Job filters: rules of administrators about which jobs may run (`gnt-filter`)."""

import enum
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.stored import Stored


class FilterAction(enum.StrEnum):
    """The effect of a filter on its jobs."""

    ACCEPT = "ACCEPT"
    """The jobs may run; later filters are skipped."""
    PAUSE = "PAUSE"
    """The jobs stay in the queue."""
    REJECT = "REJECT"
    """The jobs are cancelled, unless they run already."""
    CONTINUE = "CONTINUE"
    """No effect: the filter only documents something."""
    RATE_LIMIT = "RATE_LIMIT"
    """Only a limited number of the jobs runs at once."""


class JobFilter(Stored, frozen=True, kw_only=True):
    """One filter; its name is its UUID. Filters are evaluated by priority, then watermark, then UUID."""

    watermark: int
    """The greatest id of a job at the filter's creation."""
    priority: int = 0
    """From 0, which is evaluated first."""
    predicates: tuple[Any, ...] = ()
    """`["jobid" | "opcode" | "reason", filter]` each; all of them must match."""
    action: FilterAction = FilterAction.CONTINUE
    most: int = 0
    """The number of jobs that RATE_LIMIT lets run at once."""
    reason_trail: tuple[Any, ...] = ()
    """The author and the reason, in the form of opcodes."""

    @property
    def order(self) -> tuple[int, int, str]:
        return self.priority, self.watermark, self.uuid

    @property
    def action_on_wire(self) -> str | list[str | int]:
        """`"PAUSE"`, or `["RATE_LIMIT", 10]`."""
        if self.action is FilterAction.RATE_LIMIT:
            return [self.action.value, self.most]
        return self.action.value


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` jobs of one bucket run at once."""

    bucket: str
    most: int
    what: str
    """Return the name of the filter for messages."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The reasons that hold a queued job back, each in words: paused, rejected, or a rate limit."""

    paused: str | None = None
    rejected: str | None = None
    limits: tuple[Limit, ...] = ()


FREE = Ruling()


def parse_action(raw: Any) -> tuple[FilterAction, int]:
    """Return an action in the form of clients, and the number of RATE_LIMIT; InputError."""
    match raw:
        case [FilterAction.RATE_LIMIT.value, int(most)] if most >= 1 and most is not True:
            return FilterAction.RATE_LIMIT, most
        case str() if raw in tuple(FilterAction) and raw != FilterAction.RATE_LIMIT:
            return FilterAction(raw), 0
    raise InputError(
        f"{raw!r:.60} must be ACCEPT, PAUSE, REJECT, CONTINUE, or RATE_LIMIT with a number from 1",
        "action",
    )
