"""Which backups begin: pure decisions, and histories of them in virtual time."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.calendar import next_after, parse_window
from ganeti.model.objects import GroupUuid, InstanceUuid
from ganeti.schedules.decide import (
    MOST_CHANGES,
    PAUSES_S,
    SET_BACK_S,
    Decision,
    Facts,
    Guest,
    JobFact,
    covers,
    decide,
)

DAY_S, HOUR_S = 86400.0, 3600.0
NOON = 1_796_040_000.0
"""2026-11-30 12:00 UTC, a Monday."""


def schedule(**given_: Any) -> BackupSchedule:
    values = {"uuid": "s1", "name": "nightly", "calendar": "02:00", "all_instances": True, **given_}
    return BackupSchedule(**values)


def guest(number: int, **given_: Any) -> Guest:
    values = {"node": "n1", "group": "g1", **given_}
    return Guest(InstanceUuid(f"i{number}"), f"web{number}.example.com", **values)


@dataclass
class Master:
    """The durable memory, the queue, and a clock; what survives a master."""

    schedules: list[BackupSchedule]
    guests: dict[str, Guest]
    now: float = NOON
    memory: dict[str, BackupRun] = field(default_factory=dict)
    jobs: dict[str, JobFact] = field(default_factory=dict)
    """The idempotency key of each job in the queue."""
    uuids: Iterator[str] = field(
        default_factory=lambda: (f"r{number}" for number in itertools.count())
    )
    last: Decision = field(default_factory=Decision)

    def decide(self) -> Decision:
        facts = Facts(self.guests, self.jobs)
        self.last = decide(self.schedules, list(self.memory.values()), facts, self.now, self.uuids)
        return self.last

    def commit(self) -> None:
        self.memory.update((run.uuid, run) for run in self.last.changed)
        for run in self.last.forgotten:
            del self.memory[run.uuid]

    def submit(self) -> None:
        for start in self.last.starts:
            job = JobFact(len(self.jobs) + 1, is_ended=False)
            self.jobs.setdefault(start.run.key, job)

    def turn(self) -> list[str]:
        """Decide until nothing changes; return the names of the instances whose backups begin."""
        names = list[str]()
        while True:
            self.decide()
            self.commit()
            self.submit()
            names += [start.guest.name for start in self.last.starts]
            if not self.last.changed and not self.last.forgotten:
                return names

    def end(self, *, error: str = "", point: str = "p") -> None:
        """Let all jobs of the queue end."""
        for key, job in self.jobs.items():
            if not job.is_ended:
                made = "" if error else point
                self.jobs[key] = replace(job, is_ended=True, error=error, point=made, made=self.now)

    def run_of(self, number: int) -> BackupRun:
        return next(run for run in self.memory.values() if run.instance == f"i{number}")


def master(*numbers: int, **given_: Any) -> Master:
    return Master([schedule(**given_)], {f"i{number}": guest(number) for number in numbers})


@pytest.mark.requirement("F28")
def test_backup_begins_when_it_is_due_and_not_again_on_that_day() -> None:
    own = master(1)
    assert own.turn() == []
    assert own.last.wake == NOON + 14 * HOUR_S
    own.now = NOON + 14 * HOUR_S
    assert own.turn() == ["web1.example.com"]
    own.now += HOUR_S
    assert own.turn() == []
    own.end()
    assert own.turn() == []
    assert (own.run_of(1).last_good, own.run_of(1).point) == (own.now, "p")
    assert own.last.wake == NOON + 38 * HOUR_S


def test_missed_times_are_caught_up_once() -> None:
    own = master(1)
    own.turn()
    own.now += 10 * DAY_S
    assert own.turn() == ["web1.example.com"]
    own.end()
    assert own.turn() == []


def test_new_master_continues_the_job_of_the_old_one() -> None:
    own = master(1)
    own.turn()
    own.now += DAY_S
    own.decide()
    own.commit()
    own.submit()  # The old master dies before it stores the id of the job.
    assert own.run_of(1).job == 0
    assert own.turn() == []
    assert own.run_of(1).job == 1


def test_job_that_was_never_submitted_begins_again() -> None:
    own = master(1)
    own.turn()
    own.now += DAY_S
    own.decide()
    own.commit()  # The old master dies before it submits the job.
    assert own.turn() == ["web1.example.com"]
    assert len(own.jobs) == 1


def test_failures_are_repeated_after_growing_pauses() -> None:
    own = master(1)
    own.turn()
    own.now += DAY_S
    for pause in (*PAUSES_S, PAUSES_S[-1]):
        assert own.turn() == ["web1.example.com"]
        own.end(error="no space")
        assert own.turn() == []
        assert own.run_of(1).error == "no space"
        own.now += pause - 1
        assert own.turn() == []
        own.now += 1
    assert own.turn() == ["web1.example.com"]
    own.end()
    own.turn()
    run = own.run_of(1)
    assert (run.failures, run.all_failures, run.error) == (0, 6, "")


def test_lost_job_counts_as_a_failure() -> None:
    own = master(1)
    own.turn()
    own.now += DAY_S
    own.turn()
    own.jobs.clear()
    own.turn()
    assert own.run_of(1).error == "job 1 is lost"


def test_failed_removal_of_old_backups_keeps_the_new_one_good() -> None:
    own = master(1)
    own.turn()
    own.now += DAY_S
    own.turn()
    (key,) = own.jobs
    own.jobs[key] = JobFact(1, is_ended=True, point="p", made=own.now, error="prune: read-only")
    assert own.turn() == []
    run = own.run_of(1)
    assert (run.last_good, run.failures, run.all_failures, run.error) == (
        own.now,
        0,
        1,
        "prune: read-only",
    )


@pytest.mark.parametrize(("limits", "expected"), [
    ({"at_once": 2, "per_node": 9}, 2), ({"at_once": 9, "per_node": 1}, 2), ({"at_once": 9, "per_node": 3}, 6),
])  # fmt: skip
def test_limits_hold_in_total_and_for_each_node(limits: dict[str, int], expected: int) -> None:
    own = master(**limits)
    own.guests = {f"i{number}": guest(number, node=f"n{number % 2}") for number in range(8)}
    own.turn()
    own.now += DAY_S
    names = own.turn()
    assert len(names) == expected
    own.end()
    assert len(own.turn()) == min(expected, 8 - expected)


def test_limit_of_a_node_counts_the_jobs_of_all_schedules() -> None:
    own = master(1)
    own.schedules.append(schedule(uuid="s2", name="other"))
    own.turn()
    own.now += DAY_S
    assert len(own.turn()) == 1


def test_failing_backup_keeps_no_other_from_its_slot() -> None:
    own = master(1, 2, at_once=1)
    own.turn()
    own.now += DAY_S
    (first,) = own.turn()
    own.end(error="broken")
    own.now += PAUSES_S[0]
    (second,) = own.turn()
    assert second != first


def test_backups_begin_only_in_the_window() -> None:
    own = master(1, calendar="08:00", window="22:00-06:00")
    own.turn()
    own.now = NOON + 20 * HOUR_S  # 08:00
    assert own.turn() == []
    assert own.last.wake == NOON + 34 * HOUR_S  # 22:00
    own.now = NOON + 42 * HOUR_S  # 06:00: the window is missed
    assert own.turn() == []
    own.now = NOON + 58 * HOUR_S  # 22:00
    assert own.turn() == ["web1.example.com"]
    own.end()
    assert own.turn() == []


def test_paused_schedule_begins_nothing_and_then_catches_up_once() -> None:
    own = master(1, is_paused=True)
    own.turn()
    own.now += 3 * DAY_S
    assert own.turn() == []
    own.schedules = [schedule()]
    assert own.turn() == ["web1.example.com"]
    own.end()
    assert own.turn() == []


def test_requested_backup_begins_at_once_outside_of_the_window() -> None:
    own = master(1, window="01:00-03:00", is_paused=True)
    own.turn()
    run = own.run_of(1)
    own.memory[run.uuid] = msgspec.structs.replace(run, is_requested=True)
    assert own.turn() == ["web1.example.com"]
    own.end(error="broken")
    assert own.turn() == []
    own.now += PAUSES_S[0]
    assert own.turn() == ["web1.example.com"]
    own.end()
    own.turn()
    assert not own.run_of(1).is_requested


def test_changed_calendar_counts_from_now() -> None:
    own = master(1)
    own.turn()
    own.now += HOUR_S
    own.schedules = [schedule(calendar="monthly")]
    own.turn()
    assert own.run_of(1).due == next_after("monthly", "UTC", own.now)


def test_clock_that_was_set_back_stops_no_schedule() -> None:
    own = master(1)
    own.turn()
    own.now += 400 * DAY_S
    own.turn()
    own.end()
    own.turn()
    own.now -= 400 * DAY_S
    assert own.turn() == []
    assert own.run_of(1).last_good == own.now
    own.now += DAY_S
    assert own.turn() == ["web1.example.com"]


def test_small_step_back_makes_no_second_backup() -> None:
    own = master(1)
    own.turn()
    own.now = NOON + 14 * HOUR_S
    own.turn()
    own.end()
    own.turn()
    own.now -= SET_BACK_S
    for _ in range(90):
        assert own.turn() == []
        own.now += 60


def test_memory_ends_with_the_instance_but_not_before_its_job() -> None:
    own = master(1)
    own.turn()
    own.now += DAY_S
    own.turn()
    own.guests.clear()
    own.turn()
    assert own.run_of(1).is_live
    own.end(error="gone")
    own.turn()
    assert not own.memory


def test_schedule_covers_names_tags_groups_or_all() -> None:
    one = guest(1, tags=("prod",))
    assert covers(schedule(), one)
    assert not covers(schedule(all_instances=False), one)
    assert covers(schedule(all_instances=False, instances=("web1.example.com",)), one)
    assert covers(schedule(all_instances=False, instance_tags=("prod",)), one)
    assert covers(schedule(all_instances=False, groups=(GroupUuid("g1"),)), one)
    assert not covers(schedule(all_instances=False, instance_tags=("test",)), one)
    assert not covers(schedule(), replace(one, has_disks=False))


def test_age_of_the_last_backup_is_judged_once() -> None:
    own = master(1, is_paused=True)
    own.turn()
    own.now += 2 * DAY_S
    own.turn()
    assert not own.run_of(1).is_old
    own.now += 1
    own.turn()
    assert own.run_of(1).is_old
    own.decide()
    assert not own.last.changed


def test_unknown_time_zone_is_taken_as_utc() -> None:
    own = master(1, time_zone="Europe/Atlantis", window="01:00-03:00")
    own.turn()
    own.now = NOON + 14 * HOUR_S
    assert own.turn() == ["web1.example.com"]


def test_thousands_of_instances_are_changed_in_parts() -> None:
    own = master(*range(200))
    own.decide()
    assert len(own.last.changed) == MOST_CHANGES
    assert own.last.wake == own.now
    own.turn()
    assert len(own.memory) == 200
    own.schedules = []
    own.decide()
    assert len(own.last.forgotten) == MOST_CHANGES
    own.turn()
    assert not own.memory


# Histories

CALENDARS = ("02:00", "hourly", "Mon..Fri 22:30", "*:00,30", "Sun 03:00", "*-*-01,15 00:00")
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu")
WINDOWS = ("", "", "22:00-06:00", "00:00-04:00")


@dataclass
class History:
    """A random history, and what must hold after each step."""

    chance: random.Random
    own: Master = field(init=False)
    crossed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The times of each schedule that the clock has passed while it covered an instance."""
    made: Counter[tuple[str, str]] = field(default_factory=Counter)
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The schedule and the instance of each job's key."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.own = Master([self._schedule("s1"), self._schedule("s2")], {})
        for _ in range(3):
            self.add()

    def _schedule(self, uuid: str) -> BackupSchedule:
        pick = self.chance.choice
        return schedule(
            uuid=uuid,
            name=uuid,
            calendar=pick(CALENDARS),
            time_zone=pick(ZONES),
            window=pick(WINDOWS),
            at_once=pick((1, 2, 5)),
            per_node=pick((1, 2)),
        )

    def add(self) -> None:
        number = next(self.numbers)
        self.own.guests[f"i{number}"] = guest(number, node=f"n{self.chance.randrange(2)}")

    def remove(self) -> None:
        if len(self.own.guests) > 1:
            del self.own.guests[self.chance.choice(list(self.own.guests))]

    def move(self) -> None:
        uuid = self.chance.choice(list(self.own.guests))
        own = self.own.guests
        own[uuid] = replace(own[uuid], node=f"n{self.chance.randrange(2)}")

    def decide(self) -> None:
        """Let a master decide; it dies after a random step, and the next one decides until nothing changes."""
        steps = [self.own.decide, self.own.commit, self._submit]
        for step in steps[: self.chance.randrange(4)]:
            step()
        self._live()
        while True:
            for step in steps:
                step()
            self._live()
            if not self.own.last.changed and not self.own.last.forgotten:
                break
        self._nothing_waits()

    def _submit(self) -> None:
        """Submit what was decided, or only the first of it: the master dies in between."""
        for start in self.own.last.starts[: self.chance.randrange(4) or None]:
            self.owners[start.run.key] = (start.run.schedule, start.run.instance)
            job = JobFact(len(self.own.jobs) + 1, is_ended=False)
            self.own.jobs.setdefault(start.run.key, job)

    def end(self) -> None:
        """Let some jobs end, well or badly."""
        for key, job in self.own.jobs.items():
            if not job.is_ended and self.chance.random() < 0.7:
                fails = self.chance.random() < 0.3
                result = {"error": "broken"} if fails else {"point": "p", "made": self.own.now}
                self.own.jobs[key] = replace(job, is_ended=True, **result)
                self.made[self.owners[key]] += not fails

    def pass_time(self) -> None:
        wake = self.own.last.wake
        choices = [60.0, HOUR_S, 7 * HOUR_S, 3 * DAY_S]
        if wake is not None and wake > self.own.now:
            choices += [wake - self.own.now] * 4
        later = self.own.now + self.chance.choice(choices)
        for one in self.own.schedules:
            at: float | None = self.own.now
            while (at := next_after(one.calendar, one.time_zone, at)) is not None and at <= later:
                self.crossed.update((one.uuid, uuid) for uuid in self.own.guests)
        self.own.now = later

    def set_back(self) -> None:
        self.own.now -= self.chance.choice((1.0, 600.0, 5 * HOUR_S, 40 * DAY_S))

    def _live(self) -> None:
        live = Counter(self.owners[key] for key, job in self.own.jobs.items() if not job.is_ended)
        assert max(live.values(), default=0) <= 1, "two live jobs of one schedule and instance"
        assert all(self.made[one] <= self.crossed[one] for one in self.made), "a backup for no time"

    def _nothing_waits(self) -> None:
        """Assert that each backup that is due and may begin has begun, while slots are free."""
        own, live = self.own, [run for run in self.own.memory.values() if run.is_live]
        nodes = Counter(own.guests[run.instance].node for run in live if run.instance in own.guests)
        for run in own.memory.values():
            one = next(one for one in own.schedules if one.uuid == run.schedule)
            window = parse_window(one.window)
            is_due = (
                run.due is not None and run.due <= own.now and not run.failures and not run.is_live
            )
            is_open = window is None or window.has(one.time_zone, own.now)
            is_free = (
                sum(other.schedule == one.uuid for other in live) < one.at_once
                and run.instance in own.guests
                and nodes[own.guests[run.instance].node] < one.per_node
            )
            assert not (is_due and is_open and is_free), f"{run.name} does not begin"


@pytest.mark.requirement("F28")
@given(st.integers(0, 2**32))
def test_histories_keep_one_job_and_begin_whatever_is_due(seed: int) -> None:
    history = History(random.Random(seed))
    steps = [history.pass_time] * 6 + [history.end] * 4
    steps += [history.add, history.remove, history.move, history.set_back]
    for _ in range(30):
        history.decide()
        history.chance.choice(steps)()
