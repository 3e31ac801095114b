"""Judges whether the backups of an instance are recent enough. Pure."""

import math
from collections.abc import Iterable
from enum import StrEnum

from ganeti.base.errors import InputError
from ganeti.model.backup_schedule import DAY_S, HOUR_S, BackupRun, BackupSchedule


class BackupState(StrEnum):
    """The state of an instance's backups, the worst first."""

    OLD = "old"
    """The last good backup is too old, or there is none after as long a time."""
    FAILING = "failing"
    """The last job has failed, and the last good backup is recent enough."""
    WAITING = "waiting"
    """There is no backup yet."""
    GOOD = "good"


def limit_s(schedule: BackupSchedule, now: float) -> float:
    """Return the age at which a last good backup is too old; none is good if this node does not know the time zone."""
    try:
        return schedule.alert_after_s(now)
    except InputError:
        return -math.inf


def is_old(run: BackupRun, limit: float, now: float) -> bool:
    """Return whether the last good backup, or the beginning without one, is too long ago."""
    return now - (run.last_good or run.since) > limit


def state_of(run: BackupRun) -> BackupState:
    """Return the state of one schedule's backups of one instance at the last decision."""
    if run.is_old:
        return BackupState.OLD
    if run.failures:
        return BackupState.FAILING
    return BackupState.GOOD if run.last_good else BackupState.WAITING


def worst(states: Iterable[BackupState]) -> BackupState | None:
    """Return the worst state of an instance; None if no schedule covers it."""
    order = list(BackupState)
    return min(states, key=order.index, default=None)


def problem(schedule: BackupSchedule, run: BackupRun, now: float) -> str:
    """Return what is wrong with backups that are too old, and what to do, for people."""
    name = schedule.name
    try:
        schedule.alert_after_s(now)
    except InputError as err:
        return f"schedule {name}: {err}"
    if schedule.is_paused:
        why = f"schedule {name} is paused; resume it: gnt-backup schedule resume {name}"
    elif run.error:
        job = f" of job {run.job}" if run.job else ""
        why = (
            f"schedule {name}, last error{job}: {run.error}; correct that, then run:"
            f" gnt-backup schedule run {name}"
        )
    elif run.is_live:
        why = f"schedule {name}, job {run.job} has not ended; see: gnt-job info {run.job}"
    else:
        why = f"schedule {name} has begun none; see its window and its limits: gnt-backup schedule info {name}"
    return f"no good backup for {words_of_age(now - (run.last_good or run.since))} ({why})"


def words_of_age(seconds: float) -> str:
    """Return an age in its largest unit, for example `3 days`."""
    for unit, size in (("day", DAY_S), ("hour", HOUR_S)):
        if seconds >= 2 * size:
            return f"{int(seconds / size)} {unit}s"
    return f"{int(seconds / 60)} minutes"
