"""`ganeti-confd`: answers signed datagrams about the cluster on each master candidate.

It reads the candidate's own copy of the state and contacts no other process, so it keeps answering
while the master is down. With `confd_on_all_nodes` it also runs on other nodes and reads the copy
that the master sends there. It opens the key and the database first, then drops the rights of root.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from ganeti.api.confd_server import ConfdServer, bound_socket
from ganeti.base.errors import ConfigurationError, GanetiError, HostError
from ganeti.base.node_files import CONFD_LOG
from ganeti.base.paths import CONFD_PORT, Paths
from ganeti.base.users import CONFD, MASTERD, ServiceUsers, acting_as
from ganeti.confd.facts import ClusterCopy
from ganeti.confd.keys import confd_keys, own_key
from ganeti.confd.local_copy import LocalCopy
from ganeti.daemons.program import EXIT_NOT_A_NODE, DaemonProgram, Ending
from ganeti.protocols.confd import WINDOW_S
from ganeti.store.register import RegisterFile

PROGRAM = DaemonProgram("ganeti-confd", "The query daemon of a node.", CONFD_LOG, CONFD)

TOLERANCE_VARIABLE = "GANETI_CONFD_CLOCK_TOLERANCE"
"""The variable that sets `--clock-tolerance` where a service manager or Ganeti starts the daemon (S239)."""
MOST_TOLERANCE_S = 86_400

log = logging.getLogger(__name__)


class Copy(Protocol):
    """The source of the facts."""

    facts: ClusterCopy

    async def follow(self) -> None: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = PROGRAM.listening_parser(CONFD_PORT)
    parser.add_argument(
        "--clock-tolerance",
        type=_tolerance_s,
        default=os.environ.get(TOLERANCE_VARIABLE, str(WINDOW_S)),
        metavar="SECONDS",
        help=f"maximum clock difference of a client (default: {WINDOW_S}, or {TOLERANCE_VARIABLE})",
    )
    args = parser.parse_args(argv)
    paths = Paths.from_environment()
    is_candidate = paths.confd_key.exists() and (
        paths.state.exists() or paths.state_settings.exists()
    )
    if not is_candidate and not (paths.own_confd_key.exists() and paths.confd_copy.exists()):
        return PROGRAM.refuse(
            "this host is neither a master candidate nor has a copy to answer from", EXIT_NOT_A_NODE
        )
    keys_of = confd_keys if is_candidate else own_key
    where = f"{args.bind_address or '*'} port {args.port}"
    try:
        keys = keys_of(paths)
        with contextlib.ExitStack() as opened:
            users = ServiceUsers.of_node(paths) if is_candidate else None
            if users is not None and os.geteuid() == 0:
                # Files that SQLite creates next to the database belong to the owner of the
                # database.
                opened.enter_context(acting_as(users.accounts[MASTERD]))
            begin = _copy(paths, is_candidate=is_candidate)
        listening = bound_socket(args.bind_address, args.port)
    except OSError as err:
        return PROGRAM.refuse(f"cannot listen at {where}: {err.strerror or err}", 1)
    except GanetiError as err:
        return PROGRAM.refuse(str(err), 1)
    with listening:

        def serve(ready: Callable[[], None], ending: Ending) -> Coroutine[Any, Any, None]:
            copy = begin()
            server = ConfdServer(listening, keys, lambda: copy.facts, args.clock_tolerance)
            ending.on_reload.append(lambda: server.use_keys(keys_of(paths)))
            return _serve(copy, server, listening, ready, ending)

        return PROGRAM.run(args, paths, serve)


def _tolerance_s(text: str) -> int:
    """Return a number of seconds; argparse's error names the valid range."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MOST_TOLERANCE_S:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is not a number of seconds from 1 to {MOST_TOLERANCE_S}"
        )
    return int(text)


def _copy(paths: Paths, *, is_candidate: bool) -> Callable[[], Copy]:
    """Return the reader of the state, with everything open that needs rights; called once the loop runs."""
    if not is_candidate or not paths.state_settings.exists():
        copy = LocalCopy(paths.state if is_candidate else paths.confd_copy)
        return lambda: copy
    # The import of the client for external servers costs as much memory as the rest of the daemon.
    from ganeti.confd.state_copy import StateCopy  # noqa: PLC0415
    from ganeti.store.backends import back_end  # noqa: PLC0415
    from ganeti.store.settings import state_settings  # noqa: PLC0415

    settings = state_settings(paths)
    register = RegisterFile(paths.register).read()
    if register is None:
        raise ConfigurationError(
            f"{paths.register} does not exist: the node has not joined a cluster"
        )
    reader = back_end(settings.kind).reader(paths, settings, register.cluster_uuid)
    return lambda: StateCopy(reader)


async def _serve(
    copy: Copy,
    server: ConfdServer,
    listening: socket.socket,
    ready: Callable[[], None],
    ending: Ending,
) -> None:
    following = asyncio.create_task(_follow(copy, ending), name="follow the state")
    loop = asyncio.get_running_loop()
    loop.add_reader(listening.fileno(), server.readable, time.time)
    try:
        ready()
        log.info("serving at %s (process %d)", listening.getsockname()[:2], os.getpid())
        if why := await ending.wait():
            log.error("ending: %s", why)
        else:
            log.info("ending")
    finally:
        loop.remove_reader(listening.fileno())
        following.cancel()
        await asyncio.wait((following,))


async def _follow(copy: Copy, ending: Ending) -> None:
    try:
        await copy.follow()
    except GanetiError as err:
        ending.end(err.message)
    except Exception as err:
        log.exception("unexpected error while following the state")
        ending.end(str(HostError(f"following the state failed: {err}")))


if __name__ == "__main__":
    sys.exit(main())
