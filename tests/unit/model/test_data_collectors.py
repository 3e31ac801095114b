"""What a cluster says of the monitoring daemon's collectors."""

from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.model.data_collectors import (
    DEFAULT_INTERVAL_US,
    NAMES,
    Collecting,
    check_enabled,
    check_intervals,
    collecting,
    format_lines,
    parse_lines,
)


def test_nodes_get_the_configured_values() -> None:
    wanted = collecting({"lv": False}, {"drbd": 30_000_000})
    assert set(wanted) == set(NAMES)
    assert wanted["lv"] == Collecting(active=False, interval_us=DEFAULT_INTERVAL_US)
    assert wanted["drbd"] == Collecting(active=True, interval_us=30_000_000)
    assert parse_lines(format_lines(wanted)) == wanted


def test_what_another_version_wrote_does_no_harm() -> None:
    text = "lv False 7000000\nnew-one True 1\ndrbd maybe 3\ndrbd\n\n"
    assert parse_lines(text) == collecting({"lv": False}, {"lv": 7_000_000})


@pytest.mark.parametrize("given", [{"nonsense": True}, {"lv": "perhaps"}, {"lv": 1}])
def test_only_collectors_are_switched_on_or_off(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        check_enabled(given, "enabled")
    check_enabled({"lv": True, "drbd": None}, "enabled")


@pytest.mark.parametrize("value", [0, -1, 999_999, 3_600_000_001, True, "5", 5.5])
def test_intervals_are_seconds_to_an_hour(value: Any) -> None:
    with pytest.raises(InputError):
        check_intervals({"lv": value}, "intervals")
    check_intervals({"lv": 1_000_000, "drbd": 3_600_000_000, "diskstats": None}, "intervals")
