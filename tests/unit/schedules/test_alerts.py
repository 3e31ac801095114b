"""Which backups are too old."""

from typing import Any

import pytest

from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.objects import InstanceUuid
from ganeti.schedules.alerts import (
    BackupState,
    is_old,
    limit_s,
    problem,
    state_of,
    words_of_age,
    worst,
)

DAY_S, NOW = 86400.0, 1_796_040_000.0


def schedule(**given: Any) -> BackupSchedule:
    return BackupSchedule(**{"uuid": "s1", "name": "nightly", "calendar": "daily", **given})


def run(**given: Any) -> BackupRun:
    values = {"uuid": "r1", "name": "nightly web1", "schedule": "s1", "instance": InstanceUuid("i1"),
              "since": NOW - 9 * DAY_S, "times": "daily UTC", "due": NOW, "decided": NOW}  # fmt: skip
    return BackupRun(**{**values, **given})


def test_threshold_is_twice_the_period_unless_the_schedule_has_one() -> None:
    two_days, weekly = run(last_good=NOW - 2 * DAY_S), schedule(calendar="weekly")
    assert not is_old(two_days, limit_s(schedule(), NOW), NOW)
    assert is_old(two_days, limit_s(schedule(), NOW), NOW + 1)
    assert is_old(two_days, limit_s(schedule(alert_after=47), NOW), NOW)
    assert not is_old(two_days, limit_s(weekly, NOW), NOW + 12 * DAY_S)
    assert is_old(two_days, limit_s(weekly, NOW), NOW + 12 * DAY_S + 1)
    assert is_old(run(last_good=NOW), limit_s(schedule(time_zone="Europe/Atlantis"), NOW), NOW)


def test_instance_without_a_backup_waits_before_that_is_a_problem() -> None:
    assert not is_old(run(since=NOW - DAY_S), limit_s(schedule(), NOW), NOW)
    assert is_old(run(), limit_s(schedule(), NOW), NOW)


def test_state_is_the_worst_that_holds() -> None:
    assert state_of(run()) is BackupState.WAITING
    assert state_of(run(last_good=NOW)) is BackupState.GOOD
    assert state_of(run(last_good=NOW, failures=1)) is BackupState.FAILING
    assert state_of(run(last_good=NOW, failures=1, is_old=True)) is BackupState.OLD
    assert worst(BackupState) is BackupState.OLD
    assert worst([]) is None


@pytest.mark.parametrize(("changes", "of", "words"), [
    ({"error": "no space", "job": 7}, {}, "no good backup for 9 days (schedule nightly, last error of job 7: no space;"),
    ({"error": "no space"}, {"is_paused": True}, "schedule nightly is paused; resume it"),
    ({"began": NOW, "job": 8}, {}, "job 8 has not ended"),
    ({}, {}, "has begun none; see its window"),
    ({}, {"time_zone": "Europe/Atlantis"}, "not a time zone of the master's node"),
])  # fmt: skip
def test_problem_names_the_schedule_the_cause_and_what_to_do(
    changes: dict[str, Any], of: dict[str, Any], words: str
) -> None:
    found = problem(schedule(**of), run(**changes), NOW)
    assert words in found
    assert "nightly" in found


def test_ages_have_the_largest_unit() -> None:
    assert words_of_age(3 * DAY_S + 5) == "3 days"
    assert words_of_age(DAY_S) == "24 hours"
    assert words_of_age(1800) == "30 minutes"
