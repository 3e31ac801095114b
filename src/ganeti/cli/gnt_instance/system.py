"""gnt-instance reinstall and rename."""

import argparse
import sys

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import Argument, option
from ganeti.cli.errors import NeedsConfirmation
from ganeti.cli.gnt_instance.create import FORCE_VARIANT, HIDDEN_PARAMETERS, texts
from ganeti.cli.gnt_instance.selection import MANY, on_each
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.gnt_os import usable_names
from ganeti.cli.jobs import run_job
from ganeti.cli.options import FORCE, INSTANCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient


@table.command(
    "reinstall",
    *MANY,
    FORCE,
    option("-o", "--os-type", dest="os_type", metavar="OS[+VARIANT]", completion="os",
           help="install this OS, and keep it; without, the instance's own"),
    option("--select-os", dest="select_os", action="store_true",
           help="show the OSes that there are, and ask which one to install"),
    FORCE_VARIANT,
    option("-O", "--os-parameters", dest="osparams", action="append", metavar="k=v,...",
           help="parameters of the OS definition, for this installation only"),
    *HIDDEN_PARAMETERS,
    *JOB_OPTIONS,
)  # fmt: skip
def reinstall(args: argparse.Namespace) -> int:
    """Install instances anew; everything on their disks is lost. They must be down.

    --force is enough to confirm one instance; several need --force-multiple.
    """
    from ganeti.model.opcodes.instance_system import OpInstanceReinstall

    if args.select_os and args.os_type:
        raise InputError("cannot be given beside --os-type", "--select-os")
    osparams = texts(args.osparams, "osparams") or None
    private = texts(args.osparams_private, "osparams_private") or None
    secret = texts(args.osparams_secret, "osparams_secret") or None
    os_type = _selected_os(args) if args.select_os else args.os_type
    return on_each(
        args,
        lambda name: OpInstanceReinstall(
            instance_name=name,
            os_type=os_type,
            force_variant=args.force_variant,
            osparams=osparams,
            osparams_private=private,
            osparams_secret=secret,
        ),
    )


def _selected_os(args: argparse.Namespace) -> str:
    """The OS that the user names or numbers; NeedsConfirmation if nobody is there to be asked."""
    names = usable_names(args)
    if not names:
        raise PrereqError("no OS can be used on all nodes", ErrorCode.WRONG_STATE)
    for number, name in enumerate(names):
        say(f"{number:3}: {name}")
    if not sys.stdin.isatty():
        raise NeedsConfirmation("Nobody can be asked here; give --os-type.")
    say("Number or name of the OS, or nothing to give up: ", end="", flush=True)
    chosen = sys.stdin.readline().strip()
    if chosen.isdecimal() and int(chosen) < len(names):
        return names[int(chosen)]
    if chosen not in names:
        raise NeedsConfirmation("Nothing was done.")
    return chosen


@table.command(
    "rename",
    INSTANCE,
    Argument("new_name", "the new name"),
    option("--name-check", dest="name_check", action="store_true",
           help="refuse if the new name does not resolve"),
    option("--no-name-check", dest="name_check", action="store_false", help="the default"),
    option("--ip-check", dest="ip_check", action="store_true",
           help="refuse if the new name's address answers already; needs --name-check"),
    option("--no-ip-check", dest="ip_check", action="store_false", help="the default"),
    *JOB_OPTIONS,
)  # fmt: skip
def rename(args: argparse.Namespace) -> int:
    """Give an instance another name. It must be down.

    The rename script of its OS tells the installed system; if that fails, the instance is renamed all
    the same, with a warning. Files of disks keep the paths that they have.
    """
    from ganeti.model.opcodes.instance_system import OpInstanceRename

    op = OpInstanceRename(
        instance_name=args.instance_name,
        new_name=args.new_name,
        name_check=args.name_check,
        ip_check=args.ip_check,
    )
    with LuxiClient() as client:
        name = run_job(client, op, args)
    if name:
        say(f"Instance {args.instance_name} is now called {name}")
    return 0
