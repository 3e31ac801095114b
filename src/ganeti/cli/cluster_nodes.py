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
           help="only this node; may be repeated", completion="node"),
    option("-g", "--node-group", dest="group", metavar="GROUP", help="only nodes of this group"),
)  # fmt: skip
ON_LIMIT_S = 600.0
ON_INTERVAL_S = 5.0
PAUSE_S = 3600.0


def add_node_commands(table: CommandTable) -> None:
    """Give gnt-cluster its commands for hosts."""
    table.command(
        "command",
        Argument("words", "a line of shell", nargs="+"),
        *CHOOSE,
        option("-M", "--show-machine-names", action="store_true",
               help="begin each line with the node's name"),
        option("--failure-only", action="store_true", help="show only nodes where it failed"),
        *JOB,
    )(command)  # fmt: skip
    table.command("copyfile", Argument("path", "absolute path"), *CHOOSE, *JOB)(copyfile)
    table.command(
        "epo",
        NODES,
        option("--on", action="store_true", help="switch the nodes on again"),
        option("--all", action="store_true", help="all nodes but the master"),
        option("--groups", action="store_true", help="arguments are node groups"),
        option("--show-all", action="store_true", help="ignored; kept for compatibility with Ganeti 3"),
        option("--shutdown-timeout", type=int, default=120, metavar="SECONDS",
               help="the time that guests have to shut down, in seconds (120)"),
        option("--power-delay", type=float, default=2.0, metavar="SECONDS",
               help="how long to wait between two nodes that are switched on (2)"),
        OOB_TIMEOUT,
        FORCE,
        *JOB,
    )(epo)  # fmt: skip


def command(args: argparse.Namespace) -> int:
    """Run a line of shell as root on nodes that allow it.

    A node allows it where an empty file `/etc/ganeti/shell-commands-allowed` belongs to root. The line is kept with the job: put no
    secret into it. Only for the master's own users, never for users of the REST interface.
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
    """Copy a file of the master to the same place on other nodes.

    A node accepts files in /etc/ganeti/shared, and those that its `/etc/ganeti/allowed-uploads` lists. To have a file on all nodes always, list it in the master's
    `distributed-files` instead.
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
    """The nodes that were named, or all of a group; none: all that are online."""
    if not args.group:
        return list(args.nodes)
    return online_nodes_of(client, args.group, args.nodes)


def epo(args: argparse.Namespace) -> int:
    """Switch nodes off, in the order in which things depend on each other: guests, then nodes; --on switches them on again.

    Off: the guests of the nodes are shut down (and stay wanted), the nodes are marked offline, then their out-of-band programs switch
    them off. On: the nodes are switched on, taken back as soon as they answer, and their guests are started. What fails ends the way
    there; the command may be repeated. The master is never among the nodes.
    """
    with LuxiClient() as client:
        nodes = _epo_nodes(client, args)
        if not nodes:
            say("There is nothing to do.")
            return 0
        names = ", ".join(node["name"] for node in nodes)
        confirm(f"Switch {'on' if args.on else 'off'} {names}?", is_sure=args.force)
        args.force = True
        return _switch_on(client, nodes, args) if args.on else _switch_off(client, nodes, args)


_FIELDS = ("name", "master", "group", "offline", "powered", "pinst_list")


def _epo_nodes(client: LuxiClient, args: argparse.Namespace) -> list[dict[str, Any]]:
    if bool(args.names) == args.all or (args.groups and args.all):
        raise InputError("name nodes, or groups with --groups, or give --all", "names")
    wanted = [] if args.groups or args.all else args.names
    rows = client.rows("Nodes", wanted, _FIELDS)
    nodes = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
    if args.groups:
        nodes = [node for node in nodes if node["group"] in args.names]
    elif not args.all and any(node["master"] for node in nodes):
        raise PrereqError(
            "the master cannot be switched off from here: let another node be the master first, or switch it off"
            " by hand as the last",
            ErrorCode.WRONG_INPUT,
        )
    return [node for node in nodes if not node["master"]]


def _switch_off(
    client: LuxiClient, nodes: Sequence[dict[str, Any]], args: argparse.Namespace
) -> int:
    from ganeti.model.opcodes.instance import OpInstanceShutdown
    from ganeti.model.opcodes.node import OpNodeSetParams

    was_paused = client.config_values("watcher_pause")[0]
    client.call("SetWatcherPause", time.time() + PAUSE_S)  # it would start what is being stopped
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
    """The instances of these nodes that are to run."""
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
    """Switch those that have an out-of-band program; the others are an administrator's to switch."""
    from ganeti.model.opcodes.commands import OpOobCommand

    able = [node["name"] for node in nodes if node["powered"] is not None]
    for node in nodes:
        if node["powered"] is None:
            say(f"{node['name']} has no out-of-band program: switch it by hand")
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
                say(f"{name} is not taken back: {err.message}")
                return False
            sleep(ON_INTERVAL_S)
        else:
            return True
