"""gnt-node: the hosts of the cluster."""

import argparse
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.confirmation import confirm
from ganeti.cli.declared import program
from ganeti.cli.errors import NodeSetupError
from ganeti.cli.jobs import run_given, run_job
from ganeti.cli.mirrors import add_node_commands as add_mirror_commands
from ganeti.cli.node_maintenance import add_maintenance_commands
from ganeti.cli.node_moves import add_move_commands
from ganeti.cli.node_power import add_power_commands
from ganeti.cli.node_storage import add_storage_commands
from ganeti.cli.objects import ObjectKind, add_info, add_list, shown
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS, NODES
from ganeti.cli.output import or_default
from ganeti.cli.surveys import add_impact_command
from ganeti.cli.tags import add_tag_commands
from ganeti.cli.top import add_node_top
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NODE

if TYPE_CHECKING:  # Only the join needs asyncio and cryptography; lists start faster without them.
    from ganeti.bootstrap.join import JoinedNode

table = program("gnt-node", "Add, list, change and remove the hosts of the cluster.")

TOKEN_LIMIT = 4096
STANDARD_INPUT = "-"


NODE_KIND = ObjectKind(
    query="node",
    rows="Nodes",
    names=NODES,
    listed=("name", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt"),
    variable="GNT_NODE_LIST",
    list_help="List nodes with their memory, disk space and number of instances.",
    info_help="Show nodes with their parameters and instances; default: all nodes.",
    info=(
        shown("Node name", "name"),
        shown("primary ip", "pip"),
        shown("secondary ip", "sip"),
        shown("master candidate", "master_candidate"),
        shown("drained", "drained"),
        shown("offline", "offline"),
        shown("powered", "powered", optional=True),
        shown("maintenance", "maintenance", value=lambda is_on: is_on or None, optional=True),
        shown("master_capable", "master_capable"),
        shown("vm_capable", "vm_capable"),
        shown("group", "group"),
        shown("UUID", "uuid"),
        shown("primary for instances", "pinst_list"),
        shown("secondary for instances", "sinst_list"),
        shown("node parameters", "custom_ndparams", "ndparams", value=or_default),
    ),
)
add_list(table, NODE_KIND)
add_info(table, NODE_KIND)


@table.command(
    "add",
    NODE,
    option("--token-file", metavar="FILE", completion="file",
           help="file (mode 0600) with the token that ganeti-node-join printed on the new node;"
           " '-' is standard input"),
    option("--token-stdin", dest="token_stdin", action="store_true",
           help="read that token from standard input"),
    OpOptions("node.OpNodeAdd"),
    option("--ssh-port", type=int, default=22, metavar="PORT", help="ssh port of the new node (22)"),
    option("--no-ssh-key-check", dest="check_host_key", action="store_false",
           help="do not check the new node's ssh host key"),
    option("--no-node-setup", action="store_true", help="ignored; kept for compatibility with Ganeti 3"),
    *JOB_OPTIONS,
)  # fmt: skip
def add(args: argparse.Namespace) -> int:
    """Add a host to the cluster.

    By default the command runs ganeti-node-join on the host by ssh. To add a host without ssh, run
    ganeti-node-join on the host yourself. Then pass its token with --token-file or --token-stdin, and the
    master connects to the host. A token cannot be an argument, because other users could see it.
    """
    import asyncio

    with LuxiClient() as client:
        _check_new(client, args)
        token = _token(args)
        try:
            joined = asyncio.run(_join(args, token))
        except (InputError, KeyboardInterrupt):
            raise
        except GanetiError as err:
            raise NodeSetupError(f"{args.node_name} was not added: {err.message}") from err
        op = args.op.opcode(
            args,
            node_name=joined.name,
            primary_ip=joined.primary_ip,
            port=joined.port,
            certificate=joined.fingerprint,
            node_uuid=joined.uuid,
        )
        run_job(client, op, args)
    return 0


def _check_new(client: LuxiClient, args: argparse.Namespace) -> None:
    """Make the checks of the job before the host is changed."""
    rows = client.rows("Nodes", [], ["name", "uuid"])
    known: dict[str, str] = dict(rows)
    if args.node_name in known and not args.readd:
        raise PrereqError(
            f"node {args.node_name} is already in the cluster; pass --readd to add it again",
            ErrorCode.EXISTS,
        )
    if args.readd and args.node_name not in known:
        raise PrereqError(
            f"node {args.node_name} is not in the cluster; omit --readd to add it",
            ErrorCode.UNKNOWN_ENTITY,
        )
    args.known_uuid = known.get(args.node_name)


async def _join(args: argparse.Namespace, token: str | None) -> "JoinedNode":
    from ganeti.bootstrap.join import join, ssh_token

    paths = Paths.from_environment()
    if token is not None:
        return await join(
            token, paths=paths, expected_name=args.node_name, node_uuid=args.known_uuid
        )
    words = ["--reset"] if args.readd else []
    async with ssh_token(
        args.node_name, port=args.ssh_port, check_host_key=args.check_host_key, arguments=words
    ) as given:
        return await join(
            given, paths=paths, expected_name=args.node_name, node_uuid=args.known_uuid
        )


def _token(args: argparse.Namespace) -> str | None:
    """Return the join token, or None without an option; InputError if other users can read the file."""
    if args.token_stdin or args.token_file == STANDARD_INPUT:
        text = sys.stdin.readline(TOKEN_LIMIT)
    elif args.token_file:
        text = _private_text(Path(args.token_file))
    else:
        return None
    if not text.strip():
        raise InputError("the token is empty", "token")
    return text.strip()


def _private_text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as err:
        raise InputError(f"cannot be read: {err.strerror}", str(path)) from err
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            raise InputError("can be read by other users; set its mode to 0600", str(path))
        return file.read(TOKEN_LIMIT)


@table.command("modify", NODE, OpOptions("node.OpNodeSetParams"), *JOB_OPTIONS)
def modify(args: argparse.Namespace) -> int:
    """Change a node's role and parameters.

    An offline node becomes online only if it answers, belongs to this cluster, has accepted the cluster's
    latest facts, and runs no instance that belongs on another node.

    With --node-parameters memory_goal=MIB (also of a group or the cluster) the node keeps that much memory
    free: it takes memory from its guests, down to their minmem and to what they use, and gives it back.
    """
    if args.offline and not args.force:
        _confirm_offline(args)
    changes = run_given(args)
    say(f"Modified node {args.node_name}")
    for name, value in changes or ():
        say(f" - {name} -> {value}")
    return 0


def _confirm_offline(args: argparse.Namespace) -> None:
    """Ask for confirmation before a node with running instances is marked offline; scripts get a warning of the job."""
    if not sys.stdin.isatty():
        return
    with LuxiClient() as client:
        [[node]] = client.rows("Nodes", [args.node_name], ["name"])
        found = client.query("instance", ["name", "oper_state"], ["=", "pnode", node])
    running = [name for (_, name), (_, state) in found["data"] if state]
    if running:
        confirm(
            f"{len(running)} instances run on {node} ({', '.join(running)}). They keep running and must not be"
            " failed over while the host is on. Mark the node offline?",
            is_sure=False,
        )


add_maintenance_commands(table)
add_impact_command(table)
add_node_top(table)
add_move_commands(table)
add_storage_commands(table)
add_power_commands(table)
add_mirror_commands(table)
add_tag_commands(table, "node", NODE)


def main() -> NoReturn:
    """Run the program."""
    table.main()
