"""Schedules of backups: created, changed, removed, and asked to run now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import is_absolute_path, plain_name
from ganeti.config.resolve import (
    resolve_group,
    resolve_instance,
    resolve_node,
    resolve_schedule,
)
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Change, Outcome
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.model.calendar import check_calendar, parse_window
from ganeti.model.objects import GroupUuid, Instance, NodeUuid
from ganeti.model.opcodes.backup_schedules import (
    ANYWHERE,
    OpBackupScheduleAdd,
    OpBackupScheduleRemove,
    OpBackupScheduleRun,
    OpBackupScheduleSetParams,
    ScheduleParams,
)
from ganeti.schedules.decide import Guest, covers, new_run
from ganeti.units.backup.drill import check_expected
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.requests import check_tags

SCHEDULES_LIMIT = 1000
NUMBER_LIMIT = 100_000
REQUESTS_AT_ONCE = 90
"""Requested backups in one change of the configuration, so that it fits into a transaction."""
ENCRYPT = {"yes": True, "no": False, "default": None}
_KEEP = ("keep_last", "keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly")
_FROM_ZERO = ("bandwidth", "alert_after", *_KEEP)
_FROM_ONE = ("at_once", "per_node")
_PLAIN = (
    "calendar",
    "time_zone",
    "drill_expect",
    "all_instances",
    "is_paused",
    *_FROM_ZERO,
    *_FROM_ONE,
)


def guests_of(view: View) -> dict[str, Guest]:
    """Return the instances as schedules see them, by UUID."""
    return {one.uuid: _guest(view, one) for one in view.instances.values()}


def _guest(view: View, instance: Instance) -> Guest:
    node = view.nodes.get(instance.primary_node)
    group = node.group if node else ""
    return Guest(
        instance.uuid,
        instance.name,
        instance.primary_node,
        group,
        instance.tags,
        bool(instance.disks),
    )


def _check_params(op: ScheduleParams) -> None:
    """Refuse values that are wrong in every cluster; InputError."""
    for name in (*_FROM_ZERO, *_FROM_ONE):
        value, least = getattr(op, name), int(name in _FROM_ONE)
        if value is not None and not least <= value <= NUMBER_LIMIT:
            raise InputError(f"must be from {least} to {NUMBER_LIMIT}", name)
    if op.window is not None and op.window != ANYWHERE:
        parse_window(op.window)
    if op.encrypt is not None and op.encrypt not in ENCRYPT:
        raise InputError(f"{op.encrypt!r:.40} must be one of: {', '.join(ENCRYPT)}", "encrypt")
    if op.drill_expect:
        check_expected(op.drill_expect, "drill_expect")
    if op.target and not is_absolute_path(op.target):
        raise InputError("must be an absolute path", "target")
    for tag in op.instance_tags or ():
        check_tags([tag])


def _requested(view: View, op: ScheduleParams) -> dict[str, Any]:
    """Return the new values of a schedule's fields; PrereqError for objects that do not exist."""
    given = {name: value for name in _PLAIN if (value := getattr(op, name)) is not None}
    if op.instances is not None:
        given["instances"] = _sorted([resolve_instance(view, one).name for one in op.instances])
    if op.instance_tags is not None:
        given["instance_tags"] = _sorted(op.instance_tags)
    if op.groups is not None:
        given["groups"] = tuple(GroupUuid(resolve_group(view, one).uuid) for one in op.groups)
    if op.node is not None:
        node = None if op.node == ANYWHERE else NodeUuid(resolve_node(view, op.node).uuid)
        given["node"] = node
    if op.target is not None:
        given["target"] = op.target or None
    if op.encrypt is not None:
        given["encrypt"] = ENCRYPT[op.encrypt]
    for name in ("window", "drill"):
        if (text := getattr(op, name)) is not None:
            given[name] = "" if text == ANYWHERE else text
    return given


def _sorted(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(words)))


def _check_schedule(schedule: BackupSchedule, now: float) -> None:
    """Refuse a schedule that would never save anything; InputError."""
    check_calendar(schedule.calendar, schedule.time_zone, now)
    if schedule.drill:
        check_calendar(schedule.drill, schedule.time_zone, now, "drill")
    if not any(
        (schedule.all_instances, schedule.instances, schedule.instance_tags, schedule.groups)
    ):
        raise InputError(
            "choose what is saved: --instances, --instance-tags, --groups, or --all-instances=yes",
            "instances",
        )


@dataclass(frozen=True)
class SchedulePlan:
    """The schedule after the change."""

    schedule: BackupSchedule
    change: Change


class LUBackupScheduleAdd(LogicalUnit[OpBackupScheduleAdd, SchedulePlan]):
    """Create a schedule."""

    def check_arguments(self) -> None:
        plain_name(self.op.schedule_name, "schedule_name")
        _check_params(self.op)
        if self.op.calendar is None:
            raise InputError("say when backups are due, for example --calendar=daily", "calendar")

    async def check_prereq(self, ctx: UnitContext) -> SchedulePlan:
        schedule = BackupSchedule(
            uuid=ctx.ids.uuid(),
            name=self.op.schedule_name,
            owner=ctx.run.source,
            **_requested(ctx.snapshot, self.op),
        )
        _check_schedule(schedule, ctx.now)

        def change(draft: Draft) -> None:
            if len(draft.table(BackupSchedule)) >= SCHEDULES_LIMIT:
                raise PrereqError(
                    f"the limit of {SCHEDULES_LIMIT} schedules is reached; remove one:"
                    " gnt-backup schedule remove NAME",
                    ErrorCode.NO_RESOURCES,
                )
            draft.put(schedule)

        ctx.check_change(change)
        return SchedulePlan(schedule, change)

    async def execute(self, ctx: UnitContext, plan: SchedulePlan) -> Outcome:
        _say_covered(ctx, plan.schedule)
        return Outcome(change=plan.change)


class LUBackupScheduleSetParams(LogicalUnit[OpBackupScheduleSetParams, SchedulePlan]):
    """Change a schedule."""

    def check_arguments(self) -> None:
        _check_params(self.op)

    async def check_prereq(self, ctx: UnitContext) -> SchedulePlan:
        old = resolve_schedule(ctx.snapshot, self.op.schedule_name)
        given = _requested(ctx.snapshot, self.op)
        if not given:
            raise InputError("nothing to change: pass at least one option", "options")
        schedule = replace(old, **given)
        _check_schedule(schedule, ctx.now)

        def change(draft: Draft) -> None:
            draft.put(replace(draft.table(BackupSchedule)[old.uuid], **given))

        ctx.check_change(change)
        return SchedulePlan(schedule, change)

    async def execute(self, ctx: UnitContext, plan: SchedulePlan) -> Outcome:
        _say_covered(ctx, plan.schedule)
        return Outcome(change=plan.change)


def _say_covered(ctx: UnitContext, schedule: BackupSchedule) -> None:
    found = [one.name for one in guests_of(ctx.snapshot).values() if covers(schedule, one)]
    if not found:
        ctx.warn(f"schedule {schedule.name} covers no instance with disks at present")
    else:
        many = "instance" if len(found) == 1 else "instances"
        ctx.info(f"schedule {schedule.name} covers {len(found)} {many} at present")


class LUBackupScheduleRemove(LogicalUnit[OpBackupScheduleRemove, Change]):
    """Remove a schedule; the master forgets what it remembers of its instances."""

    async def check_prereq(self, ctx: UnitContext) -> Change:
        old = resolve_schedule(ctx.snapshot, self.op.schedule_name)

        def change(draft: Draft) -> None:
            draft.remove(draft.table(BackupSchedule)[old.uuid])

        ctx.check_change(change)
        return change

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(change=plan)


@dataclass(frozen=True)
class RunPlan:
    """The instances to save, and the changes that let the master do so."""

    names: list[str]
    changes: list[Change]


class LUBackupScheduleRun(LogicalUnit[OpBackupScheduleRun, RunPlan]):
    """Record that backups are requested; the master begins them."""

    async def check_prereq(self, ctx: UnitContext) -> RunPlan:
        snapshot = ctx.snapshot
        schedule = resolve_schedule(snapshot, self.op.schedule_name)
        guests = self._guests(snapshot, schedule)
        changes = [
            self._requested(ctx, schedule, guests[at : at + REQUESTS_AT_ONCE])
            for at in range(0, len(guests), REQUESTS_AT_ONCE)
        ]
        for change in changes:
            ctx.check_change(change)
        return RunPlan([one.name for one in guests], changes)

    @staticmethod
    def _requested(ctx: UnitContext, schedule: BackupSchedule, guests: Sequence[Guest]) -> Change:
        """Return the change that requests the backups of some instances."""
        now, uuids = ctx.now, [ctx.ids.uuid() for _ in guests]

        def change(draft: Draft) -> None:
            known = {(one.schedule, one.instance): one for one in draft.table(BackupRun).values()}
            for guest, uuid in zip(guests, uuids, strict=True):
                run = known.get((schedule.uuid, guest.uuid)) or new_run(schedule, guest, uuid, now)
                draft.put(replace(run, is_requested=True, failures=0))

        return change

    def _guests(self, snapshot: Snapshot, schedule: BackupSchedule) -> list[Guest]:
        """Return the named instances, by default all that the schedule covers; PrereqError."""
        guests = guests_of(snapshot)
        if self.op.instances is None:
            found = [one for one in guests.values() if covers(schedule, one)]
        else:
            named = [resolve_instance(snapshot, one) for one in self.op.instances]
            found = [guests[one.uuid] for one in named]
        for one in found:
            if not covers(schedule, one):
                raise PrereqError(
                    f"schedule {schedule.name} does not cover {one.name}; save it by:"
                    f" gnt-backup save {one.name}",
                    ErrorCode.WRONG_INPUT,
                )
        if not found:
            raise PrereqError(
                f"schedule {schedule.name} covers no instance with disks", ErrorCode.WRONG_STATE
            )
        return sorted(found, key=lambda one: one.name)

    def dry_run_result(self, ctx: UnitContext, plan: RunPlan) -> Any:
        del ctx
        return plan.names

    async def execute(self, ctx: UnitContext, plan: RunPlan) -> Outcome:
        # Each change is a request of its own: after an interruption the command can be repeated.
        *before, last = plan.changes
        for change in before:
            await ctx.config.change(change)
        return Outcome(plan.names, change=last)
