"""The commands of gnt-node that switch hosts on and off and run restricted commands."""

import argparse
import sys
from collections.abc import Sequence
from getpass import getpass
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.cli.jobs import run_job, run_opcode
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import (
    FORCE,
    JOB_OPTIONS,
    NODES,
    PRINT_JOBID,
    QUERY_JOB_OPTIONS,
    SUBMIT,
    TABLE_OPTIONS,
)
from ganeti.cli.output import print_objects, print_rows
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NODE, Argument

LINE_LIMIT = 1024
ACTIONS = ("on", "off", "cycle", "status")
OOB = "commands.OpOobCommand"
SHOW_MACHINES = option(
    "-M", "--show-machine-names", action="store_true", help="begin each line with the node's name"
)

OOB_TIMEOUT = option(
    "--oob-timeout", dest="timeout", type=int, default=60, metavar="SECONDS",
    help="timeout of the program in seconds (60)",
)  # fmt: skip


def add_power_commands(table: CommandTable) -> None:
    """Add the commands for out-of-band management to the table."""
    table.command(
        "power",
        Argument("action", "on, off, cycle or status"),
        NODES,
        option("--all", action="store_true", help="all nodes; the master is never switched off"),
        FORCE,
        OpOptions(OOB, without=("command", "node_names", "node_uuids")),
        *TABLE_OPTIONS,
        *JOB_OPTIONS,
    )(power)
    table.command(
        "fence-password",
        NODE,
        option("--remove", action="store_true", help="remove the stored password"),
        *JOB_OPTIONS,
    )(fence_password)
    table.command("health", NODES, OOB_TIMEOUT, *TABLE_OPTIONS, *QUERY_JOB_OPTIONS)(health)
    table.command(
        "restricted-command",
        Argument("program", "name of the command"),
        NODES,
        SHOW_MACHINES,
        option("-g", "--node-group", dest="group", metavar="GROUP", completion="group",
               help="run on all online nodes of this group"),
        OpOptions("commands.OpRestrictedCommand", without=("command", "nodes", "node_uuids")),
        SUBMIT,
        PRINT_JOBID,
        *QUERY_JOB_OPTIONS,
    )(restricted_command)  # fmt: skip


def power(args: argparse.Namespace) -> int:
    """Switch nodes on or off by their out-of-band program, or show their power status.

    The program is a node parameter (`oob_program`) of the cluster, a group or a node, and runs on the master. A
    node can be switched off only if it is marked offline.
    """
    if args.action not in ACTIONS:
        raise InputError(f"must be one of {', '.join(ACTIONS)}", "action")
    is_status = args.action == "status"
    if bool(args.names) == args.all and not (is_status and not args.names):
        raise InputError("pass the names of nodes, or --all", "names")
    op = args.op.opcode(args, command=f"power-{args.action}", node_names=args.names)
    rows = _rows(run_opcode(op, args))
    shown = [
        [name, _power(status, data) if is_status else _done(status)] for name, status, data in rows
    ]
    if args.is_json:
        print_objects(("node", "status"), shown)
    else:
        print_rows(["Node", "Status"], shown, args)
    return EXIT_FAILURE if any(status == 2 for _name, status, _data in rows) else 0  # noqa: PLR2004 - no data


def health(args: argparse.Namespace) -> int:
    """Show the hardware health that the out-of-band programs of nodes report."""
    from ganeti.model.opcodes.commands import OpOobCommand

    op = OpOobCommand(command="health", node_names=args.names, timeout=args.timeout)
    rows = _rows(run_opcode(op, args))
    shown = [[name, item, state] for name, _status, data in rows for item, state in data or ()]
    shown += [[name, "", "unavailable"] for name, status, _data in rows if status]
    if args.is_json:
        print_objects(("node", "item", "status"), sorted(shown))
    else:
        print_rows(["Node", "Item", "Status"], sorted(shown), args)
    return EXIT_FAILURE if any(status == 2 for _name, status, _data in rows) else 0  # noqa: PLR2004 - no data


def fence_password(args: argparse.Namespace) -> int:
    """Store the password that a node's fence agent uses to switch the node off.

    On a terminal the command asks for the password twice; otherwise it reads one line from standard input. The
    password is never an argument, because other users could see it. No job, log or answer of the cluster contains
    it. The master candidates have it in their state. To test it, run gnt-node fence-test.
    """
    from ganeti.model.opcodes.fencing import OpNodeFencePassword

    password = "" if args.remove else _new_password(args.node_name)
    say(run_opcode(OpNodeFencePassword(node_name=args.node_name, password=password), args))
    return 0


def _new_password(node: str) -> str:
    if not sys.stdin.isatty():
        password = sys.stdin.readline(LINE_LIMIT).rstrip("\r\n")
    else:
        password = getpass(f"Password for the fence agent of {node}: ")
        if password != getpass("The same password again: "):
            raise InputError("the two passwords differ", "password")
    if not password:
        raise InputError("the password is empty; to remove the stored one: --remove", "password")
    return password


def restricted_command(args: argparse.Namespace) -> int:
    """Run a program from the nodes' `/etc/ganeti/restricted-commands`, without arguments.

    The directory and its programs must belong to root, and only root may have write permission. If a node does
    not have the program, it answers after ten seconds without a reason; its log has the reason.
    """
    if bool(args.names) == bool(args.group):
        raise InputError("pass the names of nodes, or --node-group", "names")
    with LuxiClient() as client:
        names = args.names or online_nodes_of(client, args.group)
        op = args.op.opcode(args, command=args.program, nodes=names)
        results = run_job(client, op, args)
    for name, (is_good, output) in zip(names, results, strict=False):
        head = f"{name}: " if args.show_machine_names else ""
        if not args.show_machine_names and len(results) > 1:
            say(f"--- {name} ---")
        for line in (output or "").splitlines():
            say(f"{head}{line}")
        if not is_good:
            say(f"{head}the command failed on {name}")
    return 0 if all(is_good for is_good, _output in results) else EXIT_FAILURE


def online_nodes_of(client: LuxiClient, group: str, among: Sequence[str] = ()) -> list[str]:
    """Return the online nodes of a group, or the given ones of them; PrereqError if the list is empty."""
    rows = client.rows("Nodes", list(among), ["name", "group", "offline"])
    found = [name for name, of, offline in rows if of == group and not offline]
    if not found:
        raise PrereqError(
            f"group {group} has no online nodes of this selection", ErrorCode.UNKNOWN_ENTITY
        )
    return found


def _rows(result: list[Any]) -> list[tuple[str, int, Any]]:
    return [(name, status, data) for (_, name), (status, data) in result]


def _power(status: int, data: Any) -> str:
    if status:
        return "unknown" if status == 2 else "unavailable"  # noqa: PLR2004 - no data
    return "powered" if data["powered"] else "unpowered"


def _done(status: int) -> str:
    return {0: "done", 2: "failed"}.get(status, "unavailable")
