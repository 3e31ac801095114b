"""gnt-cluster balance and capacity: what the built-in allocator says of the running cluster."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.sizes import format_mib
from ganeti.cli.command import CommandTable, option
from ganeti.cli.jobs import confirm, run_job
from ganeti.cli.key_values import backend_params, disk_requests
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.options import FORCE, IALLOCATOR, JOB_OPTIONS, PRIORITY, REASON
from ganeti.cli.output import format_table
from ganeti.clients.luxi import LuxiClient

BUILT_IN = "hail"
MOVE_HEADINGS = ("Move", "Instance", "Group", "From", "To", "After")
NODE_HEADINGS = ("Node", "Instances")


def add_placement_commands(table: CommandTable) -> None:
    """Give gnt-cluster the commands about the whole of its instances."""
    table.command(
        "balance",
        FORCE,
        IALLOCATOR,
        option("-l", "--max-moves", dest="max_moves", type=int, metavar="N",
               help="make so many moves at most"),
        *JOB_OPTIONS,
    )(balance)  # fmt: skip
    table.command(
        "capacity",
        option("-t", "--disk-template", dest="disk_template", metavar="TEMPLATE",
               help="how the disks are kept; the cluster's first template without"),
        option("--disk", action="append", metavar="N:size=SIZE",
               help="a disk of the instance; may be repeated; those of the policy without"),
        option("-B", "--backend-parameters", dest="beparams", action="append", metavar="k=v,...",
               help="memory, vcpus and spindle_use, where they are not the policy's"),
        IALLOCATOR,
        PRIORITY,
        REASON,
    )(capacity)  # fmt: skip


def balance(args: argparse.Namespace) -> int:
    """Make the load of the nodes more even, by jobs that wait for each other where they must.

    The built-in allocator finds the moves, one after the other the best, until none makes the score lower.
    With --dry-run they are only shown.
    """
    from ganeti.model.opcodes.placing import OpClusterBalance

    if not args.dry_run:
        confirm("Move instances until the cluster is balanced?", is_sure=args.force)
    op = OpClusterBalance(max_moves=args.max_moves, iallocator=args.iallocator)
    with LuxiClient() as client:
        result = run_job(client, op, args)
        print(result["info"])
        if result["moves"]:
            print("\n".join(_moves_table(result["moves"])), flush=True)
        return 0 if args.dry_run else wait_for_all(client, result["jobs"])


def _moves_table(moves: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            str(number),
            move["instance"],
            move["group"],
            ",".join(move["before"]),
            ",".join(move["after"]),
            ",".join(str(one + 1) for one in move["needs"]),
        )
        for number, move in enumerate(moves, 1)
    ]
    return format_table(MOVE_HEADINGS, rows, right=(True, *(False for _ in MOVE_HEADINGS[1:])))


def capacity(args: argparse.Namespace) -> int:
    """Show how many more instances of one size fit, and on which nodes they would be.

    Without options the size is the standard one of the cluster's instance policy.
    """
    from ganeti.model.opcodes.test import OpTestAllocator

    with LuxiClient() as client:
        wanted = _size(client.cluster_info(), args)
        op = OpTestAllocator(mode="capacity", iallocator=args.iallocator or BUILT_IN, **wanted)
        answer = json.loads(run_job(client, op, args))
    if not answer["success"]:
        raise PrereqError(answer["info"], ErrorCode.NO_RESOURCES)
    print(_described(wanted))
    print(answer["info"])
    counts = Counter(name for nodes in answer["result"] for name in nodes[:1])
    rows = [(name, str(count)) for name, count in sorted(counts.items())]
    if rows:
        print("\n".join(format_table(NODE_HEADINGS, rows, right=(False, True))))
    return 0


def _size(cluster: Mapping[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The instance as the opcode's fields: what was given, else the standard of the policy."""
    from ganeti.model.opcodes.base import DiskRequest

    std = cluster["ipolicy"]["std"]
    given = {**_of_policy(std), **backend_params(args.beparams)}
    for name, value in given.items():
        if name not in _of_policy(std):
            raise InputError("is not memory, vcpus or spindle_use", f"beparams.{name}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError("needs a number", f"beparams.{name}")
    template = args.disk_template or cluster["enabled_disk_templates"][0]
    disks = disk_requests(args.disk)
    if not disks and template != "diskless":
        disks = [DiskRequest(size=std["disk-size"])] * std["disk-count"]
    return {
        "disk_template": template,
        "disks": disks,
        **given,
    }


def _of_policy(std: Mapping[str, int]) -> dict[str, int]:
    return {
        "memory": std["memory-size"],
        "vcpus": std["cpu-count"],
        "spindle_use": std["spindle-use"],
    }


def _described(wanted: Mapping[str, Any]) -> str:
    disks = " and ".join(format_mib(disk.size, "h") for disk in wanted["disks"]) or "none"
    return (
        f"An instance of {format_mib(wanted['memory'], 'h')} of memory, {wanted['vcpus']} virtual processors,"
        f" disks ({wanted['disk_template']}): {disks}"
    )
