"""gnt-job: jobs and their history."""

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from ganeti.base.errors import GanetiError, InputError, JobLost
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import PRIORITIES, follow, wait_for_result
from ganeti.cli.key_values import MICROSECONDS, duration_s, whole_number
from ganeti.cli.objects import ObjectKind, add_list_fields, described, print_list, shown
from ganeti.cli.options import JSON, LIST_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import (
    Tree,
    format_time,
    print_json,
    print_objects,
    print_rows,
    print_tree,
    wanted_filter,
)
from ganeti.clients.fields import JOB, JOB_BULK
from ganeti.clients.luxi import FINAL, LuxiClient
from ganeti.model.operation import Argument

table = CommandTable("gnt-job", "Show, follow, cancel and archive jobs.")

ONE_JOB = Argument("job_id", "number of the job", completion="job")
JOBS = Argument("job_ids", "numbers of jobs", nargs="*", completion="job")
SOME_JOBS = Argument("job_ids", "numbers of jobs", nargs="+", completion="job")
FORCE = option("-f", "--force", action="store_true", help="skip the confirmation prompt")

_SELECTIONS = {
    "queued": ["queued"],
    "waiting": ["waiting"],
    "running": ["running", "canceling"],
    "pending": ["queued", "waiting"],
    "error": ["error"],
    "finished": sorted(FINAL),
}
_SELECT_OPTIONS = tuple(
    option(f"--{name}", action="store_true", help=f"only jobs that are {' or '.join(states)}")
    for name, states in _SELECTIONS.items()
)


def _moment(value: Any, unknown: str = "-") -> str:
    return unknown if value is None else f"{format_time(value[0])}.{value[1]:06d}"


_MOMENTS = dict.fromkeys(("received_ts", "start_ts", "end_ts"), _moment)
_at = functools.partial(_moment, unknown="N/A")  # Scripts read this output as YAML.


def _total(received: list[int] | None, end: list[int] | None) -> str:
    if received is None or end is None:
        return "N/A"
    return f"{_seconds(end) - _seconds(received):.6f} seconds"


def _opcodes(ops: list[dict[str, Any]], *of_each: list[Any]) -> Tree:
    """Return the lines that describe each opcode of a job."""
    return [
        [
            ("Opcode", op.get("OP_ID")),
            ("Status", status),
            ("Processing start", _at(start)),
            ("Execution start", f"{'':1}{_at(executed)}"),
            ("Processing end", f"{'':2}{_at(end)}"),
            ("Input fields", [(name, op[name]) for name in sorted(op) if name != "OP_ID"]),
            ("Result", result),
            ("Execution log", [_log_entry(entry) for entry in log]),
        ]
        for op, status, start, executed, end, result, log in zip(ops, *of_each, strict=True)
    ]


JOB_KIND = ObjectKind(
    query="job",
    listed=("id", "status", "summary"),
    formats=_MOMENTS,
    info=(
        shown("Job ID", "id"),
        shown("Status", "status"),
        shown("Priority", "priority"),
        shown("Received", "received_ts", value=lambda received: f"{'':8}{_at(received)}"),
        shown("Processing start", "start_ts", "received_ts",
              value=lambda start, received: _at(start) + _delta(received, start)),
        shown("Processing end", "end_ts", "start_ts",
              value=lambda end, start: f"{'':2}{_at(end)}{_delta(start, end)}"),
        shown("Total processing time", "received_ts", "end_ts", value=_total),
        shown("Waiting for", "waiting_for", optional=True),
        shown("Opcodes", "ops", "opstatus", "opstart", "opexec", "opend", "opresult", "oplog",
              value=_opcodes),
    ),
)  # fmt: skip


def _ids(texts: list[str]) -> list[int]:
    return [whole_number(text, "job id") for text in texts]


def _states(args: argparse.Namespace) -> list[str]:
    return [
        state for name, states in _SELECTIONS.items() if getattr(args, name) for state in states
    ]


@table.command(
    "list",
    JOBS,
    *_SELECT_OPTIONS,
    option("--archived", action="store_true", help="include archived jobs (slow)"),
    *LIST_OPTIONS,
)
def list_jobs(args: argparse.Namespace) -> int:
    """List jobs that are not archived, or the jobs with the given numbers, even if they are archived."""
    if all(text.isdecimal() for text in args.job_ids):
        named = ["|", *(["=", "id", number] for number in _ids(args.job_ids))]
        filter_ = wanted_filter("id", [], args.filter)
        parts = [one for one in (named if args.job_ids else None, filter_) if one is not None]
    else:
        filter_ = wanted_filter("id", args.job_ids, args.filter)
        parts = [filter_] if filter_ is not None else []
    if states := _states(args):
        parts.append(["|", *(["=", "status", state] for state in states)])
    whole = None if not parts else parts[0] if len(parts) == 1 else ["&", *parts]
    fields = (*JOB_KIND.listed, "archived") if args.archived else ()
    if args.archived and args.is_json and not args.output:
        args.output = ",".join((*JOB_BULK, "archived"))
    if args.archived and args.output and not args.output.startswith("+"):
        args.output += "" if "archived" in args.output.split(",") else ",archived"
    return print_list(args, JOB_KIND, whole, default=fields)


add_list_fields(table, JOB_KIND)


@table.command("info", SOME_JOBS, JSON, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show everything about jobs."""
    if args.is_json:
        return _print_jobs(_ids(args.job_ids))
    fields = [*dict.fromkeys(name for line in JOB_KIND.info for name in line.fields)]
    with LuxiClient() as client:
        rows = client.query_jobs(_ids(args.job_ids), fields)
        is_over = any(row and row[fields.index("status")] in FINAL for row in rows)
        pending = client.call("QueryPendingUndo") if is_over else []
    for number, row in zip(args.job_ids, rows, strict=True):
        found = dict(zip(fields, row or [], strict=False))
        if not found or found["status"] is None:
            say(f"- Job ID {number} not found")
        else:
            left = [one for one in pending if one["job"] == found["id"]]
            print_tree([[*described(JOB_KIND.info, found), *_left(left)]])
    return 0


def _print_jobs(ids: Sequence[int]) -> int:
    with LuxiClient() as client:
        rows = client.query_jobs(ids, JOB)
    found = [row for row in rows if row is not None and row[JOB.index("status")] is not None]
    print_objects(JOB, found)
    for number in sorted(set(ids) - {row[0] for row in found}):
        say(f"Job {number} not found", file=sys.stderr)
    return EXIT_FAILURE if len(found) < len(rows) else 0


def _left(steps: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return the pending undo steps of a job, if it has any."""
    shown = [
        [
            ("Step", one["step"]),
            ("What", one["what"]),
            ("Why", one["why"] or "not tried yet by this master"),
            ("Next try", _when(one)),
        ]
        for one in steps
    ]
    return [("Pending undo", shown)] if shown else []


def _when(step: dict[str, Any]) -> str:
    return f"in {step['next_try_s']:.0f} s" if step["next_try_s"] else "now"


@table.command("pending-undo", *TABLE_OPTIONS)
def pending_undo(args: argparse.Namespace) -> int:
    """List undo steps that failed in finished jobs, with the reason and the time of the next attempt."""
    with LuxiClient() as client:
        found = client.call("QueryPendingUndo")
    if args.is_json:
        return print_json(found)
    rows = [
        [str(one["job"]), one["step"], _when(one), one["what"], one["why"] or "not tried yet"]
        for one in found
    ]
    print_rows(["Job", "Step", "Next try", "What", "Why"], rows, args)
    return 0


@table.command(
    "abandon-undo",
    ONE_JOB,
    Argument("step", "number of the step in the output of pending-undo"),
    FORCE,
)
def abandon_undo(args: argparse.Namespace) -> int:
    """Abandon a pending undo step for ever, and describe what remains on which node.

    Use this command for a step that can never succeed, for example because a node will not return. The
    administrator must remove what remains; Ganeti does not look for it again.
    """
    [job_id] = _ids([args.job_id])
    confirm(f"Abandon step {args.step} of job {job_id} for ever?", is_sure=args.force)
    with LuxiClient() as client:
        what = client.call("AbandonUndo", job_id, args.step)
    say(f"Abandoned; this remains: {what}")
    return 0


def _delta(begin: list[int] | None, end: list[int] | None) -> str:
    """Return how long after `begin` a moment is, as upstream shows it; '' if one of them is not known."""
    if begin is None or end is None:
        return ""
    return f" (delta {_seconds(end) - _seconds(begin):.6f}s)"


def _seconds(moment: list[int]) -> float:
    seconds, micros = moment
    return seconds + micros / MICROSECONDS


def _log_entry(entry: list[Any]) -> str:
    serial, moment, kind, content = entry
    return f"{serial}:{time.strftime('%H:%M:%S', time.localtime(moment[0]))}:{kind} {content}"


@table.command("watch", ONE_JOB)
def watch(args: argparse.Namespace) -> int:
    """Follow a job: show its log until it ends, then its final status.

    The first lines name the jobs that it depends on or that depend on it, what it waits for, and how far it is.

    Interrupting the command does not cancel the job.
    """
    job_id = whole_number(args.job_id, "job id")
    say(f"Output from job {job_id} follows")
    say("-" * 20, flush=True)
    with LuxiClient() as client:
        for line in _around(client, job_id):
            say(line, flush=True)
        try:
            wait_for_result(client, job_id)
        except JobLost:
            raise
        except GanetiError as err:
            say(f"Job {job_id} failed: {err.message}", file=sys.stderr)
            return EXIT_FAILURE
    return 0


def _around(client: LuxiClient, job_id: int) -> list[str]:
    """Return what a job waits for, how far it is, and the jobs before and after it."""
    found = _jobs(client, ["|", ["=", "id", job_id], ["=[]", "depends", job_id]])
    one = found.pop(job_id, None)
    if one is None:
        return []
    before = one.get("depends") or []
    earlier = _jobs(client, ["|", *(["=", "id", other] for other in before)]) if before else {}
    lines = [f"After job {_line(other, earlier.get(other))}" for other in before]
    lines += [f"Before job {_line(other, row)}" for other, row in found.items()]
    if reason := one.get("waiting_for"):
        lines.append(f"Job {job_id} is {reason}")
    if progress := one.get("progress"):
        percent = "" if progress["percent"] is None else f": {progress['percent']:.1f}%"
        left = "" if progress["left_s"] is None else f", {progress['left_s']:.0f} s left"
        lines.append(f"{progress['text']}{percent}{left}")
    return lines


def _jobs(client: LuxiClient, filter_: list[Any]) -> dict[int, dict[str, Any]]:
    """Return the jobs that match, by their numbers; unknown values are None."""
    names = ("id", "status", "summary", "depends", "waiting_for", "progress")
    rows = client.query("job", names, filter_)["data"]
    found = [dict(zip(names, (value for _, value in row), strict=True)) for row in rows]
    return {one["id"]: one for one in found}


def _line(job_id: int, found: dict[str, Any] | None) -> str:
    if found is None:
        return f"{job_id} (archived)"
    return f"{job_id} ({found['status']}): {', '.join(found['summary'])}"


@table.command("wait", ONE_JOB)
def wait(args: argparse.Namespace) -> int:
    """Wait for a job without printing anything; exit with 0 if the job succeeded."""
    with LuxiClient() as client:
        status = follow(client, whole_number(args.job_id, "job id"), is_quiet=True)
    return 0 if status == "success" else EXIT_FAILURE


def _chosen(client: LuxiClient, args: argparse.Namespace, question: str) -> list[int]:
    """Return the selected jobs. Ask for confirmation if the selection is by state."""
    ids = _ids(args.job_ids)
    states = [
        state
        for name, names in _SELECTIONS.items()
        if name != "finished" and getattr(args, name)
        for state in names
    ]
    if states:
        rows = client.query_jobs([], ["id", "status"])
        ids += [row[0] for row in rows if row and row[1] in states and row[0] not in ids]
        confirm(question.format(len(ids)), is_sure=args.force)
    elif not ids:
        raise InputError("pass job numbers, or a state such as --pending", "job_ids")
    return ids


@table.command(
    "cancel", JOBS, FORCE, *_SELECT_OPTIONS[:-1],
    option("--kill", action="store_true",
           help="also stop running jobs with their programs on the nodes, and undo their changes"),
    option("--yes-do-it", "--ya-rly", dest="is_sure", action="store_true", help="confirm --kill"),
)  # fmt: skip
def cancel(args: argparse.Namespace) -> int:
    """Cancel waiting jobs, and the remaining opcodes of running jobs.

    A job that runs its last opcode is not canceled, because it can still succeed. With --kill the nodes kill the
    programs that run for the job, such as an OS script, a script of a storage provider, a hook or a copy. If no
    such program runs, the next call of the job to a node fails. The job undoes its changes and ends with an error.
    """
    if args.kill and not args.is_sure:
        raise InputError("kills jobs while they work; pass --yes-do-it to confirm", "--kill")
    with LuxiClient() as client:
        ids = _chosen(client, args, "Cancel {} jobs?")
        all_done = True
        for job_id in ids:
            done, text = client.cancel_job(job_id, kill=args.kill)
            all_done = all_done and done
            say(text)
    return 0 if all_done else EXIT_FAILURE


def _why_not(client: LuxiClient, job_id: int) -> str:
    """Return the reason why a job cannot be archived."""
    [row] = client.query_jobs([job_id], ["status"])
    if row is None or row[0] is None:
        return "the job does not exist; 'gnt-job list' shows the jobs"
    return (
        "the job is already archived" if row[0] in FINAL else f"the job is {row[0]}, not finished"
    )


@table.command("archive", SOME_JOBS)
def archive(args: argparse.Namespace) -> int:
    """Move finished jobs to the archive."""
    all_done = True
    with LuxiClient() as client:
        for job_id in _ids(args.job_ids):
            if not client.call("ArchiveJob", job_id):
                say(f"Job {job_id} was not archived: {_why_not(client, job_id)}", file=sys.stderr)
                all_done = False
    return 0 if all_done else EXIT_FAILURE


@table.command(
    "autoarchive", Argument("age", "minimum age, for example 6h, 2d or 1w; 'all' for any age")
)
def autoarchive(args: argparse.Namespace) -> int:
    """Move finished jobs of a minimum age to the archive."""
    seconds = -1 if args.age == "all" else duration_s(args.age, "age")
    with LuxiClient() as client:
        archived, left = client.call("AutoArchiveJobs", seconds, 3600)
    say(f"Archived {archived} jobs, {left} unchecked left")
    return 0


@table.command(
    "change-priority",
    JOBS,
    FORCE,
    *_SELECT_OPTIONS[:-1],
    option("--priority", required=True, choices=tuple(PRIORITIES), help="low, normal or high"),
)
def change_priority(args: argparse.Namespace) -> int:
    """Change the priority of jobs."""
    all_done = True
    with LuxiClient() as client:
        for job_id in _chosen(client, args, "Change the priority of {} jobs?"):
            done, text = client.call("ChangeJobPriority", job_id, PRIORITIES[args.priority])
            all_done = all_done and done
            say(text)
    return 0 if all_done else EXIT_FAILURE


def main() -> NoReturn:
    """Run the program."""
    table.main()
