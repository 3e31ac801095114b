"""gnt-backup schedule."""

import argparse
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable
from ganeti.cli.objects import ObjectKind, print_list, shown
from ganeti.cli.options import JOB_OPTIONS, LIST_OPTIONS, VERBOSE
from ganeti.cli.output import Tree, format_time, wanted_filter
from ganeti.cli.rule_commands import Rules
from ganeti.clients.fields import SCHEDULE
from ganeti.model.operation import Argument


def _time(value: float | None) -> str:
    return "-" if value is None else format_time(value)


def _words(values: list[str] | None) -> str:
    return ", ".join(values or ()) or "-"


def _run_words(one: Mapping[str, Any]) -> str:
    """Return one instance's state in one line."""
    last = f"last backup {one['backup']}" if one["backup"] else "no backup yet"
    running = f", job {one['job']} runs" if one["running"] and one["job"] else ""
    error = f"; job {one['job']}: {one['error']}" if one["error"] else ""
    return f"{one['state']}, {last}, next {_time(one['due'])}{running}{error}"


def _runs(found: list[dict[str, Any]] | None) -> Tree:
    return [(one["instance"], _run_words(one)) for one in found or ()] or "none"


def _saved(all_: bool, names: list[str], tags: list[str], groups: list[str]) -> str:  # noqa: FBT001 - a field
    """Return what a schedule saves, in words."""
    if all_:
        return "all instances"
    parts = [("instances", names), ("instances with tags", tags), ("instances of groups", groups)]
    return "; ".join(f"{what} {', '.join(of)}" for what, of in parts if of)


def _keep(rules: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in rules.items() if value) or "all backups"


SCHEDULE_KIND = ObjectKind(
    query="schedule",
    rows="Schedules",
    listed=("name", "calendar", "next", "instance_count", "running", "failing", "old", "paused"),
    info=(
        shown("Schedule", "name"),
        shown("  Saves", "all_instances", "instances", "instance_tags", "groups", value=_saved),
        shown("  Calendar", "calendar"),
        shown("  Time zone", "time_zone"),
        shown("  Window", "window", value=lambda one: one or "the whole day"),
        shown("  Paused", "paused", value=lambda one: "yes" if one else "no"),
        shown("  Node", "node", value=lambda one: one or "the primary node of each instance"),
        shown("  Directory", "target", value=lambda one: one or "/srv/ganeti/backup"),
        shown("  Backups at once", "at_once"),
        shown("  Backups at once for a node", "per_node"),
        shown("  Bandwidth", "bandwidth", value=lambda one: f"{one} MiB/s" if one else "no limit"),
        shown("  Encrypts backups", "encrypt"),
        shown("  Keeps", "keep_rules", value=_keep),
        shown("  Boots backups", "drill", value=lambda one: one or "never"),
        shown(
            "  Alert after",
            "alert_after",
            value=lambda one: f"{one} hours" if one else "twice the period",
        ),
        shown("  Owner", "owner"),
        shown("  Next", "next", value=_time),
        shown("  Instances", "runs", value=_runs),
    ),
    json=SCHEDULE,
)


RULES = Rules("schedule", "gnt-backup schedule", "backup_schedules.OpBackupSchedule", SCHEDULE_KIND)


def add_schedule(table: CommandTable) -> None:
    """Add the command schedule."""
    table.command(
        "schedule",
        Argument("action", "add, modify, remove, pause, resume, run, list or info"),
        Argument("schedule_name", "name of the schedule", nargs="?", completion="schedule"),
        Argument("names", "for run: only these instances", nargs="*", completion="instance"),
        RULES.params,
        *(one for one in LIST_OPTIONS if one is not VERBOSE),
        *JOB_OPTIONS,
    )(schedule)


def schedule(args: argparse.Namespace) -> int:
    """Save instances regularly: schedules of incremental backups, and what they keep.

    add needs --calendar, and what is saved: --instances, --instance-tags, --groups or --all-instances=yes. These add
    up. An instance that is created later is saved, too, if its tag, its group or its name fits. modify changes the
    given options, pause and resume stop and continue a schedule, and remove removes it, but no backup. list shows all
    schedules, info also the state of each instance.

    The calendar has the form of systemd, for example 'daily', 'hourly', 'Mon..Fri 22:30' or '*-*~01 04:00' (the last
    day of each month), in the zone of --time-zone. A due backup begins within --window, and while fewer than
    --at-once of the schedule and fewer than --per-node of the instance's node run. The jobs have low priority. A
    backup that fails is repeated after 5 minutes, and then after growing pauses. Times that were missed, because no
    master ran, the schedule was paused or its window was closed, are made up for by one backup. run saves at once,
    also outside of the window.

    The backups are those of 'gnt-backup save': in --target on --node, by default in /srv/ganeti/backup on the primary
    node of each instance. The --keep options are those of 'gnt-backup prune', which runs after each backup; they also apply
    to the backups that the schedule has made on former nodes of an instance. Without them, all backups stay.

    With --encrypt the backups are encrypted, by default if the cluster encrypts its backups ('gnt-backup key').

    --drill boots the first backup after each time of another calendar, as 'gnt-backup drill' does; the backup is good
    only if the guest shows --drill-expect. Older backups are removed only after that.

    'gnt-cluster verify' reports an instance whose last good backup is older than --alert-after (default: twice the
    longest period). 'gnt-instance list -o name,backup_last,backup_state' shows the state of each instance.
    """
    if args.names and args.action not in ("run", "list"):
        raise InputError("names of instances are only for run; use --instances", "names")
    return RULES.act(args, {"list": _list, "run": _run_now})


def _list(args: argparse.Namespace) -> int:
    names = [one for one in (args.schedule_name, *args.names) if one]
    return print_list(args, SCHEDULE_KIND, wanted_filter("name", names, args.filter))


def _run_now(args: argparse.Namespace) -> int:
    for name in RULES.run(args, "Run", instances=args.names or None) or ():
        say(f"{'Would save' if args.dry_run else 'Saving'} {name}")
    return 0
