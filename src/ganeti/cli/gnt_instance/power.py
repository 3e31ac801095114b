"""gnt-instance startup, shutdown and reboot: on one instance or on many."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import confirm, run_jobs
from ganeti.cli.key_values import backend_params, merged_key_values
from ganeti.cli.options import (
    ALL_INSTANCES,
    FORCE,
    INSTANCES,
    JOB_OPTIONS,
    SHUTDOWN_TIMEOUT,
)
from ganeti.clients.luxi import LuxiClient
from ganeti.model.names import RebootType

if TYPE_CHECKING:  # lists do not need opcodes, and start faster
    from ganeti.model.opcodes import OpCode

FORCE_MULTI = option(
    "--force-multiple", dest="force_multi", action="store_true", help="do not ask about several"
)
PRIMARY_OF = option(
    "-n", "--node", "--primary", dest="primary", metavar="NODE", completion="node",
    help="all instances that have this primary node",
)  # fmt: skip
IGNORE_OFFLINE = option(
    "--ignore-offline", dest="ignore_offline", action="store_true",
    help="only mark it, if its node is offline",
)  # fmt: skip
NO_REMEMBER = option(
    "--no-remember", dest="no_remember", action="store_true",
    help="do not remember the new state as the wanted one",
)  # fmt: skip
MANY = (INSTANCES, ALL_INSTANCES, PRIMARY_OF, FORCE_MULTI)


def chosen_names(client: LuxiClient, args: argparse.Namespace) -> list[str]:
    """Full names of the instances that are meant; asks back before several are touched."""
    ways = sum((bool(args.names), args.all, args.primary is not None))
    if ways != 1:
        raise InputError("give names of instances, or --all, or --node", "instances")
    if args.names:
        return [row[0] for row in client.rows("Instances", args.names, ["name"])]
    rows = client.rows("Instances", [], ["name", "pnode"])
    if args.primary is not None:
        node = client.rows("Nodes", [args.primary], ["name"])[0][0]
        rows = [row for row in rows if row[1] == node]
    names = [row[0] for row in rows]
    if len(names) > 1:
        is_sure = args.force_multi or getattr(args, "force", False)
        confirm(
            f"{args.command.capitalize()} {len(names)} instances ({', '.join(names)})?",
            is_sure=is_sure,
            how="--force-multiple",
        )
    return names


def _on_each(args: argparse.Namespace, opcode: Callable[[str], "OpCode"]) -> int:
    with LuxiClient() as client:
        names = chosen_names(client, args)
        return (
            0 if run_jobs(client, [(name, opcode(name)) for name in names], args) else EXIT_FAILURE
        )


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
    return _on_each(
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

    return _on_each(
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
           help="go on where a secondary node does not answer"),
    SHUTDOWN_TIMEOUT,
    *JOB_OPTIONS,
)  # fmt: skip
def reboot(args: argparse.Namespace) -> int:
    """Reboot instances."""
    from ganeti.model.opcodes.instance import OpInstanceReboot

    return _on_each(
        args,
        lambda name: OpInstanceReboot(
            instance_name=name,
            reboot_type=RebootType(args.reboot_type),
            ignore_secondaries=args.ignore_secondaries,
            shutdown_timeout=args.shutdown_timeout,
        ),
    )
