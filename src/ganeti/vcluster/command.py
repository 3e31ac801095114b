"""The command `ganeti-vcluster`: a cluster of real daemons on one machine."""

import argparse
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from ganeti.base.errors import GanetiError, InputError
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS
from ganeti.base.terminal import Parser, say
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.vcluster.layout import DOMAIN, VirtualCluster, load, plan

DEFAULT_DIRECTORY = Path("/var/tmp/ganeti-vcluster")  # noqa: S108 - made 0700, and long names do not fit

announce = partial(say, flush=True)
"""Tells what happens, at once also where the output is a file."""


def parser() -> argparse.ArgumentParser:
    """The command line of `ganeti-vcluster`."""
    top = Parser(
        prog="ganeti-vcluster",
        description="Make a cluster of real daemons on this machine, each node in a directory.",
    )
    top.add_argument(
        "--dir",
        type=Path,
        default=DEFAULT_DIRECTORY,
        help="where the cluster lives (default: %(default)s)",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="make the cluster"))
    commands.add_parser("down", help="end exactly what belongs to the cluster, and remove it")
    commands.add_parser("status", help="show the daemons of the cluster")
    shell = commands.add_parser("shell", help="open a shell, or run a command, on a node")
    shell.add_argument(
        "--node", default="1", metavar="NODE", help="its number or name (default: 1, the first)"
    )
    shell.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="COMMAND", help="a command instead of a shell"
    )
    return top


def _add_up(make: argparse.ArgumentParser) -> None:
    make.add_argument("--nodes", type=int, default=3, help="how many nodes (default: %(default)s)")
    make.add_argument(
        "--hypervisor", choices=sorted(HYPERVISORS), default="fake", help="default: %(default)s"
    )
    make.add_argument(
        "--state",
        choices=tuple(STATE_KINDS),
        default=EMBEDDED,
        help="what keeps the state, as --state of 'gnt-cluster init' (default: %(default)s)",
    )
    make.add_argument(
        "--init-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="one more for 'gnt-cluster init', as --init-option=--state-urls=https://...; may be repeated",
    )
    make.add_argument(
        "--netns",
        action="store_true",
        help="give each node a network namespace (root) in place of a loopback address",
    )
    make.add_argument(
        "--domain",
        default=DOMAIN,
        help="of all names; clusters that are to know each other need different ones (default: %(default)s)",
    )
    make.add_argument(
        "--monitoring", action="store_true", help="start the monitoring daemon of each node too"
    )
    make.add_argument("--confd", action="store_true", help="candidates run the query daemon too")
    make.add_argument(
        "--rapi", action="store_true", help="start the REST server beside the master too"
    )
    make.add_argument(
        "--guest",
        type=Path,
        metavar="DIR",
        help="offer the test guest that guest/build.py made in DIR as OS 'tiny'",
    )
    make.add_argument(
        "--storage-vms",
        type=int,
        default=0,
        metavar="N",
        help="make N nodes more that are virtual machines with LVM and DRBD (root; needs --guest)",
    )


def main() -> int:
    """Run the command; 0 if it did what was asked."""
    args = parser().parse_args()
    directory = args.dir.absolute()
    stop_on_sigterm()
    try:
        if args.command == "up":
            return _up(args, directory)
        if args.command == "down":
            return _down(directory)
        cluster = load(directory)
        if cluster is None:
            say(f"ganeti-vcluster: there is no cluster in {directory}", file=sys.stderr)
            return 1
        return _status(cluster) if args.command == "status" else _shell(args, cluster)
    except (GanetiError, OSError) as err:
        say(f"ganeti-vcluster: {err}", file=sys.stderr)
        return getattr(err, "exit_code", 1)


def stop_on_sigterm() -> None:
    """Let a request to end take back what is half done, as Ctrl-C does."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)


def _up(args: argparse.Namespace, directory: Path) -> int:
    from ganeti.vcluster import lifecycle

    guest = args.guest.absolute() if args.guest else None
    cluster, is_new = lifecycle.ensure(
        directory,
        lambda: plan(
            directory,
            args.nodes,
            hypervisor=args.hypervisor,
            netns=args.netns,
            guest=guest,
            monitoring=args.monitoring,
            confd=args.confd,
            rest=args.rapi,
            state=args.state,
            init_options=tuple(args.init_option),
            machines=args.storage_vms,
            domain=args.domain,
        ),
        announce,
    )
    if not is_new:
        announce(f"There is a cluster in {directory} already; it was not changed.")
        return _status(cluster)
    announce(f"\nThe cluster is up. Go on with: ganeti-vcluster --dir {directory} shell")
    return 0


def _down(directory: Path) -> int:
    from ganeti.vcluster import lifecycle

    if not lifecycle.end(directory, announce):
        announce(f"There is no cluster in {directory}.")
    return 0


def _status(cluster: VirtualCluster) -> int:
    from ganeti.vcluster import lifecycle

    rows = lifecycle.status(cluster)
    for node, daemon, process in rows:
        announce(f"{node:30} {daemon:16} {process}")
    return 0 if all(process != lifecycle.DOWN for _node, _daemon, process in rows) else 1


def _shell(args: argparse.Namespace, cluster: VirtualCluster) -> int:
    """Become the shell, or the command; returns only by InputError, if there is no such node or program."""
    node = cluster.node_called(args.node)
    if node.tap:
        from ganeti.vcluster.node_machines import run_in_machine

        return run_in_machine(cluster, node, args.words)
    environment = {**os.environ, **node.environment(), "PS1": f"{node.name.partition('.')[0]}# "}
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    words = words or ["/bin/sh", "-i"]
    if shutil.which(words[0], path=environment.get("PATH")) is None:
        raise InputError(
            f"program {words[0]} does not exist on {node.name};"
            " choose another node by its number or name: shell --node 2 gnt-node list"
        )
    argv = node.words(words)
    return os.execvpe(argv[0], argv, environment)  # noqa: S606 - it is the person's own shell


if __name__ == "__main__":
    sys.exit(main())
