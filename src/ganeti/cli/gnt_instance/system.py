"""gnt-instance reinstall."""

import argparse
import sys

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.errors import NeedsConfirmation
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.gnt_os import usable_names
from ganeti.cli.instance_selection import MANY, on_each
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS


@table.command(
    "reinstall",
    *MANY,
    FORCE,
    OpOptions("instance_system.OpInstanceReinstall"),
    option("--select-os", dest="select_os", action="store_true",
           help="list the OSes and prompt for the one to install"),
    *JOB_OPTIONS,
)  # fmt: skip
def reinstall(args: argparse.Namespace) -> int:
    """Reinstall instances. They must be down. All data on their disks is lost.

    --force confirms the reinstallation of one instance; several instances need --force-multiple.
    """
    if args.select_os and args.os_type:
        raise InputError("cannot be used with --os-type", "--select-os")
    return on_each(args, **({"os_type": _selected_os(args)} if args.select_os else {}))


def _selected_os(args: argparse.Namespace) -> str:
    """Return the OS that the user selects; NeedsConfirmation if standard input is not a terminal."""
    names = usable_names(args)
    if not names:
        raise PrereqError("no OS definition can be used on all nodes", ErrorCode.WRONG_STATE)
    for number, name in enumerate(names):
        say(f"{number:3}: {name}")
    if not sys.stdin.isatty():
        raise NeedsConfirmation("Standard input is not a terminal; pass --os-type.")
    say("Number or name of the OS (empty to cancel): ", end="", flush=True)
    chosen = sys.stdin.readline().strip()
    if chosen.isdecimal() and int(chosen) < len(names):
        return names[int(chosen)]
    if chosen not in names:
        raise NeedsConfirmation("Nothing was changed.")
    return chosen
