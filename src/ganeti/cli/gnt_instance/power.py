"""gnt-instance startup, shutdown and reboot: on one instance or on many."""

import argparse
from typing import Any

from ganeti.cli.command import option
from ganeti.cli.gnt_instance.selection import MANY, on_each
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.key_values import backend_params, merged_key_values
from ganeti.cli.options import FORCE, JOB_OPTIONS, SHUTDOWN_TIMEOUT
from ganeti.model.names import RebootType

IGNORE_OFFLINE = option(
    "--ignore-offline", dest="ignore_offline", action="store_true",
    help="only mark it, if its node is offline",
)  # fmt: skip
NO_REMEMBER = option(
    "--no-remember", dest="no_remember", action="store_true",
    help="do not remember the new state as the wanted one",
)  # fmt: skip


@table.command(
    "startup",
    *MANY,
    FORCE,
    IGNORE_OFFLINE,
    NO_REMEMBER,
    option("--paused", action="store_true", help="start with the processors stopped"),
    option("-H", "--hypervisor-parameters", dest="hvparams", action="append", metavar="k=v,...",
           help="hypervisor parameters for this start only"),
    option("-B", "--backend-parameters", dest="beparams", action="append", metavar="k=v,...",
           help="backend parameters for this start only"),
    *JOB_OPTIONS,
    aliases=("start",),
)  # fmt: skip
def startup(args: argparse.Namespace) -> int:
    """Start instances, and remember that they are to run."""
    from ganeti.model.opcodes.instance import OpInstanceStartup

    given: dict[str, Any] = {
        "hvparams": merged_key_values(args.hvparams, "hvparams"),
        "beparams": backend_params(args.beparams),
    }
    return on_each(
        args,
        lambda name: OpInstanceStartup(
            instance_name=name,
            force=args.force,
            ignore_offline_nodes=args.ignore_offline,
            no_remember=args.no_remember,
            startup_paused=args.paused,
            **given,
        ),
    )


@table.command(
    "shutdown",
    *MANY,
    FORCE,
    option("--timeout", type=int, default=120, metavar="SECONDS",
           help="how long the guest may take before it is ended (120)"),
    IGNORE_OFFLINE,
    NO_REMEMBER,
    *JOB_OPTIONS,
    aliases=("stop",),
)  # fmt: skip
def shutdown(args: argparse.Namespace) -> int:
    """Shut instances down, and remember that they are to be down."""
    from ganeti.model.opcodes.instance import OpInstanceShutdown

    return on_each(
        args,
        lambda name: OpInstanceShutdown(
            instance_name=name,
            force=args.force,
            ignore_offline_nodes=args.ignore_offline,
            timeout=args.timeout,
            no_remember=args.no_remember,
        ),
    )


@table.command(
    "reboot",
    *MANY,
    option("-t", "--type", dest="reboot_type", choices=tuple(kind.value for kind in RebootType),
           default=RebootType.HARD.value,
           help="soft asks the guest, hard resets it, full stops it and starts it anew"),
    option("--ignore-secondaries", dest="ignore_secondaries", action="store_true",
           help="accepted, without effect: no instance has a secondary node"),
    SHUTDOWN_TIMEOUT,
    *JOB_OPTIONS,
)  # fmt: skip
def reboot(args: argparse.Namespace) -> int:
    """Reboot instances."""
    from ganeti.model.opcodes.instance import OpInstanceReboot

    return on_each(
        args,
        lambda name: OpInstanceReboot(
            instance_name=name,
            reboot_type=RebootType(args.reboot_type),
            ignore_secondaries=args.ignore_secondaries,
            shutdown_timeout=args.shutdown_timeout,
        ),
    )
