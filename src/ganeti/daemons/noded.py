"""`ganeti-noded`: the only program of a node that touches the host.

Runs as root on every node. Instances, transfers and scripts outlive it.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ganeti.base import tls
from ganeti.base.addresses import address_of_environment
from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.logs import LEVELS, logging_to
from ganeti.base.paths import NODED_PORT, Paths
from ganeti.base.permissions import mend
from ganeti.base.pidfile import holding_pid_file, pid_file
from ganeti.base.users import ServiceUsers
from ganeti.node.application import NodeApplication
from ganeti.node.tasks import systemd_scope
from ganeti.rpc.server import Gate, RpcServer, serving

PROGRAM = "ganeti-noded"
EXIT_NOT_A_NODE = 5
UNDER_SYSTEMD = "INVOCATION_ID"
"""systemd sets this variable for its services."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or until the node has left its cluster."""
    args = _parser().parse_args(argv)
    paths = Paths.from_environment()
    if not paths.node_certificate.exists():
        sys.stderr.write(
            f"{PROGRAM}: this host is in no cluster ({paths.node_certificate} does not exist):"
            " make one with 'gnt-cluster init', or join one with 'ganeti-node-join'\n"
        )
        return EXIT_NOT_A_NODE
    try:
        with ExitStack() as opened:
            paths.run.mkdir(parents=True, exist_ok=True)
            ready = opened.enter_context(holding_pid_file(pid_file(paths.run, PROGRAM), PROGRAM))
            if users := ServiceUsers.of_node(paths):
                mend(paths, users)
            level = "debug" if args.debug else args.log_level
            logs = logging_to(
                paths.log / "node-daemon.log", PROGRAM, level=level, stderr=args.foreground
            )
            opened.enter_context(logs)
            asyncio.run(_serve(args, paths, ready))
    except (GanetiError, OSError) as err:
        sys.stderr.write(f"{PROGRAM}: {err}\n")
        return 1
    return 0


async def _serve(args: argparse.Namespace, paths: Paths, ready: Callable[[], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    context = tls.server_context(
        paths.node_certificate, paths.node_key, paths.authority_certificate
    )
    scope = systemd_scope() if UNDER_SYSTEMD in os.environ else ()
    node = NodeApplication(paths, SystemClock(), left_cluster=stop.set, scope=scope)
    node.tasks.forget_old()
    server = RpcServer(node.handlers, Gate(node.allowed, node.register.check_epoch), node.running)
    try:
        async with serving(server, context, args.bind_address, args.port) as port:
            ready()
            log.info(
                "serving at %s port %d (process %d)", args.bind_address or "*", port, os.getpid()
            )
            await stop.wait()
            log.info("ending")
    except OSError as err:
        where = f"{args.bind_address or '*'} port {args.port}"
        raise HostError(f"cannot listen at {where}: {err.strerror or err}") from err
    finally:
        await node.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="The node daemon of a cluster's node."
    )
    parser.add_argument(
        "-b",
        "--bind-address",
        default=address_of_environment(),
        metavar="ADDRESS",
        help="listen only at this address (default: at all)",
    )
    parser.add_argument("-p", "--port", type=int, default=NODED_PORT, help="port to listen at")
    parser.add_argument("-f", "--foreground", action="store_true", help="log to standard error too")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what is logged")
    parser.add_argument("-d", "--debug", action="store_true", help="log everything")
    return parser


if __name__ == "__main__":
    sys.exit(main())
