"""Calendar expressions of systemd (`OnCalendar=`), time zones, and windows of the day.

Times are seconds since 1970. A time of the day that a change of the clock skips does not occur on that day.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ganeti.base.errors import InputError

LENGTH_LIMIT = 100
"""Of an expression, in characters."""
SHORTEST_PERIOD_S = 600.0
_LOOKED_AT = 16
"""The number of following times that are checked for the period."""
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_DAY_MIN = 24 * 60


def zone_named(name: str) -> tzinfo:
    """Return a time zone by its name (`Europe/Berlin`); InputError."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - few programs need it

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise InputError(
            f"{name!r:.60} is not a time zone of the master's node; use a name such as UTC or Europe/Berlin"
            " (Debian's package tzdata has them)",
            "time_zone",
        ) from err


@lru_cache(maxsize=1024)
def next_after(calendar: str, zone: str, at: float) -> float | None:
    """Return the first time of an expression after `at`; None if there is none. InputError for a wrong expression."""
    from oncalendar import BaseIterator, OnCalendarError  # noqa: PLC0415 - few programs need it

    try:
        times = BaseIterator(calendar, datetime.fromtimestamp(at, zone_named(zone)))
    except OnCalendarError as err:
        raise InputError(
            f"{calendar!r:.60} is not a calendar expression ({err}); use one of systemd, for example 'daily' or"
            " 'Mon..Fri 22:30', without a time zone",
            "calendar",
        ) from err
    # The clock of the zone may repeat an hour: the iterator then begins before `at`.
    return next((when for one in times if (when := one.timestamp()) > at), None)


def check_calendar(calendar: str, zone: str, now: float, field: str = "calendar") -> None:
    """Refuse expressions that are wrong, that never occur, or that occur too often; InputError."""
    zone_named(zone)
    if len(calendar) > LENGTH_LIMIT:
        raise InputError(f"has more than {LENGTH_LIMIT} characters", field)
    try:
        times = _following(calendar, zone, now)
    except InputError as err:
        raise InputError(err.message.partition(": ")[2] or err.message, field) from err
    if not times:
        raise InputError(f"{calendar!r} does not occur any more", field)
    if any(later - one < SHORTEST_PERIOD_S for one, later in pairwise(times)):
        raise InputError(
            f"{calendar!r} occurs more than once in {SHORTEST_PERIOD_S / 60:.0f} minutes",
            field,
        )


@lru_cache(maxsize=256)
def longest_gap(calendar: str, zone: str, at: float) -> float:
    """Return the longest time between two of the times that follow `at`; 0 if there is at most one."""
    times = _following(calendar, zone, at)
    return max((later - one for one, later in pairwise(times)), default=0.0)


def _following(calendar: str, zone: str, at: float) -> list[float]:
    found = list[float]()
    when = next_after(calendar, zone, at)
    while when is not None and len(found) < _LOOKED_AT:
        found.append(when)
        when = next_after(calendar, zone, when)
    return found


class Window(NamedTuple):
    """A part of each day, in minutes after midnight; it may contain midnight."""

    begin: int
    end: int

    def has(self, zone: str, at: float) -> bool:
        """Return whether a moment is in it; its last minute is the one before `end`."""
        local = datetime.fromtimestamp(at, zone_named(zone))
        after = (local.hour * 60 + local.minute - self.begin) % _DAY_MIN
        return after < (self.end - self.begin) % _DAY_MIN

    def next_begin(self, zone: str, at: float) -> float:
        """Return the next moment after `at` at which it begins."""
        own = zone_named(zone)
        local = datetime.fromtimestamp(at, own)
        first = local.replace(
            hour=self.begin // 60, minute=self.begin % 60, second=0, microsecond=0, fold=0
        )
        days = (first + timedelta(days=number) for number in range(4))
        return next(when for one in days if (when := one.replace(tzinfo=own).timestamp()) > at)


def parse_window(text: str) -> Window | None:
    """Return the window of `22:00-06:00`; None for an empty text, the whole day. InputError."""
    if not text:
        return None
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r:.40} is not a window of the day; use for example 22:00-06:00", "window"
        )
    hour, minute, end_hour, end_minute = map(int, match.groups())
    window = Window(hour * 60 + minute, end_hour * 60 + end_minute)
    if window.begin == window.end:
        raise InputError(
            "begins and ends at the same minute; leave it out for the whole day", "window"
        )
    return window
