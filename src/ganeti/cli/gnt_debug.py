"""gnt-debug: tools for developers and for finding the cause of a delay."""

import argparse
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, REASON, option
from ganeti.cli.declared import program
from ganeti.cli.input_file import read_json
from ganeti.cli.jobs import follow, run_given, submit, submit_many, wait_for_result
from ganeti.cli.key_values import disk_requests, nic_requests
from ganeti.cli.objects import ObjectKind, print_list
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import DRY_RUN, JOB_OPTIONS, LIST_OPTIONS, PRIORITY, SUBMIT
from ganeti.cli.output import wanted_filter
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument
from ganeti.protocols.query_language import both

table = program("gnt-debug", "Tools for developers, and for finding the cause of a delay.")

LONGEST_S = 1e9


def seconds(text: str) -> float:
    """Return a duration in seconds; raise InputError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < LONGEST_S:
        raise InputError(f"{text!r:.40} is not a number of seconds", "duration")
    return value


@table.command(
    "delay",
    Argument("duration", "seconds"),
    OpOptions("test.OpTestDelay"),
    *JOB_OPTIONS,
)
def delay(args: argparse.Namespace) -> int:
    """Submit a job that only sleeps."""
    run_given(args, duration=seconds(args.duration))
    return 0


@table.command(
    "submit-job",
    Argument("files", "files, each with a JSON list of opcodes; '-' is standard input", nargs="+",
             completion="file"),
    option("--job-repeat", type=int, default=1, metavar="TIMES", help="submit each file this often"),
    option("--each", action="store_true", help="submit a job per request instead of one job"),
    SUBMIT,
)  # fmt: skip
def submit_job(args: argparse.Namespace) -> int:
    """Submit jobs from files, and wait for them."""
    jobs = [_opcodes(name) for name in args.files for _ in range(args.job_repeat)]
    with LuxiClient() as client:
        if args.each:
            answers = [(True, submit(client, ops)) for ops in jobs]
        else:
            answers = submit_many(client, jobs)
        all_done = True
        for is_accepted, what in answers:
            say(f"JobID: {what}" if is_accepted else f"Refused: {what}", flush=True)
            all_done = all_done and is_accepted
        if not args.submit_only:
            for is_accepted, what in answers:
                if is_accepted:
                    wait_for_result(client, int(what))
    return 0 if all_done else EXIT_FAILURE


def _opcodes(name: str) -> list[object]:
    value = read_json(name, "a JSON list of opcodes")
    if not isinstance(value, list):
        raise InputError("must contain a JSON list of opcodes", name)
    return value


@table.command(
    "locks",
    Argument("names", "names of locks, for example node/UUID; default: all locks", nargs="*"),
    *LIST_OPTIONS,
)
def locks(args: argparse.Namespace) -> int:
    """List locks with their holders and the jobs that wait for them. A free lock is listed only by its name."""
    filter_ = wanted_filter("name", args.names, args.filter)
    if not args.names:
        filter_ = both(filter_, ["|", ["?", "owner"], ["?", "pending"]])
    return print_list(args, LOCK_KIND, filter_)


def _pending(value: list[list[object]]) -> str:
    shown = [
        f"{mode}:{','.join(map(str, owners))}" for mode, owners in value if isinstance(owners, list)
    ]
    return " ".join(shown) or "-"


LOCK_KIND = ObjectKind(
    query="lock", listed=("name", "mode", "owner", "pending"), formats={"pending": _pending}
)


@table.command(
    "iallocator",
    Argument("names", "name of the new instance or of the one to relocate; for the evacuation of"
             " nodes and change-group instances, for multi-evacuate nodes", nargs="*"),
    OpOptions("test.OpTestAllocator"),
    option("--disks", dest="sizes", metavar="SIZE,...",
           help="sizes of disks; the same as --disk for each"),
    option("--nics", dest="interfaces", metavar="MAC/IP/LINK,...",
           help="network interfaces; parts may be empty; the same as --net for each"),
    PRIORITY, REASON, DRY_RUN,
    aliases=("allocator",),
)  # fmt: skip
def iallocator(args: argparse.Namespace) -> int:
    """Send a request to an allocator and show its answer. Nothing is created or moved."""
    found = run_given(
        args,
        **_asked_about(args),
        disks=[*disk_requests(args.disks), *_disks(args.sizes)],
        nics=[*nic_requests(args.nics), *_nics(args.interfaces)],
    )
    say(found)
    return 0


_ABOUT_INSTANCES = ("node-evacuate", "change-group")
_ABOUT_ALL = ("balance", "capacity")


def _asked_about(args: argparse.Namespace) -> dict[str, Any]:
    """Return the names in the field that the mode needs; InputError if there are too few or too many."""
    names, mode = args.names, args.mode or "allocate"
    if mode in _ABOUT_INSTANCES:
        return {"instances": names}
    if mode == "multi-evacuate":
        return {"evac_nodes": names}
    most = 0 if mode in _ABOUT_ALL else 1
    if len(names) != most:
        raise InputError(f"mode {mode} needs {most} names, not {len(names)}", "names")
    return {"name": names[0]} if names else {}


def _disks(text: str | None) -> list[Any]:
    from ganeti.model.opcodes.base import DiskRequest

    return [DiskRequest(size=parse_mib(size, "disks")) for size in text.split(",")] if text else []


def _nics(text: str | None) -> list[Any]:
    from ganeti.model.opcodes.base import NicRequest

    found = []
    for one in text.split(",") if text else ():
        mac, ip, link, *_rest = [*one.split("/"), "", "", ""]
        found.append(NicRequest(mac=mac or "auto", ip=ip or None, link=link or None))
    return found


@table.command("test-jobqueue")
def test_jobqueue(args: argparse.Namespace) -> int:
    """Run test jobs that log, fail, submit jobs and wait for jobs, and check their final states.

    The jobs do not change nodes or instances.
    """
    del args
    from ganeti.model.opcodes.test import OpTestDummy, OpTestJqueue

    def talk(**fields: Any) -> Any:
        return OpTestJqueue(**fields)

    jobs: list[tuple[str, list[Any], str]] = [
        ("opcodes that write log lines", [talk(log_messages=["one", "two"]), talk()], "success"),
        ("an opcode after a failed opcode", [talk(fail=True), talk()], "error"),
        ("a job that depends on the first job", [talk(depends=[(-2, ["success"])])], "success"),
        (
            "a job that requires the second job to succeed",
            [talk(depends=[(-2, ["success"])])],
            "error",
        ),
        ("a result", [OpTestDummy(result=[1, "a"], messages="text")], "success"),
    ]
    with LuxiClient() as client:
        answers = submit_many(client, [ops for _what, ops, _wanted in jobs])
        all_well = True
        for (what, _ops, wanted), (is_accepted, job_id) in zip(jobs, answers, strict=True):
            ended = (
                follow(client, int(job_id), is_quiet=True) if is_accepted else f"refused: {job_id}"
            )
            is_well = ended == wanted
            all_well = all_well and is_well
            say(f"{'ok' if is_well else 'WRONG'}: {what} (job {job_id}: {ended})")
    return 0 if all_well else EXIT_FAILURE


@table.command(
    "wconfd",
    Argument("action", "flushconfig, or echo"),
    Argument("words", "for echo: text to print if the master answers", nargs="*"),
)
def wconfd(args: argparse.Namespace) -> int:
    """Check that the master answers; echo then prints a text.

    flushconfig exists for scripts that were written for upstream Ganeti, and only checks the master. A change is on the disks of most
    candidates before the master confirms it, so flushconfig has nothing to write.
    """
    if args.action not in ("flushconfig", "echo"):
        raise InputError("must be flushconfig or echo", "action")
    with LuxiClient() as client:
        client.cluster_info()
    if args.words:
        say(*args.words)
    return 0


def main() -> NoReturn:
    """Run the program."""
    table.main()
