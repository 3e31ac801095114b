"""`ganeti-masterd`: runs the cluster's jobs, keeps its state, answers its clients."""

import argparse
import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ganeti.base.errors import GanetiError
from ganeti.base.logs import LEVELS, logging_to
from ganeti.base.paths import Paths
from ganeti.base.permissions import begin_as
from ganeti.base.pidfile import holding_pid_file, pid_file
from ganeti.base.users import MASTERD
from ganeti.daemons.member import Member

PROGRAM = "ganeti-masterd"
EXIT_NOT_A_NODE = 5
EXIT_CONFIRMATION = 13

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve as master or follower until SIGTERM or SIGINT, or until the disk fails."""
    args = _parser().parse_args(argv)
    paths = Paths.from_environment()
    if args.no_voting and not args.is_sure:
        sys.stderr.write(
            f"{PROGRAM}: --no-voting may lose what only other nodes have; give --yes-do-it as well"
            " if it is meant\n"
        )
        return EXIT_CONFIRMATION
    if not (paths.state.exists() or paths.authority_key.exists()):
        sys.stderr.write(
            f"{PROGRAM}: this host holds no cluster's state ({paths.state} does not exist):"
            " make a cluster with 'gnt-cluster init', or ask the master node\n"
        )
        return EXIT_NOT_A_NODE
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    try:
        with ExitStack() as opened:
            paths.run.mkdir(parents=True, exist_ok=True)
            ready = opened.enter_context(holding_pid_file(pid_file(paths.run, PROGRAM), PROGRAM))
            users = begin_as(paths, MASTERD)
            level = "debug" if args.debug else args.log_level
            opened.enter_context(
                logging_to(
                    paths.log / "master-daemon.log", PROGRAM, level=level, stderr=args.foreground
                )
            )
            group = users.admin if users else None
            return asyncio.run(_serve(paths, ready, force=args.no_voting, luxi_group=group))
    except (GanetiError, OSError) as err:
        sys.stderr.write(f"{PROGRAM}: {err}\n")
        return getattr(err, "exit_code", 1)


async def _serve(
    paths: Paths, ready: Callable[[], None], *, force: bool, luxi_group: int | None
) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()

    def end(why: str) -> None:
        if not ended.done():
            ended.set_result(why)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, "")
    member = Member(paths, end, force=force, luxi_group=luxi_group)
    await member.start()
    try:
        ready()
        why = await ended
    finally:
        await member.close()
    if why:
        _log.error("this daemon steps down: %s", why)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="The master daemon of a cluster.")
    parser.add_argument("-f", "--foreground", action="store_true", help="log to standard error too")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what is logged")
    parser.add_argument(
        "--no-voting", action="store_true", help="become the master by force, without a majority"
    )
    parser.add_argument(
        "--yes-do-it", dest="is_sure", action="store_true", help="confirm --no-voting"
    )
    parser.add_argument("-d", "--debug", action="store_true", help="log everything")
    return parser


if __name__ == "__main__":
    sys.exit(main())
