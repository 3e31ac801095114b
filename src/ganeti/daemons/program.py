"""The common frame of all daemons: options, pid file, log, signals and event loop."""

import argparse
import asyncio
import asyncio.sslproto
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType

from ganeti.base import tls
from ganeti.base.addresses import address_of_environment
from ganeti.base.errors import GanetiError
from ganeti.base.logs import LEVELS, logging_to
from ganeti.base.node_files import ROOT
from ganeti.base.paths import Paths
from ganeti.base.permissions import begin_as
from ganeti.base.pidfile import HeldPidFile, holding_pid_file, pid_file
from ganeti.base.systemd import notify
from ganeti.base.terminal import Parser, say
from ganeti.daemons.watchdog import StallGuard

EXIT_NOT_A_NODE = 5
TLS_BUFFER_BYTES = 64 * 1024
"""Of each connection by TLS: asyncio keeps 256 KiB for each, though a record of TLS has at most 16."""

log = logging.getLogger(__name__)


class Ending:
    """The end of a daemon: requested by a signal, or forced by a fault."""

    def __init__(self, told: Callable[[], None]) -> None:
        """`told` is called once, as soon as the daemon is to end."""
        self._told = told
        self.on_reload: list[Callable[[], object]] = []
        """Extra callbacks for SIGHUP; each is short and raises at most GanetiError."""
        self._why: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(self, why: str = "") -> None:
        """End now; the first reason counts, and no reason means a regular end."""
        if not self._why.done():
            self._told()
            self._why.set_result(why)

    async def wait(self) -> str:
        """Wait until the daemon is to end; return the reason of a failure."""
        return await self._why


Serve = Callable[[Callable[[], None], Ending], Awaitable[None]]
"""The function that serves until the end.

It calls its first argument once it serves, and returns when all is closed.
"""


@dataclass(frozen=True)
class DaemonProgram:
    """A daemon's name, `--help` summary, log name and user."""

    name: str
    purpose: str
    log_name: str
    role: str = ROOT
    """The user that the daemon becomes where users were set up (`ganeti.base.users`)."""

    def parser(self) -> argparse.ArgumentParser:
        """Return a parser with the options of every daemon."""
        parser = Parser(prog=self.name, description=self.purpose)
        parser.add_argument(
            "-f", "--foreground", action="store_true", help="also log to standard error"
        )
        parser.add_argument(
            "--log-level", choices=LEVELS, default="info", help="lowest level that is logged"
        )
        parser.add_argument("-d", "--debug", action="store_true", help="log everything")
        return parser

    def listening_parser(self, port: int) -> argparse.ArgumentParser:
        """Return a parser with the options of a daemon that listens, by default at `port`."""
        parser = self.parser()
        parser.add_argument(
            "-b",
            "--bind-address",
            default=address_of_environment(),
            metavar="ADDRESS",
            help="address to listen at (default: all addresses)",
        )
        parser.add_argument(
            "-p", "--port", type=int, default=port, help="port to listen at (default: %(default)s)"
        )
        return parser

    def refuse(self, why: str, code: int) -> int:
        """Print why the daemon cannot start, and return the exit code."""
        say(f"{self.name}: {why}", file=sys.stderr)
        return code

    def run(self, args: argparse.Namespace, paths: Paths, serve: Serve) -> int:
        """Serve until SIGTERM, SIGINT or a fault; return the exit code, 1 after a fault.

        SIGHUP reopens the log and reloads what can be reloaded. Files that only root may read must
        be read before.
        """
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, _no_end)
        try:
            with ExitStack() as opened:
                paths.run.mkdir(parents=True, exist_ok=True)
                path = pid_file(paths.run, self.name)
                held = opened.enter_context(holding_pid_file(path, self.name))
                begin_as(paths, self.role)
                level = "debug" if args.debug else args.log_level
                log = paths.log / self.log_name
                opened.enter_context(
                    logging_to(log, self.name, level=level, stderr=args.foreground)
                )
                guard = StallGuard(log)
                opened.enter_context(guard.armed())
                return asyncio.run(_until_the_end(serve, held, guard))
        except (GanetiError, OSError) as err:
            return self.refuse(str(err), getattr(err, "exit_code", 1))


def _no_end(_number: int, _frame: FrameType | None) -> None:
    """Ignore signals that would end the process; programs that it starts get the default again."""


def _reload(guard: StallGuard, ending: Ending) -> None:
    """Handle SIGHUP; each record opens the log by its name anyway."""
    log.info("signal SIGHUP: reopening the log and reloading certificates and keys")
    guard.reopen()
    tls.reload_changed()
    for reload in ending.on_reload:
        try:
            reload()
        except (GanetiError, OSError) as err:
            log.warning("keeping the previous files: %s", err)


async def _until_the_end(serve: Serve, held: HeldPidFile, guard: StallGuard) -> int:
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    guard.watch()
    ending = Ending(held.ends)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.end)
    loop.add_signal_handler(signal.SIGHUP, _reload, guard, ending)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, log.info, "ignoring signal %s", number.name)

    def serves() -> None:
        held.serves()
        notify("READY=1")

    try:
        await serve(serves, ending)
    finally:
        notify("STOPPING=1")
    return 1 if await ending.wait() else 0
