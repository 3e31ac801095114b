"""`ganeti-masterd`: runs the cluster's jobs, stores its state and answers its clients."""

import argparse
import logging
import resource
import sys
from collections.abc import Callable, Sequence

from ganeti.base.node_files import MASTER_LOG
from ganeti.base.paths import Paths
from ganeti.base.users import MASTERD, ServiceUsers
from ganeti.daemons.member import Member
from ganeti.daemons.program import EXIT_NOT_A_NODE, DaemonProgram, Ending

EXIT_CONFIRMATION = 13
PROGRAM = DaemonProgram("ganeti-masterd", "The master daemon of a cluster.", MASTER_LOG, MASTERD)

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve as master or follower until SIGTERM or SIGINT, or until the disk fails."""
    args = _parser().parse_args(argv)
    paths = Paths.from_environment()
    if args.no_voting and not args.is_sure:
        return PROGRAM.refuse(
            "--no-voting may lose changes that only other nodes hold; add --yes-do-it to confirm",
            EXIT_CONFIRMATION,
        )
    if not (paths.state.exists() or paths.authority_key.exists()):
        return PROGRAM.refuse(
            (
                f"this host holds no cluster state ({paths.state} does not exist): create a "
                "cluster with 'gnt-cluster init', or use the master node"
            ),
            EXIT_NOT_A_NODE,
        )
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))

    async def serve(ready: Callable[[], None], ending: Ending) -> None:
        users = ServiceUsers.of_node(paths)
        group = users.admin if users else None
        member = Member(paths, ending.end, force=args.no_voting, luxi_group=group)
        await member.start()
        try:
            ready()
            why = await ending.wait()
        finally:
            await member.close()
        if why:
            _log.error("stepping down: %s", why)

    return PROGRAM.run(args, paths, serve)


def _parser() -> argparse.ArgumentParser:
    parser = PROGRAM.parser()
    parser.add_argument(
        "--no-voting", action="store_true", help="become the master by force, without a majority"
    )
    parser.add_argument(
        "--yes-do-it", dest="is_sure", action="store_true", help="confirm --no-voting"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
