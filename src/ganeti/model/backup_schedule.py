"""Schedules of backups, and the memory of the master for each of their instances.

Both are objects of the configuration: durable, replicated, in backups of the state, and in the audit log.
"""

from typing import Any

from ganeti.model.calendar import longest_gap
from ganeti.model.objects import GroupUuid, InstanceUuid, NodeUuid
from ganeti.model.retention import Retention
from ganeti.model.stored import Stored

HOUR_S, DAY_S = 3600.0, 86400.0


class BackupSchedule(Stored, frozen=True, kw_only=True):
    """Which instances are saved when, where to, and how long the backups are kept."""

    calendar: str
    """An expression of systemd (`ganeti.model.calendar`)."""
    time_zone: str = "UTC"
    all_instances: bool = False
    instances: tuple[str, ...] = ()
    """Names, as those of directories of backups: an instance that is created again under its name is saved again."""
    instance_tags: tuple[str, ...] = ()
    groups: tuple[GroupUuid, ...] = ()
    """Groups of the primary nodes."""
    node: NodeUuid | None = None
    """The node with the directory; None: the primary node of each instance."""
    target: str | None = None
    """The directory; None: the default one."""
    at_once: int = 2
    """The greatest number of its jobs at the same time."""
    per_node: int = 1
    """The greatest number of jobs of all schedules for instances of one node, before this schedule adds another."""
    window: str = ""
    """The part of the day in which backups begin, for example `22:00-06:00`; empty: always."""
    bandwidth: int = 0
    """Limit of each backup in MiB/s; 0: none."""
    encrypt: bool | None = None
    """Whether the backups are encrypted; None: as the cluster's parameter `encrypt_backups` says."""
    keep_last: int = 0
    keep_hourly: int = 0
    keep_daily: int = 0
    keep_weekly: int = 0
    keep_monthly: int = 0
    keep_yearly: int = 0
    drill: str = ""
    """A calendar expression: a backup that begins after one of its times is booted as well; empty: never."""
    drill_expect: str = ""
    """The text on the console that shows that the guest lives; empty: that of `gnt-backup drill`."""
    alert_after: int = 0
    """Age in hours at which the last good backup is too old; 0: twice the period."""
    is_paused: bool = False
    owner: str = ""
    """The submitter who added the schedule, as the source of jobs (`ganeti.model.job`)."""

    @property
    def retention(self) -> Retention:
        """Return the rules for `prune`, which runs after each success if there are any."""
        return Retention(
            last=self.keep_last,
            hourly=self.keep_hourly,
            daily=self.keep_daily,
            weekly=self.keep_weekly,
            monthly=self.keep_monthly,
            yearly=self.keep_yearly,
        )

    @property
    def times(self) -> str:
        """Return what decides when backups and drills are due."""
        return f"{self.calendar} {self.time_zone} {self.drill}".rstrip()

    def alert_after_s(self, now: float) -> float:
        """Return the age at which the last good backup is too old."""
        if self.alert_after:
            return self.alert_after * HOUR_S
        # The same for each moment of a day, so that it is computed once.
        gap = longest_gap(self.calendar, self.time_zone, now - now % DAY_S)
        return 2 * gap or DAY_S


class BackupRun(Stored, frozen=True, kw_only=True):
    """What the master remembers of one schedule about one instance; times in seconds since 1970.

    It is `live` from the moment at which its next job is decided until the end of that job is recorded.
    """

    schedule: str
    """UUID of the schedule."""
    instance: InstanceUuid
    since: float
    """The time at which the schedule began to cover the instance."""
    times: str
    """`BackupSchedule.times` of which `due` is one; after a change `due` is computed again."""
    due: float | None
    """The next time at which a backup is due, or a past one that has not been served; None: never again."""
    decided: float
    """The time at which `due` was decided: a clock that shows less was set back."""
    drill_due: float | None = None
    """The time after which the next backup is booted as well; None: never."""
    is_requested: bool = False
    """Whether an administrator has asked for a backup now."""
    attempt: int = 0
    """The number of jobs so far; part of the next one's idempotency key."""
    job: int = 0
    """The id of the live job, or of the last one; 0 before its submission."""
    began: float = 0.0
    """The time at which the live job was decided; 0 without a live job."""
    ended: float = 0.0
    """The time at which the end of the last job was recorded; 0: never."""
    failures: int = 0
    """Failed jobs since the last success."""
    all_failures: int = 0
    """Failed jobs ever."""
    last_good: float = 0.0
    """The time of the last good backup; 0: none."""
    point: str = ""
    """The name of the last good backup."""
    error: str = ""
    """The error of the last job; empty after a success."""
    is_old: bool = False
    """Whether the last good backup was too old at the last decision (`ganeti.schedules.alerts`)."""

    @property
    def is_live(self) -> bool:
        return self.began > 0

    @property
    def drills(self) -> bool:
        """Return whether the live job boots its backup as well."""
        return self.drill_due is not None and self.drill_due <= self.began

    @property
    def key(self) -> str:
        """Return the idempotency key of the live job."""
        return f"backup-{self.uuid}-{self.attempt}"


def rules_of(schedule: BackupSchedule) -> dict[str, Any]:
    """Return the fields of `OpBackupPrune` for the schedule; empty if it keeps everything."""
    names = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
    rules = {f"keep_{name}": int(getattr(schedule.retention, name)) for name in names}
    return {name: value for name, value in rules.items() if value}
