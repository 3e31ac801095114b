"""`ganeti-noded`: the only program of a node that changes the host.

It runs as root on every node. Instances, transfers and scripts outlive it.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence

from ganeti.base import tls
from ganeti.base.clock import SystemClock
from ganeti.base.errors import HostError
from ganeti.base.paths import NODED_PORT, Paths
from ganeti.daemons.program import EXIT_NOT_A_NODE, DaemonProgram, Ending
from ganeti.node.application import NodeApplication
from ganeti.node.identity import finish_switch
from ganeti.node.memory import lock_memory
from ganeti.node.tasks import systemd_scope
from ganeti.rpc.server import Gate, RpcServer, serving

PROGRAM = DaemonProgram("ganeti-noded", "The node daemon of a cluster's node.", "node-daemon.log")
UNDER_SYSTEMD = "INVOCATION_ID"
"""systemd sets this variable for its services."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or until the node has left its cluster."""
    args = _parser().parse_args(argv)
    paths = Paths.from_environment()
    if not paths.node_certificate.exists():
        return PROGRAM.refuse(
            (
                f"this host is not in a cluster ({paths.node_certificate} does not exist): "
                "create one with 'gnt-cluster init', or join one with 'ganeti-node-join'"
            ),
            EXIT_NOT_A_NODE,
        )
    return PROGRAM.run(args, paths, lambda ready, ending: _serve(args, paths, ready, ending))


def _stay_in_memory() -> None:
    try:
        lock_memory()
    except HostError as err:
        log.warning("%s", err.message)


async def _serve(
    args: argparse.Namespace, paths: Paths, ready: Callable[[], None], ending: Ending
) -> None:
    if args.mlock:
        _stay_in_memory()
    finish_switch(paths)
    context = tls.server_context(
        paths.node_certificate, paths.node_key, paths.authority_certificate
    )
    scope = systemd_scope() if UNDER_SYSTEMD in os.environ else ()
    node = NodeApplication(paths, SystemClock(), left_cluster=ending.end, scope=scope)
    node.recovery.begin()
    node.tasks.forget_old()
    gate = Gate(node.allowed, node.register.check_epoch, node.checks)
    server = RpcServer(node.handlers, gate, node.running, hooks=node.hooks.report)
    try:
        async with serving(server, context, args.bind_address, args.port) as port:
            ready()
            background = [
                asyncio.create_task(node.look_after_guests(), name="supervise guests"),
                asyncio.create_task(node.measure(), name="measure"),
                asyncio.create_task(node.keep_memory_free(), name="keep memory free"),
            ]
            log.info(
                "serving at %s port %d (process %d)", args.bind_address or "*", port, os.getpid()
            )
            try:
                await ending.wait()
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
            log.info("ending")
    except OSError as err:
        where = f"{args.bind_address or '*'} port {args.port}"
        raise HostError(f"cannot listen at {where}: {err.strerror or err}") from err
    finally:
        await node.close()


def _parser() -> argparse.ArgumentParser:
    parser = PROGRAM.listening_parser(NODED_PORT)
    parser.add_argument(
        "--no-mlock",
        dest="mlock",
        action="store_false",
        help="do not lock the daemon in memory (the lock keeps it working without its disk)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
