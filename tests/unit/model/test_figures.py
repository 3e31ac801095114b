"""Figures from two readings."""

import pytest

from ganeti.model.figures import (
    DISK_COUNTERS,
    FIGURES,
    NAMES,
    RINGS,
    UNKNOWN,
    Reading,
    ring_of,
    values,
)

NOW = 1_800_000_000
FINE, MINUTES, QUARTERS = RINGS


def named(found: tuple[float | None, ...]) -> dict[str, float]:
    return {name: one for name, one in zip(NAMES, found, strict=True) if one is not None}


FIRST = Reading("a", {"cpu": 10.0, "net_in": 100.0}, {"memory": 50.0})
SECOND = Reading("a", {"cpu": 12.5, "net_in": 100.0, "net_out": 7.0}, {"memory": 60.0})


def test_rates_are_growth_per_second_and_present_values_stay() -> None:
    assert named(values(SECOND, FIRST, 5.0)) == {"cpu": 0.5, "net_in": 0.0, "memory": 60.0}


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        (None, 5.0),
        (Reading("b", FIRST.counters), 5.0),
        (Reading("a", {"cpu": 12.6, "net_in": 101.0}), 5.0),
        (FIRST, 0.0),
        (FIRST, -1.0),
    ],
    ids=["first", "another life", "fell", "no time", "backward"],
)
def test_a_rate_is_unknown_without_two_comparable_readings(
    before: Reading | None, seconds: float
) -> None:
    assert named(values(SECOND, before, seconds)) == {"memory": 60.0}


def test_an_empty_reading_has_no_values() -> None:
    assert values(Reading("a"), Reading("a"), 5.0) == UNKNOWN


def test_each_figure_is_declared_once() -> None:
    assert len(set(NAMES)) == len(FIGURES)
    assert set(DISK_COUNTERS) <= {one.name for one in FIGURES if one.is_rate}


@pytest.mark.parametrize(
    ("age", "step", "expected"),
    [
        (60, None, FINE),
        (3600, None, FINE),
        (3601, None, MINUTES),
        (3 * 86_400, None, QUARTERS),
        (400 * 86_400, None, QUARTERS),
        (60, 900, QUARTERS),
        (10**7, 5, FINE),
    ],
)
def test_the_ring_is_the_finest_that_is_long_enough_or_the_requested_one(
    age: int, step: int | None, expected: object
) -> None:
    assert ring_of(NOW - age, NOW, step) is expected
