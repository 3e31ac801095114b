"""The commands of gnt-cluster that work on the hosts themselves: command, copyfile, epo."""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import DEBUG, EXIT_FAILURE, REASON, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_job, run_jobs
from ganeti.cli.node_power import OOB_TIMEOUT, online_nodes_of
from ganeti.cli.options import FORCE, NODES, PRIORITY, VERBOSE
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

if TYPE_CHECKING:
    from ganeti.model.opcodes import OpCode

JOB = (PRIORITY, REASON, VERBOSE, DEBUG)
CHOOSE = (
    option("-n", "--node", dest="nodes", action="append", default=[], metavar="NODE",
           help="run only on this node; may be repeated", completion="node"),
    option("-g", "--node-group", dest="group", metavar="GROUP", help="run only on nodes of this group"),
)  # fmt: skip
ON_LIMIT_S = 600.0
ON_INTERVAL_S = 5.0
PAUSE_S = 3600.0


def add_node_commands(table: CommandTable) -> None:
    """Add the commands for hosts to the table."""
    table.command(
        "command",
        Argument("words", "shell command line", nargs="+"),
        *CHOOSE,
        option("-M", "--show-machine-names", action="store_true",
               help="begin each line with the node's name"),
        option("--failure-only", action="store_true", help="show only nodes where the command failed"),
        *JOB,
    )(command)  # fmt: skip
    table.command("copyfile", Argument("path", "absolute path"), *CHOOSE, *JOB)(copyfile)
    table.command(
        "epo",
        NODES,
        option("--on", action="store_true", help="switch the nodes on again"),
        option("--all", action="store_true", help="all nodes except the master"),
        option("--groups", action="store_true", help="arguments are node groups"),
        option("--show-all", action="store_true", help="ignored; kept for compatibility with Ganeti 3"),
        option("--shutdown-timeout", type=int, default=120, metavar="SECONDS",
               help="time for guests to shut down, in seconds (120)"),
        option("--power-delay", type=float, default=2.0, metavar="SECONDS",
               help="time between two nodes that are switched on, in seconds (2)"),
        OOB_TIMEOUT,
        FORCE,
        *JOB,
    )(epo)  # fmt: skip


def command(args: argparse.Namespace) -> int:
    """Run a shell command line as root on nodes that allow it.

    A node allows shell commands if the file `/etc/ganeti/shell-commands-allowed` exists and belongs to root. The
    command line is stored with the job, so it must not contain secrets. Users of the REST interface cannot run
    shell commands.
    """
    from ganeti.model.opcodes.commands import OpClusterCommand

    with LuxiClient() as client:
        names = _chosen(client, args)
        op = OpClusterCommand(command=" ".join(args.words), node_names=names)
        results = run_job(client, op, args)
    for name, status, output in results:
        if status == 0 and args.failure_only:
            continue
        if not args.show_machine_names:
            say(f"------------------------------------------------\nnode: {name}")
        head = f"{name}: " if args.show_machine_names else ""
        for line in output.splitlines():
            say(f"{head}{line}")
        if not args.show_machine_names or status:
            say(f"{head}return code = {status}")
    return EXIT_FAILURE if any(status for _name, status, _output in results) else 0


def copyfile(args: argparse.Namespace) -> int:
    """Copy a file of the master to the same path on other nodes.

    A node accepts files in /etc/ganeti/shared and the files that its `/etc/ganeti/allowed-uploads` lists. To keep a
    file on all nodes, list it in the master's `distributed-files` instead.
    """
    from ganeti.model.opcodes.commands import OpClusterCopyFile

    with LuxiClient() as client:
        op = OpClusterCopyFile(path=args.path, node_names=_chosen(client, args))
        results = run_job(client, op, args)
    for name, why in results:
        if why:
            say(f"{args.path} was not copied to {name}: {why}")
    return EXIT_FAILURE if any(why for _name, why in results) else 0


def _chosen(client: LuxiClient, args: argparse.Namespace) -> list[str]:
    """Return the named nodes or the nodes of a group; default: all online nodes."""
    if not args.group:
        return list(args.nodes)
    return online_nodes_of(client, args.group, args.nodes)


def epo(args: argparse.Namespace) -> int:
    """Shut down guests and switch nodes off; --on switches them on and starts the guests.

    To switch nodes off, the command shuts their guests down, marks the nodes offline, and runs their
    out-of-band programs or fence agents. The desired state of the guests stays "up". To switch nodes on, the command
    runs them again, marks each node online as soon as it answers, and starts the guests. The command stops
    at the first failure and can be repeated. It never switches the master off.
    """
    with LuxiClient() as client:
        nodes = _epo_nodes(client, args)
        if not nodes:
            say("Nothing to do.")
            return 0
        names = ", ".join(node["name"] for node in nodes)
        confirm(f"Switch {'on' if args.on else 'off'} {names}?", is_sure=args.force)
        args.force = True
        return _switch_on(client, nodes, args) if args.on else _switch_off(client, nodes, args)


_FIELDS = ("name", "master", "group", "offline", "powered", "pinst_list")


def _epo_nodes(client: LuxiClient, args: argparse.Namespace) -> list[dict[str, Any]]:
    if bool(args.names) == args.all or (args.groups and args.all):
        raise InputError(
            "pass the names of nodes, the names of groups with --groups, or --all", "names"
        )
    wanted = [] if args.groups or args.all else args.names
    rows = client.rows("Nodes", wanted, _FIELDS)
    nodes = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
    if args.groups:
        nodes = [node for node in nodes if node["group"] in args.names]
    elif not args.all and any(node["master"] for node in nodes):
        raise PrereqError(
            "this command cannot switch the master off; make another node the master first, or switch this node off by hand last",
            ErrorCode.WRONG_INPUT,
        )
    return [node for node in nodes if not node["master"]]


def _switch_off(
    client: LuxiClient, nodes: Sequence[dict[str, Any]], args: argparse.Namespace
) -> int:
    from ganeti.model.opcodes.instance import OpInstanceShutdown
    from ganeti.model.opcodes.node import OpNodeSetParams

    was_paused = client.config_values("watcher_pause")[0]
    client.call(
        "SetWatcherPause", time.time() + PAUSE_S
    )  # The watcher would start the guests again.
    try:
        guests = _instances(client, [node for node in nodes if not node["offline"]])
        stops: list[tuple[str, OpCode]] = [
            (
                name,
                OpInstanceShutdown(
                    instance_name=name, no_remember=True, timeout=args.shutdown_timeout
                ),
            )
            for name in guests
        ]
        marks: list[tuple[str, OpCode]] = [
            (node["name"], OpNodeSetParams(node_name=node["name"], offline=True, force=True))
            for node in nodes
            if not node["offline"]
        ]
        if not _all_done(client, stops, args, "Instance") or not _all_done(
            client, marks, args, "Node"
        ):
            return EXIT_FAILURE
        return _power(client, "power-off", nodes, args)
    finally:
        client.call("SetWatcherPause", was_paused)


def _switch_on(
    client: LuxiClient, nodes: Sequence[dict[str, Any]], args: argparse.Namespace
) -> int:
    from ganeti.model.opcodes.instance import OpInstanceStartup

    if _power(client, "power-on", nodes, args):
        return EXIT_FAILURE
    offline = [node["name"] for node in nodes if node["offline"]]
    if [name for name in offline if not _taken_back(client, name, args)]:
        return EXIT_FAILURE
    starts: list[tuple[str, OpCode]] = [
        (name, OpInstanceStartup(instance_name=name, if_wanted=True))
        for name in _instances(client, nodes)
    ]
    return 0 if _all_done(client, starts, args, "Instance") else EXIT_FAILURE


def _instances(client: LuxiClient, nodes: Sequence[dict[str, Any]]) -> list[str]:
    """Return the instances of these nodes whose desired state is up."""
    names = sorted({name for node in nodes for name in node["pinst_list"]})
    rows = client.rows("Instances", names, ["name", "admin_state"]) if names else []
    return [name for name, wanted in rows if wanted == "up"]


def _all_done(
    client: LuxiClient,
    jobs: "list[tuple[str, OpCode]]",
    args: argparse.Namespace,
    heading: str,
) -> bool:
    return not jobs or run_jobs(client, jobs, args, heading=heading)


def _power(
    client: LuxiClient, action: str, nodes: Sequence[dict[str, Any]], args: argparse.Namespace
) -> int:
    """Switch nodes that have a device; name the others, which the administrator must switch."""
    from ganeti.model.opcodes.commands import OpOobCommand

    able = [node["name"] for node in nodes if node["powered"] is not None]
    for node in nodes:
        if node["powered"] is None:
            say(
                f"{node['name']} has neither a fence agent nor an out-of-band program; switch it by"
                " hand"
            )
    if not able:
        return 0
    op = OpOobCommand(
        command=action, node_names=able, power_delay=args.power_delay, timeout=args.timeout
    )
    failed = [name for (_, name), (status, _) in run_job(client, op, args) if status]
    for name in failed:
        say(f"{name} was not switched")
    return EXIT_FAILURE if failed else 0


def _taken_back(
    client: LuxiClient,
    name: str,
    args: argparse.Namespace,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until a node answers and is no longer marked offline."""
    from ganeti.model.opcodes.node import OpNodeSetParams

    end = time.monotonic() + ON_LIMIT_S
    say(f"Waiting for {name} ...", flush=True)
    while True:
        try:
            run_job(client, OpNodeSetParams(node_name=name, offline=False), args)
        except GanetiError as err:
            if time.monotonic() > end:
                say(f"{name} is still offline: {err.message}")
                return False
            sleep(ON_INTERVAL_S)
        else:
            return True
