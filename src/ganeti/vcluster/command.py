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
from ganeti.model.outofband import OobCommand
from ganeti.vcluster.layout import DOMAIN, VirtualCluster, load, plan

DEFAULT_DIRECTORY = Path("/var/tmp/ganeti-vcluster")  # noqa: S108 - made 0700, and long names do not fit

POWER_COMMANDS = tuple(one.value for one in OobCommand if one is not OobCommand.HEALTH)

announce = partial(say, flush=True)
"""Print progress, unbuffered even if the output is a file."""


def parser() -> argparse.ArgumentParser:
    """Return the command line parser of `ganeti-vcluster`."""
    top = Parser(
        prog="ganeti-vcluster",
        description="Make a cluster of real daemons on this machine, each node in a directory.",
    )
    top.add_argument(
        "--dir",
        type=Path,
        default=DEFAULT_DIRECTORY,
        help="directory of the cluster (default: %(default)s)",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="create the cluster"))
    commands.add_parser("down", help="end the processes of the cluster and remove its files")
    commands.add_parser("status", help="show the daemons of the cluster")
    shell = commands.add_parser("shell", help="open a shell, or run a command, on a node")
    shell.add_argument(
        "--node",
        default="1",
        metavar="NODE",
        help="number or name of the node (default: 1, the first)",
    )
    shell.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="command to run instead of a shell",
    )
    power = commands.add_parser("power", help="switch a node off, as if it lost power, or on")
    power.add_argument(
        "power", choices=POWER_COMMANDS, metavar="ACTION", help=", ".join(POWER_COMMANDS)
    )
    power.add_argument("node", metavar="NODE", help="number or name of the node")
    return top


def _add_up(make: argparse.ArgumentParser) -> None:
    make.add_argument("--nodes", type=int, default=3, help="number of nodes (default: %(default)s)")
    make.add_argument(
        "--hypervisor", choices=sorted(HYPERVISORS), default="fake", help="default: %(default)s"
    )
    make.add_argument(
        "--state",
        choices=tuple(STATE_KINDS),
        default=EMBEDDED,
        help="state back end; see --state of 'gnt-cluster init' (default: %(default)s)",
    )
    make.add_argument(
        "--init-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="another option for 'gnt-cluster init', such as --init-option=--state-urls=URL; may be repeated",
    )
    make.add_argument(
        "--netns",
        action="store_true",
        help="give each node a network namespace instead of a loopback address; needs root",
    )
    make.add_argument(
        "--domain",
        default=DOMAIN,
        help="domain of all names; must differ between clusters that contact each other (default: %(default)s)",
    )
    make.add_argument(
        "--monitoring", action="store_true", help="also start the monitoring daemon on each node"
    )
    make.add_argument(
        "--confd", action="store_true", help="also start the query daemon on candidates"
    )
    make.add_argument(
        "--rapi", action="store_true", help="also start the REST server on the master"
    )
    make.add_argument(
        "--guest",
        type=Path,
        metavar="DIR",
        help="offer the test guest that guest/build.py made in DIR as OS 'tiny'",
    )
    make.add_argument(
        "--no-image",
        action="store_true",
        help="do not import the image 'tiny' for gnt-instance add --image",
    )
    make.add_argument(
        "--storage-vms",
        type=int,
        default=0,
        metavar="N",
        help="create N additional nodes as virtual machines with LVM and DRBD; needs root and --guest",
    )


def main() -> int:
    """Run the command and return its exit status."""
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
            say(f"ganeti-vcluster: no cluster exists in {directory}", file=sys.stderr)
            return 1
        if args.command == "power":
            return _power(args, cluster)
        return _status(cluster) if args.command == "status" else _shell(args, cluster)
    except (GanetiError, OSError) as err:
        say(f"ganeti-vcluster: {err}", file=sys.stderr)
        return getattr(err, "exit_code", 1)


def stop_on_sigterm() -> None:
    """Let SIGTERM roll back an unfinished command, as Ctrl-C does."""

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
        None if args.no_image else _with_image,
    )
    if not is_new:
        announce(f"A cluster already exists in {directory}; it was not changed.")
        return _status(cluster)
    announce(f"\nThe cluster is up. Continue with: ganeti-vcluster --dir {directory} shell")
    return 0


def _with_image(cluster: VirtualCluster) -> None:
    from ganeti.vcluster import lifecycle
    from ganeti.vcluster.tiny_image import import_tiny

    import_tiny(cluster, lifecycle.Commands(cluster, announce))


def _down(directory: Path) -> int:
    from ganeti.vcluster import lifecycle

    if not lifecycle.end(directory, announce):
        announce(f"No cluster exists in {directory}.")
    return 0


def _status(cluster: VirtualCluster) -> int:
    from ganeti.vcluster import lifecycle

    rows = lifecycle.status(cluster)
    for node, daemon, process in rows:
        announce(f"{node:30} {daemon:16} {process}")
    return 0 if all(process != lifecycle.DOWN for _node, _daemon, process in rows) else 1


def _power(args: argparse.Namespace, cluster: VirtualCluster) -> int:
    """Print the answer of an out-of-band program; progress goes to the standard error output."""
    from ganeti.vcluster.power import switch

    progress = partial(say, file=sys.stderr)
    say(switch(cluster, cluster.node_called(args.node), OobCommand(args.power), progress), end="")
    return 0


def _shell(args: argparse.Namespace, cluster: VirtualCluster) -> int:
    """Replace this process by the shell or the command; raise InputError for an unknown node or program."""
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
    return os.execvpe(argv[0], argv, environment)  # noqa: S606 - the user starts their own shell


if __name__ == "__main__":
    sys.exit(main())
