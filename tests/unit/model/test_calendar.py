"""Calendar expressions, time zones and windows of the day."""

import calendar
import time
from datetime import UTC, datetime

import pytest

from ganeti.base.errors import InputError
from ganeti.model.calendar import check_calendar, longest_gap, next_after, parse_window

BERLIN = "Europe/Berlin"
HOUR_S = 3600.0


def at(text: str) -> float:
    """Return a moment from its time in UTC."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M"))


def shown(moment: float | None) -> str | None:
    return (
        None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
    )


def test_next_time_is_in_the_time_zone_of_the_schedule() -> None:
    assert shown(next_after("daily", "UTC", at("2026-11-27 10:00"))) == "2026-11-28 00:00"
    assert shown(next_after("daily", BERLIN, at("2026-11-27 10:00"))) == "2026-11-27 23:00"
    assert shown(next_after("Mon..Fri 22:30", BERLIN, at("2026-11-27 22:00"))) == "2026-11-30 21:30"
    assert shown(next_after("*-*~01 03:00", "UTC", at("2026-02-01 00:00"))) == "2026-02-28 03:00"
    assert next_after("2020-01-01", "UTC", at("2026-02-01 00:00")) is None


def test_next_time_is_always_later_when_the_clock_repeats_an_hour() -> None:
    # At 01:00 UTC the clock in Berlin goes from 03:00 back to 02:00.
    moment, end = at("2026-10-25 00:05"), at("2026-10-25 05:00")
    seen = list[float]()
    while moment < end:
        found = next_after("*:00,20,40", BERLIN, moment)
        assert found is not None
        assert moment < found <= moment + 2 * HOUR_S
        seen.append(moment := found)
    assert len(seen) == len(set(seen))


def test_skipped_hour_does_not_occur_on_that_day() -> None:
    # At 01:00 UTC the clock in Berlin goes from 02:00 to 03:00.
    assert shown(next_after("02:30", BERLIN, at("2026-03-28 12:00"))) == "2026-03-30 00:30"


@pytest.mark.parametrize(
    ("expression", "zone", "why"),
    [
        ("", "UTC", "not a calendar expression"),
        ("Mon, 123:456", "UTC", "not a calendar expression"),
        ("daily Europe/Berlin", "UTC", "without a time zone"),
        ("tomorrow", "UTC", "not a calendar expression"),
        ("2020-01-01", "UTC", "does not occur any more"),
        ("minutely", "UTC", "more than once in 10 minutes"),
        ("*:00,05", "UTC", "more than once in 10 minutes"),
        ("9" * 101, "UTC", "more than 100 characters"),
        ("daily", "Europe/Atlantis", "not a time zone"),
        ("daily", "../../etc/passwd", "not a time zone"),
        ("daily", "", "not a time zone"),
        ("daily", "Europe", "not a time zone"),
    ],
)
def test_wrong_expression_is_refused(expression: str, zone: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_calendar(expression, zone, at("2026-11-27 10:00"))


def test_longest_gap_contains_the_weekend() -> None:
    assert longest_gap("daily", "UTC", at("2026-11-27 00:00")) == 24 * HOUR_S
    assert longest_gap("Mon..Fri 02:00", "UTC", at("2026-11-27 00:00")) == 72 * HOUR_S
    assert longest_gap("2030-01-01", "UTC", at("2026-11-27 00:00")) == 0


def test_window_may_contain_midnight() -> None:
    window = parse_window("22:00-06:00")
    assert window is not None
    inside = {
        "22:00": True,
        "23:59": True,
        "00:00": True,
        "05:59": True,
        "06:00": False,
        "21:59": False,
    }
    for text, expected in inside.items():
        assert window.has("UTC", at(f"2026-11-27 {text}")) is expected
    assert shown(window.next_begin("UTC", at("2026-11-27 06:00"))) == "2026-11-27 22:00"
    assert shown(window.next_begin("UTC", at("2026-11-27 22:00"))) == "2026-11-28 22:00"
    assert shown(window.next_begin(BERLIN, at("2026-11-27 06:00"))) == "2026-11-27 21:00"
    assert parse_window("") is None


@pytest.mark.parametrize(
    "text", ["22-06", "24:00-06:00", "22:00-22:00", "22:60-06:00", "x", "22:00-06:00 "]
)
def test_wrong_window_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="window"):
        parse_window(text)


def test_next_begin_is_in_the_window_through_changes_of_the_clock() -> None:
    window = parse_window("02:15-03:30")
    assert window is not None
    moment, end = at("2026-03-27 00:00"), at("2026-03-31 00:00")
    while moment < end:
        begin = window.next_begin(BERLIN, moment)
        assert moment < begin <= moment + 26 * HOUR_S
        assert window.has(BERLIN, begin)
        moment = begin
