"""Decides which backups begin now. Pure: the master commits the new memory before it submits a job.

A memory whose job was never submitted (the master died in between) has a key that no job has; it is then no longer
live, and the backup is decided again. So no death of a master loses a backup or makes it twice.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.calendar import next_after, parse_window, zone_named
from ganeti.model.objects import InstanceUuid
from ganeti.schedules.alerts import is_old, limit_s

PAUSES_S = (300.0, 900.0, 2700.0, 7200.0, 21600.0)
"""Between the end of a failed job and the next attempt; the last one repeats."""
SET_BACK_S = 3600.0
"""A clock that is set back by more begins again: what became due before may become due twice, once each."""
MOST_CHANGES = 40
"""The greatest number of changes of one decision, so that they fit into a transaction; the next one has the others."""


@dataclass(frozen=True)
class Guest:
    """An instance, as far as schedules see it."""

    uuid: InstanceUuid
    name: str
    node: str
    """UUID of its primary node."""
    group: str
    """UUID of that node's group."""
    tags: tuple[str, ...] = ()
    has_disks: bool = True


@dataclass(frozen=True)
class JobFact:
    """A job of a schedule; `point` is the good backup that it has made: booted, if the job does that."""

    id: int
    is_ended: bool
    point: str = ""
    made: float = 0.0
    """The time of the moment that the backup has."""
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """The instances by UUID, and the live runs' jobs by their keys; a job that does not exist is missing."""

    guests: Mapping[str, Guest]
    jobs: Mapping[str, JobFact]


@dataclass(frozen=True)
class Start:
    """A job to submit once `run`, its memory, is durable."""

    schedule: BackupSchedule
    run: BackupRun
    guest: Guest


@dataclass(frozen=True)
class Decision:
    """The changed memory and the memory to forget; the jobs after that; and the time of the next decision."""

    changed: Sequence[BackupRun] = ()
    forgotten: Sequence[BackupRun] = ()
    starts: Sequence[Start] = ()
    failed: Sequence[BackupRun] = ()
    """The part of `changed` whose jobs have failed since the last decision."""
    became_old: Sequence[BackupRun] = ()
    """The part of `changed` whose last good backup has become too old."""
    wake: float | None = None
    """None: nothing will happen before something changes."""


def covers(schedule: BackupSchedule, guest: Guest) -> bool:
    """Return whether a schedule saves an instance; one without disks has nothing to save."""
    return guest.has_disks and (
        schedule.all_instances
        or guest.name in schedule.instances
        or guest.group in schedule.groups
        or not set(guest.tags).isdisjoint(schedule.instance_tags)
    )


def new_run(schedule: BackupSchedule, guest: Guest, uuid: str, now: float) -> BackupRun:
    """Return the memory of an instance that a schedule begins to cover."""
    return BackupRun(
        uuid=uuid,
        name=f"{schedule.name} {guest.name}",
        schedule=schedule.uuid,
        instance=guest.uuid,
        since=now,
        times=schedule.times,
        due=_next(schedule, now),
        drill_due=_next_drill(schedule, now),
        decided=now,
    )


def decide(
    schedules: Sequence[BackupSchedule],
    memory: Sequence[BackupRun],
    facts: Facts,
    now: float,
    new_uuids: Iterator[str],
) -> Decision:
    """Return what has ended, what begins, and when to decide again."""
    by_uuid = {one.uuid: one for one in schedules}
    times = {one.uuid: one.times for one in schedules}
    limits = {one.uuid: limit_s(one, now) for one in schedules}
    runs, forgotten = dict[str, BackupRun](), list[BackupRun]()
    before = {one.uuid: one for one in memory}
    for old in memory:
        run = _followed(old, facts, by_uuid.get(old.schedule), now)
        if run.is_live or _is_covered(run, by_uuid, facts):
            schedule = by_uuid.get(run.schedule)
            if schedule is not None:
                if run.times != times[schedule.uuid] or run.decided > now + SET_BACK_S:
                    run = _timed(run, schedule, now)
                if run.is_old != (old_now := is_old(run, limits[schedule.uuid], now)):
                    run = replace(run, is_old=old_now)
            runs[run.uuid] = run
        else:
            forgotten.append(old)
    for schedule, guest in islice(_new(schedules, runs, facts), MOST_CHANGES + 1):
        made = new_run(schedule, guest, next(new_uuids), now)
        runs[made.uuid] = made
    starts, wake = _starts(by_uuid, runs, facts, now)
    runs.update((one.run.uuid, one.run) for one in starts)
    changed = [run for run in runs.values() if run is not before.get(run.uuid)]
    changed.sort(key=lambda run: not run.is_live or run.job > 0)  # The jobs to submit come first.
    kept = changed[:MOST_CHANGES]
    if len(changed) + len(forgotten) > MOST_CHANGES:
        wake = now
    return Decision(
        changed=kept,
        forgotten=forgotten[: MOST_CHANGES - len(kept)],
        starts=starts,
        failed=[run for run in kept if _has_failed(before.get(run.uuid), run)],
        became_old=[run for run in kept if run.is_old and not _was_old(before.get(run.uuid))],
        wake=wake,
    )


def _new(
    schedules: Sequence[BackupSchedule], runs: Mapping[str, BackupRun], facts: Facts
) -> Iterator[tuple[BackupSchedule, Guest]]:
    """Yield the schedules and instances without a memory."""
    known = {(one.schedule, one.instance) for one in runs.values()}
    for schedule in schedules:
        for guest in facts.guests.values():
            if (schedule.uuid, guest.uuid) not in known and covers(schedule, guest):
                yield schedule, guest


def _has_failed(before: BackupRun | None, run: BackupRun) -> bool:
    return before is not None and run.all_failures > before.all_failures


def _was_old(before: BackupRun | None) -> bool:
    return before is not None and before.is_old


def _is_covered(run: BackupRun, schedules: Mapping[str, BackupSchedule], facts: Facts) -> bool:
    schedule, guest = schedules.get(run.schedule), facts.guests.get(run.instance)
    return schedule is not None and guest is not None and covers(schedule, guest)


def _zone(schedule: BackupSchedule) -> str:
    """Return the time zone; UTC on a master whose node does not know it: late backups are better than none."""
    try:
        zone_named(schedule.time_zone)
    except InputError:
        return "UTC"
    return schedule.time_zone


def _next(schedule: BackupSchedule, at: float) -> float | None:
    """Return the next time of a schedule after `at`."""
    return next_after(schedule.calendar, _zone(schedule), at)


def _next_drill(schedule: BackupSchedule, at: float) -> float | None:
    return next_after(schedule.drill, _zone(schedule), at) if schedule.drill else None


def _followed(
    run: BackupRun, facts: Facts, schedule: BackupSchedule | None, now: float
) -> BackupRun:
    """Return the memory after the progress of its job."""
    if not run.is_live:
        return run
    job = facts.jobs.get(run.key)
    if job is None and not run.job:
        return replace(run, began=0.0)  # The master died before it submitted the job.
    if job is None:
        job = JobFact(run.job, is_ended=True, error=f"job {run.job} is lost")
    if not job.is_ended:
        return run if run.job == job.id else replace(run, job=job.id)
    drills = run.drills
    run = replace(run, job=job.id, began=0.0, ended=now, error=job.error)
    if job.error:
        run = replace(run, failures=run.failures + 1, all_failures=run.all_failures + 1)
    if not job.point:
        return run
    # The backup is good even if the removal of older ones has failed.
    if schedule is not None:
        drill_due = _next_drill(schedule, run.decided) if drills else run.drill_due
        run = replace(run, due=_next(schedule, run.decided), drill_due=drill_due)
    return replace(run, failures=0, last_good=job.made, point=job.point, is_requested=False)


def _timed(run: BackupRun, schedule: BackupSchedule, now: float) -> BackupRun:
    """Return the memory after a change of the schedule or of the clock."""
    if run.times != schedule.times:
        return replace(
            run,
            times=schedule.times,
            due=_next(schedule, now),
            drill_due=_next_drill(schedule, now),
            decided=now,
        )
    return replace(
        run,
        due=_next(schedule, now),
        drill_due=_next_drill(schedule, now),
        decided=now,
        since=min(run.since, now),
        ended=min(run.ended, now),
        last_good=min(run.last_good, now),
    )


def _starts(
    schedules: Mapping[str, BackupSchedule],
    runs: Mapping[str, BackupRun],
    facts: Facts,
    now: float,
) -> tuple[list[Start], float | None]:
    """Return the jobs that begin now, and the next time at which another one may begin."""
    live = [run for run in runs.values() if run.is_live]
    of_schedule = Counter(run.schedule for run in live)
    of_node = Counter(
        facts.guests[run.instance].node for run in live if run.instance in facts.guests
    )
    found, due, wake = list[Start](), list[BackupRun](), math.inf
    for run in runs.values():
        begins = None if run.is_live else _begins(run, schedules[run.schedule], now)
        if begins is not None and begins > now:
            wake = min(wake, begins)
        elif begins is not None:
            due.append(run)
    for run in sorted(due, key=lambda one: _rank(one, now)):
        schedule, guest = schedules[run.schedule], facts.guests[run.instance]
        if len(found) == MOST_CHANGES:
            break
        if (
            of_schedule[schedule.uuid] < schedule.at_once
            and of_node[guest.node] < schedule.per_node
        ):
            of_schedule[schedule.uuid] += 1
            of_node[guest.node] += 1
            begun = replace(run, attempt=run.attempt + 1, job=0, began=now, decided=now)
            found.append(Start(schedule, begun, guest))
    return found, None if wake == math.inf else wake


def _rank(run: BackupRun, now: float) -> tuple[bool, int, float, str]:
    """Return the order of those that wait: a failing backup never keeps others from their slots."""
    return not run.is_requested, run.failures, run.due or now, run.uuid


def _begins(run: BackupRun, schedule: BackupSchedule, now: float) -> float | None:
    """Return the time at which a backup may begin, or at which its window is looked at; None if it never is due."""
    if run.is_requested and not run.failures:
        return now
    if schedule.is_paused and not run.is_requested:
        return None
    due = now if run.is_requested else run.due
    if due is None:
        return None
    begins = max(due, _retry(run, now))
    if run.is_requested or begins > now or not schedule.window:
        return begins
    window, zone = parse_window(schedule.window), _zone(schedule)
    return begins if window is None or window.has(zone, now) else window.next_begin(zone, now)


def _retry(run: BackupRun, now: float) -> float:
    """Return the earliest time of the next attempt."""
    if not run.failures:
        return 0.0
    pause = PAUSES_S[min(run.failures, len(PAUSES_S)) - 1]
    return min(run.ended, now) + pause
