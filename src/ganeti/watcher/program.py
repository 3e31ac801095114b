"""`ganeti-watcher`: one run, started every five minutes by a timer, on every node."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Sequence

from ganeti import ssconf
from ganeti.base.certificate_facts import node_identity
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import GanetiError, NotMaster
from ganeti.base.files import exclusive_file
from ganeti.base.logs import logging_to
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.base.run_parts import run_directory
from ganeti.base.terminal import Parser, say
from ganeti.bootstrap.daemons import Daemons
from ganeti.clients.luxi import socket_path
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.hypervisor.registry import hypervisors
from ganeti.watcher.daemons import restart_daemons
from ganeti.watcher.health import candidates_of, end_guests, is_to_be_empty
from ganeti.watcher.master import MasterRound, RoundOptions

EXIT_NOT_A_NODE = 5
HOOKS_LIMIT_S = 240.0
WAIT_S = 120.0
"""Time that a run waits for its checks of disks, if it does."""
LOG_NAME = "watcher.log"

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run once; return 0 also where there is nothing to do."""
    args = parser().parse_args(argv)
    paths = Paths.from_environment()
    if not paths.node_certificate.exists():
        say("ganeti-watcher: this host is not in a cluster", file=sys.stderr)
        return EXIT_NOT_A_NODE
    try:
        paths.run.mkdir(parents=True, exist_ok=True)
        with exclusive_file(paths.run / "watcher.lock") as is_ours:
            if not is_ours:
                return 0  # an earlier run has not finished
            level = "debug" if args.debug else "info"
            with logging_to(paths.log / LOG_NAME, "ganeti-watcher", level=level, stderr=args.debug):
                return _run(args, paths)
    except (GanetiError, OSError) as err:
        say(f"ganeti-watcher: {err}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, with Ganeti's names."""
    made = Parser(
        prog="ganeti-watcher",
        description="Check that all required instances and daemons run, and repair problems.",
    )
    made.add_argument("-d", "--debug", action="store_true", help="log everything, and print it")
    made.add_argument(
        "-A",
        "--job-age",
        type=_age,
        default=6 * 3600,
        metavar="AGE",
        help="archive jobs that ended so long ago, for example 6h, 30m, 2d or all (default: 6h)",
    )
    made.add_argument(
        "--ignore-pause", action="store_true", help="run even if the watcher is paused"
    )
    made.add_argument(
        "--wait-children",
        action=argparse.BooleanOptionalAction,
        default=False,
        help=f"wait up to {WAIT_S:g} s for checks of disks, and repair problems at once",
    )
    made.add_argument(
        "--no-verify-disks",
        dest="verify_disks",
        action="store_false",
        help="do not check the disks of mirrored instances",
    )
    made.add_argument(
        "--no-strict", action="store_true", help="ignored; kept for compatibility with Ganeti 3"
    )
    return made


def _age(text: str) -> int:
    if text == "all":
        return -1
    factor = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}.get(text[-1:], 0)
    number = text[:-1] if factor else text
    if not (number.isascii() and number.isdecimal() and len(number) <= 9):  # noqa: PLR2004 - 31 years
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is not an age, for example 6h, 30m, 2d or all"
        )
    return int(number) * (factor or 1)


def is_paused(paths: Paths, clock: Clock) -> bool:
    """Return whether the watcher is paused (`gnt-cluster watcher pause`).

    A file without a time means forever.
    """
    try:
        text = paths.watcher_pause.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return False
    try:
        return float(text) > clock.time()
    except ValueError:
        return True


def _run(args: argparse.Namespace, paths: Paths) -> int:
    if not args.ignore_pause and is_paused(paths, SystemClock()):
        log.info("the watcher is paused")
        return 0
    options = RoundOptions(
        job_age_s=args.job_age,
        verify_disks=args.verify_disks,
        wait_s=WAIT_S if args.wait_children else 0.0,
    )
    return asyncio.run(_look_after_all(paths, options))


async def _look_after_all(paths: Paths, options: RoundOptions) -> int:
    await _look_after_node(paths)
    if not _is_master(paths):
        return 0
    try:
        client = await AsyncLuxiClient.connect(socket_path(paths))
        try:
            await MasterRound(client, _tell, options).run()
        finally:
            await client.close()
    except NotMaster:
        return 0  # no repairs while mastership changes (F6)
    except (GanetiError, OSError) as err:
        log.warning("cannot query the master: %s", err)
        say(f"ganeti-watcher: {err}", file=sys.stderr)
        return 1
    return 0


async def _look_after_node(paths: Paths) -> None:
    """Do the part of every node: its daemons, its health, the administrator's programs."""
    for text in await restart_daemons(paths, Daemons(paths)):
        _tell(text)
    if await is_to_be_empty(paths, candidates_of(paths)):
        await end_guests(hypervisors(paths, run), _tell)
    await run_hooks(paths, _tell)


async def run_hooks(paths: Paths, tell: Callable[[str], None]) -> None:
    """Run the programs of `/etc/ganeti/hooks/watcher`; a failed one changes nothing."""
    environment = {"GANETI_DATA_DIR": str(paths.data)}
    try:
        ended = await run_directory(paths.hooks / "watcher", environment, HOOKS_LIMIT_S)
    except GanetiError as err:
        tell(err.message)
        return
    for one in ended:
        if one.problem:
            tell(f"hook {one.name} failed ({one.problem}): {one.output}")


def _is_master(paths: Paths) -> bool:
    try:
        _uuid, name = node_identity(paths.node_certificate.read_bytes())
        return ssconf.SimpleStore(paths).GetMasterNode() == name
    except (GanetiError, OSError):
        return False


def _tell(text: str) -> None:
    """Write a message to the log and to the output."""
    log.info("%s", text)
    say(text)


if __name__ == "__main__":
    sys.exit(main())
