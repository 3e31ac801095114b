"""gnt-cluster balance and capacity: what allocators know about the cluster as a whole."""

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import disk_requests
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.options import FORCE, IALLOCATOR, JOB_OPTIONS
from ganeti.cli.output import format_table
from ganeti.clients.luxi import LuxiClient


def add_placement_commands(table: CommandTable) -> None:
    """Give gnt-cluster the commands."""
    table.command(
        "balance",
        FORCE,
        IALLOCATOR,
        option("-l", "--max-length", dest="max_moves", type=int, metavar="N",
               help="how many moves at most"),
        *JOB_OPTIONS,
    )(balance)  # fmt: skip
    table.command(
        "capacity",
        IALLOCATOR,
        option("-t", "--disk-template", dest="disk_template", metavar="TEMPLATE",
               help="how the disks are kept; the cluster's first without"),
        option("--disk", action="append", metavar="N:size=SIZE", help="a disk; may be repeated"),
        option("--memory", metavar="SIZE", help="memory of each instance"),
        option("-c", "--vcpus", type=int, metavar="N", help="virtual processors of each"),
        option("--spindle-use", dest="spindle_use", type=int, metavar="N",
               help="spindles that each uses"),
        option("--max-instances", dest="max_instances", type=int, metavar="N",
               help="do not count further"),
        *JOB_OPTIONS,
    )(capacity)  # fmt: skip


def balance(args: argparse.Namespace) -> int:
    """Move instances so that all nodes are used alike; with --dry-run only show the moves.

    Each move is a job; those that touch the same nodes wait for each other.
    """
    from ganeti.model.opcodes.placing import OpClusterBalance

    if not args.dry_run:
        confirm("Move instances to balance the cluster?", is_sure=args.force)
    op = OpClusterBalance(iallocator=args.iallocator, max_moves=args.max_moves)
    with LuxiClient() as client:
        found = run_job(client, op, args)
        if not found["moved"]:
            say("The cluster is balanced: no move would make it better.")
            return 0
        say(found["info"])
        say("\n".join(_moves_table(found)), flush=True)
        return 0 if args.dry_run else wait_for_all(client, found["jobs"])


def _moves_table(found: Mapping[str, Any]) -> list[str]:
    """The moves by number, each with the numbers of those that it waits for."""
    rows = [
        (str(number), name, group, ",".join(before), ",".join(after), ",".join(str(one + 1) for one in needs))
        for number, ((name, group, after), before, needs) in enumerate(
            zip(found["moved"], found["before"], found["needs"], strict=False), 1
        )
    ]  # fmt: skip
    return format_table(
        ("Move", "Instance", "Group", "From", "To", "After"),
        rows,
        right=(True, False, False, False, False, False),
    )


def capacity(args: argparse.Namespace) -> int:
    """Count how many more instances of one size fit, and where.

    What is not given is that of the standard instance of the cluster's instance policy.
    """
    from ganeti.model.opcodes.placing import OpClusterCapacity

    op = OpClusterCapacity(
        iallocator=args.iallocator,
        disk_template=args.disk_template,
        disks=disk_requests(args.disk) if args.disk else None,
        memory=parse_mib(args.memory, "memory") if args.memory else None,
        vcpus=args.vcpus,
        spindle_use=args.spindle_use,
        max_instances=args.max_instances,
    )
    with LuxiClient() as client:
        found: dict[str, Any] | None = run_job(client, op, args)
    if found is None:
        return 0
    spec = found["spec"]
    disks = "+".join(f"{size}M" for size in spec["disks"]) or "no disks"
    say(
        f"{found['count']} instances fit, each with {spec['memory']}M of memory, {spec['vcpus']} virtual"
        f" processors, {disks} ({spec['disk_template']})"
    )
    numbers = Counter(",".join(nodes) for nodes in found["nodes"])
    rows = [[nodes, str(count)] for nodes, count in sorted(numbers.items())]
    if rows:
        say("\n".join(format_table(["Nodes", "Instances"], rows)))
    return 0
