"""gnt-debug: tools for developers and for finding out why something waits."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, Argument, CommandTable, option
from ganeti.cli.jobs import run_job, submit, submit_many, wait_for_result
from ganeti.cli.key_values import disk_requests, nic_requests, split_words
from ganeti.cli.options import DRY_RUN, JOB_OPTIONS, LIST_OPTIONS, PRIORITY, REASON, SUBMIT
from ganeti.cli.output import print_list, wanted_filter
from ganeti.clients.luxi import LuxiClient

table = CommandTable("gnt-debug", "Tools for developers, and for finding out why something waits.")

LONGEST_S = 1e9


def seconds(text: str) -> float:
    """A duration; InputError."""
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
    option("--no-master", dest="on_master", action="store_false", help="do not sleep on the master"),
    option("-n", dest="on_nodes", action="append", metavar="NODE", completion="node",
           help="sleep on this node as well; may be repeated"),
    option("-r", "--repeat", type=int, default=0, metavar="TIMES", help="sleep this often again"),
    option("-i", "--interruptible", action="store_true", help="let a cancel end it in between"),
    option("-l", "--no-locks", dest="no_locks", action="store_true", help="take no locks"),
    *JOB_OPTIONS,
)  # fmt: skip
def delay(args: argparse.Namespace) -> int:
    """Run a job that only sleeps."""
    from ganeti.model.opcodes.test import OpTestDelay

    op = OpTestDelay(
        duration=seconds(args.duration),
        on_master=args.on_master,
        on_nodes=args.on_nodes or [],
        repeat=args.repeat,
        interruptible=args.interruptible,
        no_locks=args.no_locks,
    )
    with LuxiClient() as client:
        run_job(client, op, args)
    return 0


@table.command(
    "submit-job",
    Argument("files", "files with a JSON list of opcodes each; '-' is standard input", nargs="+",
             completion="file"),
    option("--job-repeat", type=int, default=1, metavar="TIMES", help="submit each file this often"),
    option("--each", action="store_true", help="submit one request a job, not all in one"),
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
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        value = json.loads(text)
    except (OSError, ValueError) as err:
        raise InputError(str(err), name) from err
    if not isinstance(value, list):
        raise InputError("must hold a list of opcodes", name)
    return value


@table.command(
    "locks", Argument("names", "locks, as node/UUID; all if none", nargs="*"), *LIST_OPTIONS
)
def locks(args: argparse.Namespace) -> int:
    """List locks: who has them, and who waits for them."""
    filter_ = wanted_filter("name", args.names, args.filter)
    return print_list(
        args,
        "lock",
        ("name", "mode", "owner", "pending"),
        filter_=filter_,
        overrides={"pending": _pending},
    )


def _pending(value: list[list[object]]) -> str:
    shown = [
        f"{mode}:{','.join(map(str, owners))}" for mode, owners in value if isinstance(owners, list)
    ]
    return " ".join(shown) or "-"


@table.command(
    "iallocator",
    Argument("names", "name of the new instance or of the one to relocate; for the evacuation of"
             " nodes and change-group instances, for multi-evacuate nodes", nargs="*"),
    option("-I", "--iallocator", metavar="NAME", completion="iallocator",
           help="the allocator; the cluster's default without"),
    option("--dir", dest="direction", choices=("in", "out"), default="out",
           help="show the message to the allocator (in) or its answer (out)"),
    option("-m", "--mode", default="allocate", metavar="MODE",
           choices=("allocate", "relocate", "node-evacuate", "change-group", "multi-allocate",
                    "multi-evacuate", "balance", "capacity"),
           help="allocate, relocate, node-evacuate, change-group, multi-allocate, multi-evacuate,"
           " balance or capacity"),
    option("--evac-mode", dest="evac_mode", metavar="MODE",
           choices=("primary-only", "secondary-only", "all"),
           help="for node-evacuate: primary-only, secondary-only or all"),
    option("--target-groups", dest="target_groups", default="", metavar="GROUP,...",
           help="for change-group: groups to choose from; any other without"),
    option("-g", "--node-group", dest="group", metavar="GROUP", help="group to allocate in"),
    option("--spindle-use", dest="spindle_use", type=int, default=1, metavar="N",
           help="spindles that the instance uses (1)"),
    option("--count", type=int, default=1, metavar="N",
           help="for multi-allocate: how many instances (1)"),
    option("--max-moves", dest="max_moves", type=int, metavar="N",
           help="for balance: how many moves at most"),
    option("--disks", metavar="SIZE,...", help="sizes of disks; the same as --disk for each"),
    option("--nics", metavar="MAC/IP/LINK,...",
           help="interfaces; parts may be empty; the same as --net for each"),
    option("--memory", default="128m", metavar="SIZE", help="memory of the instance (128m)"),
    option("-c", "--vcpus", type=int, default=1, metavar="N", help="virtual processors (1)"),
    option("-t", "--disk-template", dest="disk_template", default="diskless", metavar="TEMPLATE",
           help="how the disks are kept (diskless)"),
    option("--disk", action="append", metavar="N:size=SIZE", help="a disk; may be repeated"),
    option("--net", action="append", metavar="N:k=v,...", help="an interface; may be repeated"),
    option("-o", "--os-type", dest="os_type", default="", metavar="OS", completion="os",
           help="OS definition"),
    option("-H", "--hypervisor", metavar="NAME", help="hypervisor"),
    option("--tags", default="", metavar="TAG,...", help="tags of the instance"),
    PRIORITY, REASON, DRY_RUN,
)  # fmt: skip
def iallocator(args: argparse.Namespace) -> int:
    """Ask an allocator where it would place an instance, without making it; or anything else it can be asked."""
    from ganeti.model.opcodes.test import OpTestAllocator

    op = OpTestAllocator(
        direction=args.direction,
        mode=args.mode,
        iallocator=args.iallocator,
        **_asked_about(args),
        evac_mode=args.evac_mode,
        target_groups=[one for one in args.target_groups.split(",") if one],
        group_name=args.group,
        spindle_use=args.spindle_use,
        count=args.count,
        max_moves=args.max_moves,
        disks=[*disk_requests(args.disk), *_disks(args.disks)],
        nics=[*nic_requests(args.net), *_nics(args.nics)],
        memory=parse_mib(args.memory, "memory"),
        vcpus=args.vcpus,
        disk_template=args.disk_template,
        os=args.os_type,
        hypervisor=args.hypervisor,
        tags=[tag for tag in split_words(args.tags) if tag],
    )
    with LuxiClient() as client:
        say(run_job(client, op, args))
    return 0


_ABOUT_INSTANCES = ("node-evacuate", "change-group")
_ABOUT_ALL = ("balance", "capacity")


def _asked_about(args: argparse.Namespace) -> dict[str, Any]:
    """The names by the field that the mode needs them in; InputError if there are too few or too many."""
    names = args.names
    if args.mode in _ABOUT_INSTANCES:
        return {"instances": names}
    if args.mode == "multi-evacuate":
        return {"evac_nodes": names}
    most = 0 if args.mode in _ABOUT_ALL else 1
    if len(names) != most:
        raise InputError(f"{args.mode} needs {most} of them, not {len(names)}", "names")
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


def main() -> NoReturn:
    """The program."""
    table.main()
