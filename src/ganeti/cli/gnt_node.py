"""gnt-node: the hosts of the cluster."""

import argparse
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.confirmation import confirm
from ganeti.cli.declared import program
from ganeti.cli.errors import NodeSetupError
from ganeti.cli.jobs import run_given, run_job
from ganeti.cli.mirrors import add_node_commands as add_mirror_commands
from ganeti.cli.node_moves import add_move_commands
from ganeti.cli.node_power import add_power_commands
from ganeti.cli.node_storage import add_storage_commands
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FIELD_NAMES, JOB_OPTIONS, JSON, LIST_OPTIONS, NODES, TABLE_OPTIONS
from ganeti.cli.output import (
    or_default,
    print_fields,
    print_list,
    print_objects,
    print_tree,
    wanted_filter,
)
from ganeti.cli.tags import add_tag_commands
from ganeti.clients import fields
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NODE

if TYPE_CHECKING:  # the join needs asyncio and cryptography, lists do not
    from ganeti.bootstrap.join import JoinedNode

table = program("gnt-node", "Adds, lists and removes the hosts of the cluster.")

DEFAULT_FIELDS = (
    "name", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt",
)  # fmt: skip
TOKEN_LIMIT = 4096
STANDARD_INPUT = "-"


@table.command("list", NODES, *LIST_OPTIONS)
def list_nodes(args: argparse.Namespace) -> int:
    """List nodes with their memory, disk space and number of instances.

    GNT_NODE_LIST in the environment replaces the default fields.
    """
    filter_ = wanted_filter("name", args.names, args.filter)
    return print_list(args, "node", DEFAULT_FIELDS, variable="GNT_NODE_LIST", filter_=filter_)


@table.command("list-fields", FIELD_NAMES, *TABLE_OPTIONS)
def list_fields(args: argparse.Namespace) -> int:
    """List the fields that list can show."""
    return print_fields(args, "node")


_INFO_FIELDS = (
    "name", "pip", "sip", "pinst_list", "sinst_list", "master_candidate", "drained", "offline",
    "master_capable", "vm_capable", "powered", "ndparams", "custom_ndparams", "group", "uuid",
)  # fmt: skip


@table.command("info", NODES, JSON, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show nodes with their parameters and instances; all without names."""
    with LuxiClient() as client:
        rows = client.rows("Nodes", args.names, fields.NODE if args.is_json else _INFO_FIELDS)
    if args.is_json:
        return print_objects(fields.NODE, rows)
    print_tree([_described(dict(zip(_INFO_FIELDS, row, strict=True))) for row in rows])
    return 0


def _described(node: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        ("Node name", node["name"]),
        ("primary ip", node["pip"]),
        ("secondary ip", node["sip"]),
        ("master candidate", node["master_candidate"]),
        ("drained", node["drained"]),
        ("offline", node["offline"]),
        *([] if node["powered"] is None else [("powered", node["powered"])]),
        ("master_capable", node["master_capable"]),
        ("vm_capable", node["vm_capable"]),
        ("group", node["group"]),
        ("UUID", node["uuid"]),
        ("primary for instances", node["pinst_list"]),
        ("secondary for instances", node["sinst_list"]),
        ("node parameters", or_default(node["custom_ndparams"], node["ndparams"])),
    ]


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
    option("--no-node-setup", action="store_true", help="accepted: nothing is set up by ssh"),
    *JOB_OPTIONS,
)  # fmt: skip
def add(args: argparse.Namespace) -> int:
    """Take a host into the cluster.

    With a token, the host is called back and nothing else is needed: run ganeti-node-join on it,
    and give the token here by --token-file or --token-stdin (never as an argument: others could
    see it). Without one, ganeti-node-join is run on the host by ssh.
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
    """Refuse before the host is touched what the job would refuse after."""
    rows = client.rows("Nodes", [], ["name", "uuid"])
    known: dict[str, str] = dict(rows)
    if args.node_name in known and not args.readd:
        raise PrereqError(
            f"node {args.node_name} is in the cluster already (--readd takes it in again)",
            ErrorCode.EXISTS,
        )
    if args.readd and args.node_name not in known:
        raise PrereqError(
            f"there is no node {args.node_name} that could be added again",
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
    """The join token, if there is one; InputError if its file could be read by others."""
    if args.token_stdin or args.token_file == STANDARD_INPUT:
        text = sys.stdin.readline(TOKEN_LIMIT)
    elif args.token_file:
        text = _private_text(Path(args.token_file))
    else:
        return None
    if not text.strip():
        raise InputError("no token was given", "token")
    return text.strip()


def _private_text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as err:
        raise InputError(f"cannot be read: {err.strerror}", str(path)) from err
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            raise InputError("can be read by others; set its mode to 0600", str(path))
        return file.read(TOKEN_LIMIT)


@table.command("modify", NODE, OpOptions("node.OpNodeSetParams"), *JOB_OPTIONS)
def modify(args: argparse.Namespace) -> int:
    """Change a node's role and parameters.

    A node that was offline is taken back only when it answers, belongs to this cluster, has taken the
    cluster's latest facts, and runs no instance that belongs elsewhere.
    """
    if args.offline and not args.force:
        _confirm_offline(args)
    changes = run_given(args)
    say(f"Modified node {args.node_name}")
    for name, value in changes or ():
        say(f" - {name} -> {value}")
    return 0


def _confirm_offline(args: argparse.Namespace) -> None:
    """Ask back before a node is marked offline where instances run; scripts are only warned, by the job."""
    if not sys.stdin.isatty():
        return
    with LuxiClient() as client:
        [[node]] = client.rows("Nodes", [args.node_name], ["name"])
        found = client.query("instance", ["name", "oper_state"], ["=", "pnode", node])
    running = [name for (_, name), (_, state) in found["data"] if state]
    if running:
        confirm(
            f"{len(running)} instances run on {node} ({', '.join(running)}). The mark stops none of them; they"
            " must not be failed over while the host is on. Mark the node offline?",
            is_sure=False,
        )


add_move_commands(table)
add_storage_commands(table)
add_power_commands(table)
add_mirror_commands(table)
add_tag_commands(table, "node")


def main() -> NoReturn:
    """The program."""
    table.main()
