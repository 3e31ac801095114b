"""Fields of schedules of backups."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.retention import Retention
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields
from ganeti.schedules.alerts import BackupState, state_of

_TEXT, _OTHER, _NUMBER = ValueKind.TEXT, ValueKind.OTHER, ValueKind.NUMBER
_BOOL, _TIME = ValueKind.BOOL, ValueKind.TIMESTAMP


@dataclass
class ScheduleRow:
    """One schedule in its context."""

    context: QueryContext
    schedule: BackupSchedule

    @cached_property
    def runs(self) -> Sequence[tuple[str, BackupRun]]:
        """The memory of each instance, with the instance's name, by name."""
        instances = self.context.snapshot.instances
        runs = self.context.backup_runs_of_schedule.get(self.schedule.uuid, ())
        found = [(instances[run.instance].name, run) for run in runs if run.instance in instances]
        return sorted(found, key=lambda one: one[0])

    def count(self, state: BackupState) -> int:
        return sum(state_of(run) is state for _name, run in self.runs)

    @property
    def next(self) -> Any:
        """The earliest time at which a backup is due."""
        due = [run.due for _name, run in self.runs if run.due is not None]
        return min(due, default=UNAVAILABLE)

    @property
    def group_names(self) -> list[str]:
        groups = self.context.snapshot.groups
        return sorted(groups[uuid].name for uuid in self.schedule.groups if uuid in groups)


def run_dictionary(name: str, run: BackupRun) -> dict[str, Any]:
    """Return what clients see of one instance's backups by one schedule."""
    return {
        "instance": name,
        "state": state_of(run).value,
        "last": run.last_good or None,
        "backup": run.point or None,
        "due": run.due,
        "running": run.is_live,
        "job": run.job or None,
        "failures": run.failures,
        "error": run.error or None,
    }


def retention_words(rules: Retention) -> str:
    """Return the rules of retention, for example `daily=7 weekly=4`; `all` without any."""
    names = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
    found = [f"{name}={value}" for name in names if (value := getattr(rules, name))]
    return " ".join(found) or "all"


_FIELDS: tuple[Field[ScheduleRow], ...] = (
    Field("name", "Schedule", _TEXT, "Name of the schedule", lambda r: r.schedule.name),
    Field("calendar", "Calendar", _TEXT, "When backups are due: a calendar expression of systemd",
        lambda r: r.schedule.calendar),
    Field("time_zone", "TimeZone", _TEXT, "Time zone of the calendar and the window",
        lambda r: r.schedule.time_zone),
    Field("next", "Next", _TIME, "Earliest time at which a backup is due; a past one waits for its window, a slot or"
        " another attempt", lambda r: r.next),
    Field("all_instances", "All", _BOOL, "Whether it saves all instances", lambda r: r.schedule.all_instances),
    Field("instances", "Instances", _OTHER, "Names of instances that it saves", lambda r: list(r.schedule.instances)),
    Field("instance_tags", "InstanceTags", _OTHER, "Tags whose instances it saves",
        lambda r: list(r.schedule.instance_tags)),
    Field("groups", "Groups", _OTHER, "Node groups whose instances it saves", lambda r: r.group_names),
    Field("instance_count", "Covers", _NUMBER, "Number of instances that it saves at present",
        lambda r: len(r.runs)),
    Field("node", "Node", _TEXT, "Node that stores the backups; none: the primary node of each instance",
        lambda r: r.context.node_name(r.schedule.node) if r.schedule.node else UNAVAILABLE),
    Field("target", "Directory", _TEXT, "Directory of the backups; none: the default one",
        lambda r: r.schedule.target or UNAVAILABLE),
    Field("at_once", "AtOnce", _NUMBER, "Greatest number of its backups at the same time",
        lambda r: r.schedule.at_once),
    Field("per_node", "PerNode", _NUMBER, "Greatest number of scheduled backups at the same time for instances of"
        " one node", lambda r: r.schedule.per_node),
    Field("window", "Window", _TEXT, "Part of the day in which backups begin",
        lambda r: r.schedule.window or UNAVAILABLE),
    Field("bandwidth", "Bandwidth", _NUMBER, "Limit of each backup in MiB/s; 0: none",
        lambda r: r.schedule.bandwidth),
    Field("encrypt", "Encrypt", _TEXT, "Whether its backups are encrypted: yes, no or default (as the cluster says)",
        lambda r: {True: "yes", False: "no", None: "default"}[r.schedule.encrypt]),
    Field("keep", "Keep", _TEXT, "Rules that keep backups", lambda r: retention_words(r.schedule.retention)),
    Field("keep_rules", "KeepRules", _OTHER, "Numbers of backups that each rule keeps",
        lambda r: dict(vars(r.schedule.retention))),
    Field("drill", "Drill", _TEXT, "When backups are booted in a throw-away guest",
        lambda r: r.schedule.drill or UNAVAILABLE),
    Field("drill_expect", "DrillExpect", _TEXT, "Text that such a guest must show",
        lambda r: r.schedule.drill_expect or UNAVAILABLE),
    Field("alert_after", "AlertAfter", _NUMBER, "Age in hours at which the last good backup is too old; 0: twice the"
        " period", lambda r: r.schedule.alert_after),
    Field("paused", "Paused", _BOOL, "Whether it begins no backups", lambda r: r.schedule.is_paused),
    Field("owner", "Owner", _TEXT, "Who has added it", lambda r: r.schedule.owner or UNAVAILABLE),
    Field("running", "Running", _NUMBER, "Number of its unfinished jobs",
        lambda r: sum(run.is_live for _name, run in r.runs)),
    Field("failing", "Failing", _NUMBER, "Number of instances whose last job has failed",
        lambda r: r.count(BackupState.FAILING)),
    Field("old", "Old", _NUMBER, "Number of instances whose last good backup is too old",
        lambda r: r.count(BackupState.OLD)),
    Field("runs", "Runs", _OTHER, "State, last good backup, next time, job and error of each instance",
        lambda r: [run_dictionary(name, run) for name, run in r.runs]),
)  # fmt: skip

SCHEDULE_FIELDS = table(_FIELDS, stored_fields("schedule", lambda row: row.schedule))
