"""gnt-instance grow-disk, recreate-disks and replace-disks."""

import argparse
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.cli.command import option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_given
from ganeti.cli.key_values import key_values, split_words, whole_number
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS
from ganeti.model.operation import INSTANCE, Argument


@table.command(
    "grow-disk",
    INSTANCE,
    Argument("disk", "index of the disk"),
    Argument("amount", "size to add, for example 10g"),
    OpOptions("instance_changes.OpInstanceGrowDisk"),
    *JOB_OPTIONS,
)
def grow_disk(args: argparse.Namespace) -> int:
    """Grow a disk. A running guest sees the new size at once. Disks cannot shrink."""
    if args.amount.startswith("-"):
        raise InputError(
            f"{args.amount!r:.40} is negative, but disks cannot shrink; pass the size to add, for example 10g",
            "amount",
        )
    run_given(args, disk=whole_number(args.disk, "disk"), amount=parse_mib(args.amount, "amount"))
    return 0


@table.command(
    "recreate-disks",
    INSTANCE,
    option("--disk", action="append", metavar="N[:size=SIZE,mode=MODE,spindles=N]",
           help="recreate only this disk, optionally with another size, mode or number of spindles; may be repeated"),
    option("-n", "--node", "--nodes", dest="nodes", metavar="NODE[,...]", completion="node",
           help="create all disks on this node, which becomes the primary node"),
    OpOptions("instance_changes.OpInstanceRecreateDisks"),
    FORCE,
    *JOB_OPTIONS,
)  # fmt: skip
def recreate_disks(args: argparse.Namespace) -> int:
    """Recreate lost disks as empty disks. Existing disks are never changed.

    Creating disks on another node abandons any data that the present node may still have. The command asks
    for confirmation first; --force skips the prompt.
    """
    run_given(
        args,
        disks=[_wanted(text, f"disks[{at}]") for at, text in enumerate(args.disk or ())],
        nodes=[name for text in split_words(args.nodes or "") for name in text.split(":") if name],
    )
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
    "replace-disks",
    INSTANCE,
    option("-p", "--on-primary", dest="mode", action="store_const", const="replace_on_primary",
           help="replace the mirrors on the primary node"),
    option("-s", "--on-secondary", dest="mode", action="store_const", const="replace_on_secondary",
           help="replace the mirrors on the secondary node"),
    option("-a", "--auto", dest="mode", action="store_const", const="replace_auto",
           help="replace missing or broken mirrors"),
    OpOptions("instance_changes.OpInstanceReplaceDisks"),
    option("--disks", metavar="N[,...]", help="replace only these disks"),
    *JOB_OPTIONS,
)  # fmt: skip
def replace_disks(args: argparse.Namespace) -> int:
    """Replace the mirrors of an instance's disks on one of its nodes.

    With -n or -I another node becomes the secondary. With -p, -s or -a the mirrors are recreated on the same
    node and synchronised from the other node. The guest keeps running.
    """
    if bool(args.remote_node or args.iallocator) == bool(args.mode):
        raise InputError("pass one of -p, -s, -a, -n and -I", "mode")
    disks = [whole_number(text, "disks") for text in split_words(args.disks)] if args.disks else []
    run_given(args, mode=args.mode or "replace_new_secondary", disks=disks)
    return 0
