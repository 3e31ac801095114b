"""gnt-cluster balance and capacity: answers of allocators about the whole cluster."""

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_given, run_job
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS, JSON
from ganeti.cli.output import format_table, print_json
from ganeti.clients.luxi import LuxiClient


def add_placement_commands(table: CommandTable) -> None:
    """Add the commands to the table."""
    table.command(
        "balance",
        FORCE,
        OpOptions("placing.OpClusterBalance"),
        *JOB_OPTIONS,
    )(balance)
    table.command("capacity", JSON, OpOptions("placing.OpClusterCapacity"), *JOB_OPTIONS)(capacity)


def balance(args: argparse.Namespace) -> int:
    """Move instances to balance the load of the nodes; --dry-run only shows the moves.

    Each move is a job. Moves that use the same nodes wait for each other.
    """
    if not args.dry_run:
        confirm("Move instances to balance the cluster?", is_sure=args.force)
    with LuxiClient() as client:
        found = run_job(client, args.op.opcode(args), args)
        if not found["moved"]:
            say("The cluster is balanced: no move would improve it.")
            return 0
        say(found["info"])
        say("\n".join(_moves_table(found)), flush=True)
        return 0 if args.dry_run else wait_for_all(client, found["jobs"])


def _moves_table(found: Mapping[str, Any]) -> list[str]:
    """Return the numbered moves, each with the numbers of the moves that it waits for."""
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
    """Show how many more instances of one size fit, and on which nodes.

    Missing options default to the standard instance of the cluster's instance policy.
    """
    found: dict[str, Any] | None = run_given(args)
    if found is None:
        return 0
    if args.is_json:
        return print_json(found)
    spec = found["spec"]
    disks = "+".join(f"{size}M" for size in spec["disks"]) or "no disks"
    say(
        f"Room for {found['count']} instances, each with {spec['memory']}M of memory, {spec['vcpus']} virtual"
        f" processors, {disks} ({spec['disk_template']})"
    )
    numbers = Counter(",".join(nodes) for nodes in found["nodes"])
    rows = [[nodes, str(count)] for nodes, count in sorted(numbers.items())]
    if rows:
        say("\n".join(format_table(["Nodes", "Instances"], rows)))
    return 0
