"""gnt-instance grow-disk, recreate-disks, activate-disks and deactivate-disks."""

import argparse
from typing import Any

from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import Argument, option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import key_values, split_words, whole_number
from ganeti.cli.options import FORCE, IALLOCATOR, IGNORE_IPOLICY, INSTANCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient


@table.command(
    "grow-disk",
    INSTANCE,
    Argument("disk", "index of the disk"),
    Argument("amount", "by how much, as 10g"),
    option("--absolute", action="store_true", help="the amount is the new size"),
    option("--no-wait-for-sync", dest="wait_for_sync", action="store_false",
           help="accepted, without effect: no disk is mirrored"),
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def grow_disk(args: argparse.Namespace) -> int:
    """Make a disk larger; a running guest sees it at once. Disks never shrink."""
    from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk

    op = OpInstanceGrowDisk(
        instance_name=args.instance_name,
        disk=whole_number(args.disk, "disk"),
        amount=parse_mib(args.amount, "amount"),
        absolute=args.absolute,
        wait_for_sync=args.wait_for_sync,
        ignore_ipolicy=args.ignore_ipolicy,
    )
    with LuxiClient() as client:
        run_job(client, op, args)
    return 0


@table.command(
    "recreate-disks",
    INSTANCE,
    option("--disk", action="append", metavar="N[:size=SIZE,mode=MODE]",
           help="only this disk, perhaps with another size or mode; may be repeated"),
    option("-n", "--node", "--nodes", dest="nodes", metavar="NODE[,...]", completion="node",
           help="make all disks on this node, which becomes the primary one"),
    IALLOCATOR,
    FORCE,
    *JOB_OPTIONS,
)  # fmt: skip
def recreate_disks(args: argparse.Namespace) -> int:
    """Make disks anew, empty, whose data was lost; those that are there are never touched.

    On another node than the present one they are made only if --force is given or the question answered:
    what the present node, which cannot be asked, may still have of them is given up.
    """
    from ganeti.model.opcodes.instance_changes import OpInstanceRecreateDisks

    op = OpInstanceRecreateDisks(
        instance_name=args.instance_name,
        disks=[_wanted(text, f"disks[{at}]") for at, text in enumerate(args.disk or ())],
        nodes=[name for text in split_words(args.nodes or "") for name in text.split(":") if name],
        iallocator=args.iallocator,
    )
    with LuxiClient() as client:
        run_job(client, op, args)
    return 0


def _wanted(text: str, field: str) -> int | list[Any]:
    number, colon, rest = text.partition(":")
    index = whole_number(number, field)
    if not colon:
        return index
    params = key_values(rest, field)
    if isinstance(size := params.get("size"), str):
        params["size"] = parse_mib(size, f"{field}.size")
    return [index, params]


@table.command(
    "activate-disks",
    INSTANCE,
    option("--ignore-size", dest="ignore_size", action="store_true",
           help="do not compare their sizes with those of the configuration"),
    option("--wait-for-sync", dest="wait_for_sync", action="store_true",
           help="accepted, without effect: no disk is mirrored"),
    *JOB_OPTIONS,
)  # fmt: skip
def activate_disks(args: argparse.Namespace) -> int:
    """Make an instance's disks usable on its primary node; prints node:name:path for each."""
    from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks

    op = OpInstanceActivateDisks(
        instance_name=args.instance_name,
        ignore_size=args.ignore_size,
        wait_for_sync=args.wait_for_sync,
    )
    with LuxiClient() as client:
        found = run_job(client, op, args)
    for node, name, path in found or ():
        say(f"{node}:{name}:{path}")
    return 0


@table.command("deactivate-disks", INSTANCE, FORCE, *JOB_OPTIONS)
def deactivate_disks(args: argparse.Namespace) -> int:
    """Give up an instance's disks that were activated; refused while it runs, unless forced."""
    from ganeti.model.opcodes.instance_changes import OpInstanceDeactivateDisks

    op = OpInstanceDeactivateDisks(instance_name=args.instance_name, force=args.force)
    with LuxiClient() as client:
        run_job(client, op, args)
    return 0
