"""gnt-instance startup, shutdown and reboot: on one instance or on many."""

import argparse

from ganeti.cli.gnt_instance.selection import MANY, on_each
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS


@table.command(
    "startup",
    *MANY,
    FORCE,
    OpOptions("instance.OpInstanceStartup"),
    *JOB_OPTIONS,
    aliases=("start",),
)
def startup(args: argparse.Namespace) -> int:
    """Start instances, and remember that they are to run."""
    return on_each(args)


@table.command(
    "shutdown",
    *MANY,
    FORCE,
    OpOptions("instance.OpInstanceShutdown"),
    *JOB_OPTIONS,
    aliases=("stop",),
)
def shutdown(args: argparse.Namespace) -> int:
    """Shut instances down, and remember that they are to be down."""
    return on_each(args)


@table.command("reboot", *MANY, OpOptions("instance.OpInstanceReboot"), *JOB_OPTIONS)
def reboot(args: argparse.Namespace) -> int:
    """Reboot instances."""
    return on_each(args)
