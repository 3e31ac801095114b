"""`ganeti-mond`: reports the results of this node's data collectors to monitoring systems and `hbal --mond`.

It runs on every node, without the rights of root where users were set up. It reads and never
writes.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from ganeti.api.monitoring_server import MonitoringServer, serving
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.node_files import MOND_LOG
from ganeti.base.paths import MOND_PORT, Paths
from ganeti.base.users import CONFD
from ganeti.daemons.program import EXIT_NOT_A_NODE, DaemonProgram, Ending
from ganeti.model.data_collectors import CPU_LOAD, XEN_CPU_LOAD, Collecting, parse_lines
from ganeti.monitoring.collectors import Collectors, Host, keep_sampling
from ganeti.ssconf import SimpleStore

PROGRAM = DaemonProgram(
    "ganeti-mond", "The monitoring daemon of a cluster's node.", MOND_LOG, CONFD
)

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    args = PROGRAM.listening_parser(MOND_PORT).parse_args(argv)
    paths = Paths.from_environment()
    if not paths.node_certificate.exists():
        return PROGRAM.refuse(
            f"this host is not in a cluster ({paths.node_certificate} does not exist)",
            EXIT_NOT_A_NODE,
        )
    return PROGRAM.run(args, paths, lambda ready, ending: _serve(args, paths, ready, ending))


def wanted_collectors(paths: Paths) -> Mapping[str, Collecting]:
    """Return the collectors' settings from this node's last ssconf set."""
    try:
        return parse_lines(SimpleStore(paths).read("data_collectors"))
    except GanetiError:
        return parse_lines("")


async def _serve(
    args: argparse.Namespace, paths: Paths, ready: Callable[[], None], ending: Ending
) -> None:
    def wanted() -> Mapping[str, Collecting]:
        return wanted_collectors(paths)

    collectors = Collectors(Host(paths), wanted)
    sampling = [
        asyncio.create_task(keep_sampling(collectors, wanted, name), name=f"sample {name}")
        for name in (CPU_LOAD, XEN_CPU_LOAD)
    ]
    where = f"{args.bind_address or '*'} port {args.port}"
    try:
        async with serving(MonitoringServer(collectors), args.bind_address, args.port):
            ready()
            log.info("serving at %s (process %d)", where, os.getpid())
            await ending.wait()
            log.info("ending")
    except OSError as err:
        raise HostError(f"cannot listen at {where}: {err.strerror or err}") from err
    finally:
        for task in sampling:
            task.cancel()
        await asyncio.gather(*sampling, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
