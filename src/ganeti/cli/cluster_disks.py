"""gnt-cluster repair-disk-sizes."""

import argparse

from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable
from ganeti.cli.jobs import run_given
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import INSTANCES, JOB_OPTIONS


def add_size_commands(table: CommandTable) -> None:
    """Put the commands about disks of all instances into the table of gnt-cluster."""
    table.command(
        "repair-disk-sizes",
        INSTANCES,
        OpOptions("storage.OpClusterRepairDiskSizes"),
        *JOB_OPTIONS,
    )(repair_disk_sizes)


def repair_disk_sizes(args: argparse.Namespace) -> int:
    """Record the sizes that the disks of instances really have, where others were recorded.

    All instances without names. No disk is changed; those that cannot be looked at are left out.
    """
    changed = run_given(args, instances=args.names)
    for name, index, what, value in changed or ():
        say(f"Instance {name}: disk {index}: {what} is {value} MiB now")
    if changed == []:
        say("All disk sizes are right.")
    return 0
