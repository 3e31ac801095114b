"""Submission of jobs, and display of their logs until they end."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.base.terminal import say
from ganeti.cli.confirmation import confirm_losses
from ganeti.cli.errors import JobFailed, JobSubmitted
from ganeti.cli.output import format_table
from ganeti.clients.luxi import (
    ConnectionBrokenError,
    JobChange,
    LuxiClient,
    MasterDownError,
)
from ganeti.protocols.luxi import error_from_wire, is_wire_error

if TYPE_CHECKING:  # Lists do not need opcodes and start faster without them.
    from ganeti.model.opcodes import OpCode

PRIORITIES = {"low": 10, "normal": 0, "high": -10}
SUCCEEDED = "success"
RETRY_LIMIT_S = 10.0
"""Limit for a restarted master daemon to serve again."""
RETRY_PAUSE_S = 0.2

T = TypeVar("T")


def with_job_options(op: "OpCode", args: argparse.Namespace) -> "OpCode":
    """Return the opcode with the common options and the name of the user."""
    import msgspec

    now_ns = time.time_ns()
    reason = [("gnt:user", args.reason, now_ns)] if getattr(args, "reason", None) else []
    reason.append((f"gnt:client:{args.prog}", args.command, now_ns))
    return msgspec.structs.replace(
        op,
        dry_run=getattr(args, "dry_run", False),
        debug_level=getattr(args, "debug", 0),
        priority=PRIORITIES[getattr(args, "priority", "normal")],
        reason=[*op.reason, *reason],
    )


def run_job(client: LuxiClient, op: "OpCode", args: argparse.Namespace) -> Any:
    """Submit one opcode, show its log, and return its result; raise its error.

    NeedsConfirmation if it destroys data and is not confirmed; JobSubmitted with `--submit`.
    """
    confirm_losses([op], args)
    job_id = submit(client, [with_job_options(op, args)])
    _print_ids([job_id], args)
    return wait_for_result(client, job_id, is_quiet=getattr(args, "is_json", False))[0]


def run_opcode(op: "OpCode", args: argparse.Namespace) -> Any:
    """Call `run_job` on a new connection."""
    with LuxiClient() as client:
        return run_job(client, op, args)


def run_given(args: argparse.Namespace, **more: Any) -> Any:
    """Run the opcode for the command line and `more`; return its result."""
    return run_opcode(args.op.opcode(args, **more), args)


def submit(client: LuxiClient, ops: Sequence[Any]) -> int:
    """Submit opcodes as one job; return its id. After a lost connection, submit again with the same key.

    The key ensures that the job exists once, even if the master accepted the first submission (F16).
    """
    return _submitted_once(lambda key: client.submit_job(ops, key))


def submit_many(client: LuxiClient, jobs: Sequence[Sequence[Any]]) -> list[tuple[bool, Any]]:
    """Submit jobs; return `(True, id)` or `(False, reason)` for each. Repeats like `submit`."""
    return _submitted_once(lambda key: client.submit_many_jobs(jobs, key))


def _submitted_once(submission: Callable[[str], T]) -> T:
    from ganeti.base.ids import RandomIds  # Lists do not need it and start faster without it.

    key = RandomIds().token()
    try:
        return submission(key)
    except ConnectionBrokenError as err:
        broken = err
    end = time.monotonic() + RETRY_LIMIT_S
    while True:
        try:
            return submission(key)
        except (MasterDownError, NotMaster):
            if time.monotonic() >= end:
                raise broken from None  # The job may exist already; later errors would hide this.
            time.sleep(RETRY_PAUSE_S)


def run_jobs(
    client: LuxiClient,
    jobs: Sequence[tuple[str, "OpCode"]],
    args: argparse.Namespace,
    *,
    heading: str = "Instance",
) -> bool:
    """Submit a job for each `(label, opcode)` and follow the jobs; show the results of several as a table.

    The opcodes have the same class; `heading` is the title of the labels. Return True if all jobs succeeded;
    raise NeedsConfirmation and JobSubmitted like `run_job`.
    """
    confirm_losses([op for _label, op in jobs], args)
    answers = submit_many(client, [[with_job_options(op, args)] for _label, op in jobs])
    accepted = []
    ends: list[list[str]] = []
    for (label, _op), (is_accepted, what) in zip(jobs, answers, strict=True):
        if is_accepted:
            accepted.append((label, int(what)))
        else:
            say(f"Failed to submit job for {label}: {what}", file=sys.stderr)
            ends.append([label, "-", "not submitted"])
    ids = [job_id for _label, job_id in accepted]
    if len(ids) > 1 and not getattr(args, "submit_only", False):
        say(f"Submitted jobs {', '.join(map(str, ids))}")
    _print_ids(ids, args, [label for label, _job_id in accepted])
    for label, job_id in accepted:
        say(f"Waiting for job {job_id} for {label} ...", flush=True)
        try:
            wait_for_result(client, job_id)
        except GanetiError as err:
            say(f"Job {job_id} for {label} has failed: {err.message}", file=sys.stderr)
            ends.append([label, str(job_id), "failed"])
        else:
            ends.append([label, str(job_id), SUCCEEDED])
    if len(jobs) > 1:
        for line in format_table([heading, "Job", "Result"], sorted(ends)):
            say(line)
    return all(end == SUCCEEDED for _label, _job, end in ends)


def _print_ids(
    ids: Sequence[int], args: argparse.Namespace, labels: Sequence[str] | None = None
) -> None:
    """Print the job id for --print-jobid and --submit; with the label for commands on many objects, as upstream does."""
    prints_bare = getattr(args, "print_jobid", False)
    if prints_bare:
        for job_id in ids:
            say(job_id, flush=True)
    if getattr(args, "submit_only", False):
        lines = [f"JobID: {job_id}" for job_id in ids]
        if labels is not None:
            lines = [f"{job_id}: {label}" for job_id, label in zip(ids, labels, strict=True)]
        for line in lines:  # A script that asked for the bare id reads only the id.
            say(line, file=sys.stderr if prints_bare else None)
        raise JobSubmitted(list(ids))


def wait_for_result(client: LuxiClient, job_id: int, *, is_quiet: bool = False) -> list[Any]:
    """Show a job's log while it runs; return the results of its opcodes, or raise its error."""
    try:
        follow(client, job_id, is_quiet=is_quiet)
    except KeyboardInterrupt:
        say(
            f"\nJob {job_id} continues to run: 'gnt-job watch {job_id}' follows it again,"
            f" 'gnt-job cancel {job_id}' cancels it.",
            file=sys.stderr,
        )
        raise
    except MasterDownError:
        say(
            f"Job {job_id} was accepted: 'gnt-job watch {job_id}' shows its end once a master answers.",
            file=sys.stderr,
        )
        raise
    row = client.query_jobs([job_id], ["status", "opstatus", "opresult"])[0]
    if row is None or row[0] is None:
        raise JobFailed(f"job {job_id} does not exist any more; its final status is unknown")
    status, opcode_status, results = row
    if status == "success":
        return list(results)
    raise _failure(job_id, status, opcode_status, results)


def follow(client: LuxiClient, job_id: int, *, is_quiet: bool = False) -> str:
    """Show a job's log while it runs; return its final status. JobLost if the job does not exist any more."""
    status = ""
    has_explained = False
    for change in client.wait_for_job(job_id):
        status = change.status
        if not is_quiet:
            print_log(change)
            if change.is_keepalive and not has_explained:
                has_explained = explain_wait(client, job_id)
    return status


def print_log(change: JobChange) -> None:
    """Return log lines, each with its time, so that the output of an OS script cannot imitate other lines."""
    for _serial, (seconds, _micro), kind, content in change.entries:
        if kind == "message":
            for line in str(content).split("\n"):
                say(f"{time.ctime(seconds)} {line}", flush=True)


def explain_wait(client: LuxiClient, job_id: int) -> bool:
    """Print the reason why a job does not start, if it is known."""
    row = client.query_jobs([job_id], ["status", "waiting_for"])[0]
    if row is None or row[1] is None:
        return False
    say(f"Job {job_id} is {row[0]}: {row[1]}", file=sys.stderr)
    return True


def _failure(
    job_id: int, status: str, opcode_status: Sequence[str], results: Sequence[Any]
) -> GanetiError:
    """Return the error of a job that did not succeed: the error of its failed opcode."""
    if status == "canceled":
        return JobFailed(f"job {job_id} was canceled")
    for number, (state, result) in enumerate(zip(opcode_status, results, strict=True)):
        if state == "error":
            if is_wire_error(result):
                return error_from_wire(result)
            done = f" after {number} of its opcodes" if number else ""
            return JobFailed(f"job {job_id} failed{done}: {result}")
    return JobFailed(f"job {job_id} ended as {status}")
