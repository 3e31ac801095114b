"""gnt-cluster repair-disk-sizes."""

import argparse

from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable
from ganeti.cli.jobs import run_given
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import INSTANCES, JOB_OPTIONS


def add_size_commands(table: CommandTable) -> None:
    """Add the commands about disks of all instances to the table."""
    table.command(
        "repair-disk-sizes",
        INSTANCES,
        OpOptions("storage.OpClusterRepairDiskSizes"),
        *JOB_OPTIONS,
    )(repair_disk_sizes)


def repair_disk_sizes(args: argparse.Namespace) -> int:
    """Correct the recorded sizes of disks. Without names, all instances are checked.

    The command does not change any disk. It skips disks that it cannot inspect.
    """
    changed = run_given(args, instances=args.names)
    for name, index, what, value in changed or ():
        say(f"Instance {name}: disk {index}: changed {what} to {value} MiB")
    if changed == []:
        say("All recorded disk sizes are correct.")
    return 0
