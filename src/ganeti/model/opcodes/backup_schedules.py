"""Opcodes about schedules of backups; the master submits the jobs of a schedule (`ganeti.schedules`)."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import DRY_RUN, Rest

_PATH = "/2/backup-schedules"
_ONE = f"{_PATH}/{{schedule}}"
ANYWHERE = "none"
"""The value of `node` for the primary node of each instance."""


class OnSchedule(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one schedule."""

    schedule_name: Annotated[str, RefersTo.CLUSTER]

    summary_field: ClassVar[str | None] = "schedule_name"


class ScheduleParams(OnSchedule, frozen=True, kw_only=True):
    """Parameters of a schedule; None keeps the present value, or the default of a new schedule."""

    calendar: Annotated[str | None, Field(
        "when backups are due: a calendar expression of systemd, for example 'daily' or 'Mon..Fri 22:30'",
        metavar="EXPRESSION"
    ), RefersTo.NOTHING] = None  # fmt: skip
    time_zone: Annotated[str | None, Field(
        "time zone of the calendar and the window, for example Europe/Berlin; default: UTC", metavar="ZONE"
    ), RefersTo.NOTHING] = None  # fmt: skip
    all_instances: Annotated[bool | None, Field(
        "save all instances", metavar="yes|no", form=Form.YES_NO
    )] = None  # fmt: skip
    instances: Annotated[list[str] | None, Field(
        "save these instances", metavar="INSTANCE,...", form=Form.WORDS
    ), RefersTo.INSTANCE] = None  # fmt: skip
    instance_tags: Annotated[list[str] | None, Field(
        "save the instances with one of these tags", metavar="TAG,...", form=Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    groups: Annotated[list[str] | None, Field(
        "save the instances whose primary nodes are in these groups", metavar="GROUP,...", form=Form.WORDS
    ), RefersTo.GROUP] = None  # fmt: skip
    node: Annotated[str | None, Field(
        "node that stores the backups; 'none' (the default): the primary node of each instance", "-n", "NODE"
    ), RefersTo.NOTHING] = None  # fmt: skip
    target: Annotated[str | None, Field(
        "directory for backups on that node; default: /srv/ganeti/backup", metavar="DIRECTORY"
    ), RefersTo.PATH] = None  # fmt: skip
    at_once: Annotated[int | None, Field(
        "greatest number of its backups at the same time; default: 2", metavar="N"
    )] = None  # fmt: skip
    per_node: Annotated[int | None, Field(
        "greatest number of scheduled backups at the same time for instances of one node; default: 1", metavar="N"
    )] = None  # fmt: skip
    window: Annotated[str | None, Field(
        "part of the day in which backups begin, for example 22:00-06:00; 'none' (the default): the whole day",
        metavar="HH:MM-HH:MM"
    ), RefersTo.NOTHING] = None  # fmt: skip
    bandwidth: Annotated[int | None, Field(
        "limit of each backup in MiB/s; 0 (the default): none", metavar="MIB"
    )] = None  # fmt: skip
    encrypt: Annotated[str | None, Field(
        "encrypt the backups: yes, no, or 'default' (the default): the cluster's parameter encrypt_backups",
        metavar="yes|no|default"
    ), RefersTo.NOTHING] = None  # fmt: skip
    keep_last: Annotated[int | None, Field("keep the last N backups", metavar="N")] = None
    keep_hourly: Annotated[int | None, Field("keep the last backup of N hours", metavar="N")] = None
    keep_daily: Annotated[int | None, Field("keep the last backup of N days", metavar="N")] = None
    keep_weekly: Annotated[int | None, Field("keep the last backup of N weeks", metavar="N")] = None
    keep_monthly: Annotated[int | None, Field("keep the last backup of N months", metavar="N")] = (
        None
    )
    keep_yearly: Annotated[int | None, Field("keep the last backup of N years", metavar="N")] = None
    drill: Annotated[str | None, Field(
        "boot the first backup after each of these times in a throw-away guest, for example 'weekly'; 'none' (the"
        " default): never", metavar="EXPRESSION"
    ), RefersTo.NOTHING] = None  # fmt: skip
    drill_expect: Annotated[str | None, Field(
        "text on the serial console that such a guest must show; default: 'login:'", metavar="TEXT"
    ), RefersTo.NOTHING] = None  # fmt: skip
    alert_after: Annotated[int | None, Field(
        "age in hours at which the last good backup is too old; 0 (the default): twice the period of the calendar",
        metavar="HOURS"
    )] = None  # fmt: skip
    is_paused: bool | None = None


class OpBackupScheduleAdd(ScheduleParams, frozen=True, kw_only=True, tag="OP_BACKUP_SCHEDULE_ADD"):
    """Create a schedule of incremental backups.

    It needs a calendar and instances. The first backup of an instance begins at the next time of the calendar.
    """

    no_loss: ClassVar[str] = "adds an entry to the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", _PATH, (DRY_RUN,), summary="Create a schedule of backups", renamed={"name": "schedule_name"}),
    )  # fmt: skip


class OpBackupScheduleSetParams(
    ScheduleParams, frozen=True, kw_only=True, tag="OP_BACKUP_SCHEDULE_SET_PARAMS"
):
    """Change a schedule of backups, or pause or resume it."""

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", _ONE, (DRY_RUN,), summary="Change, pause or resume a schedule of backups"),
    )


class OpBackupScheduleRemove(
    OnSchedule, frozen=True, kw_only=True, tag="OP_BACKUP_SCHEDULE_REMOVE"
):
    """Remove a schedule of backups. The backups stay, and its running jobs continue."""

    no_loss: ClassVar[str] = "removes no backup"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", _ONE, (DRY_RUN,), summary="Remove a schedule of backups"),
    )


class OpBackupScheduleRun(OnSchedule, frozen=True, kw_only=True, tag="OP_BACKUP_SCHEDULE_RUN"):
    """Let a schedule save its instances now, also outside of its window and while it is paused.

    The result is the names of the instances. The backups are jobs of their own, within the limits of the schedule.
    """

    instances: Annotated[list[str] | None, RefersTo.INSTANCE] = None

    no_loss: ClassVar[str] = (
        "reads the disks, and removes only backups that no rule of the schedule keeps"
    )
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_ONE}/run", (DRY_RUN,), summary="Let a schedule of backups save its instances now"),
    )  # fmt: skip
