"""Which backups are kept: pure decisions."""

import calendar
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.model.retention import NEWEST, NEWEST_GOOD, Retention, kept


def at(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M"))


def points(*texts: str) -> list[tuple[str, float]]:
    return [(text, at(text)) for text in texts]


def test_newest_backup_is_always_kept() -> None:
    assert kept(points("2026-01-01 00:00", "2026-01-02 00:00"), Retention()) == {
        "2026-01-02 00:00": [NEWEST]
    }
    assert kept([], Retention(last=3)) == {}


def test_last_of_each_period_is_kept() -> None:
    given_ = points(
        "2025-12-30 10:00", "2026-01-01 10:00", "2026-01-01 11:10", "2026-01-01 11:50", "2026-02-03 09:00"
    )  # fmt: skip
    assert list(kept(given_, Retention(hourly=3))) == [
        "2026-02-03 09:00", "2026-01-01 11:50", "2026-01-01 10:00"
    ]  # fmt: skip
    assert list(kept(given_, Retention(daily=2))) == ["2026-02-03 09:00", "2026-01-01 11:50"]
    assert kept(given_, Retention(monthly=12))["2025-12-30 10:00"] == ["monthly 2025-12"]
    assert list(kept(given_, Retention(yearly=1))) == ["2026-02-03 09:00"]
    # The first days of January belong to a week that began in December.
    assert "2025-12-30 10:00" not in kept(given_, Retention(weekly=9))
    assert list(kept(given_, Retention(last=2))) == ["2026-02-03 09:00", "2026-01-01 11:50"]


def test_newest_good_backup_is_kept_beside_newer_ones_that_are_not_good() -> None:
    given_ = points("2026-01-01 00:00", "2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00")
    good = ["2026-01-01 00:00", "2026-01-02 00:00"]
    assert kept(given_, Retention(), good) == {
        "2026-01-04 00:00": [NEWEST],
        "2026-01-02 00:00": [NEWEST_GOOD],
    }
    assert kept(given_[:2], Retention(last=1), good) == {
        "2026-01-02 00:00": [NEWEST, NEWEST_GOOD, "last"]
    }


def test_order_of_making_decides_and_not_a_clock_that_was_set_back() -> None:
    given_ = points("2026-05-02 10:00", "2026-05-01 10:00")
    assert kept(given_, Retention(last=1)) == {"2026-05-01 10:00": [NEWEST, "last"]}


@given(
    st.lists(st.integers(0, 10**8), max_size=40),
    st.builds(Retention, *[st.integers(0, 5)] * 6),
)
def test_rules_keep_at_most_their_numbers_and_a_repetition_removes_nothing(
    times: list[int], rules: Retention
) -> None:
    given_ = [(str(number), float(one)) for number, one in enumerate(times)]
    found = kept(given_, rules)
    limit = sum(vars(rules).values()) + 1
    assert len(found) <= limit
    rest = [one for one in given_ if one[0] in found]
    assert kept(rest, rules) == found


@pytest.mark.parametrize("rule", ["last", "hourly", "daily", "weekly", "monthly", "yearly"])
def test_each_rule_alone_keeps_as_many_as_it_says(rule: str) -> None:
    given_ = [(str(number), number * 366 * 86400.0) for number in range(9)]
    assert len(kept(given_, Retention(**{rule: 4}))) == 4
