"""Job filters: rules of administrators about which jobs may run (`gnt-filter`)."""

import enum
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.stored import Stored


class FilterAction(enum.StrEnum):
    """What is done with the jobs that a filter is about."""

    ACCEPT = "ACCEPT"
    """Later filters are not asked."""
    PAUSE = "PAUSE"
    """They stay in the queue."""
    REJECT = "REJECT"
    """They are cancelled, unless they run already."""
    CONTINUE = "CONTINUE"
    """Nothing: the filter is there to be read."""
    RATE_LIMIT = "RATE_LIMIT"
    """Only so many of them run at once."""


class JobFilter(Stored, frozen=True, kw_only=True):
    """One filter; its name is its UUID. Filters are asked by priority, then watermark, then UUID."""

    watermark: int
    """The greatest id that a job had when the filter was made."""
    priority: int = 0
    """From 0, which is asked first."""
    predicates: tuple[Any, ...] = ()
    """`["jobid" | "opcode" | "reason", filter]` each; all of them must hold."""
    action: FilterAction = FilterAction.CONTINUE
    most: int = 0
    """How many jobs RATE_LIMIT lets run at once."""
    reason_trail: tuple[Any, ...] = ()
    """Who made it and why, as with opcodes."""

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
    """The name of the filter for messages."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What holds a queued job back, each for people: paused, rejected, or only so many at once."""

    paused: str | None = None
    rejected: str | None = None
    limits: tuple[Limit, ...] = ()


FREE = Ruling()


def parse_action(raw: Any) -> tuple[FilterAction, int]:
    """An action as clients write it, and the number behind RATE_LIMIT; InputError."""
    match raw:
        case [FilterAction.RATE_LIMIT.value, int(most)] if most >= 1 and most is not True:
            return FilterAction.RATE_LIMIT, most
        case str() if raw in tuple(FilterAction) and raw != FilterAction.RATE_LIMIT:
            return FilterAction(raw), 0
    raise InputError(
        f"{raw!r:.60} must be ACCEPT, PAUSE, REJECT, CONTINUE, or RATE_LIMIT with a number from 1",
        "action",
    )
