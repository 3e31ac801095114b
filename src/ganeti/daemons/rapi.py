"""`ganeti-rapi`: the cluster's REST interface (RAPI version 2), next to the master.

As root it reads the key, or creates one, and drops its rights before it listens (S225). The master
starts the server. It ends when this node is no longer the master.
"""

import argparse
import asyncio
import logging
import os
import resource
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import ganeti.web
from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.http_server import Limits, serving
from ganeti.base.node_files import AUDIT_LOG, REST_LOG
from ganeti.base.paths import RAPI_PORT, Paths
from ganeti.base.users import RAPI
from ganeti.bootstrap.renew_files import ensure_rest_pair
from ganeti.daemons.program import EXIT_NOT_A_NODE, DaemonProgram, Ending
from ganeti.images.uploads import UploadDirectory
from ganeti.web.application import Application
from ganeti.web.audit import Audit
from ganeti.web.bridge import BRIDGES_OF_USER
from ganeti.web.events import EventHub
from ganeti.web.logins import Logins
from ganeti.web.master import MasterConnections
from ganeti.web.openid_provider import OpenId
from ganeti.web.resources.every import OPERATIONS
from ganeti.web.scope import allowed
from ganeti.web.server import rest_server, tls_context
from ganeti.web.services import Services
from ganeti.web.sessions import IDLE_S, Sessions
from ganeti.web.ui_files import UiFiles
from ganeti.web.uploads import Uploads
from ganeti.web.users import Users

PROGRAM = DaemonProgram("ganeti-rapi", "The REST interface of a cluster.", REST_LOG, RAPI)
LOOK_INTERVAL_S = 1.0
UPLOADS_INTERVAL_S = 60.0
UI_DIRECTORY = Path(ganeti.web.__file__).parent / "ui"
WITHOUT_MASTER_S = 30.0
"""Time without a master on this node after which this server ends."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, or until another node is the master."""
    args = _parser().parse_args(argv)
    paths = Paths.from_environment()
    if not paths.authority_key.parent.exists() or not paths.node_certificate.exists():
        return PROGRAM.refuse(
            f"this host is not in a cluster ({paths.node_certificate} does not exist)",
            EXIT_NOT_A_NODE,
        )
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    try:
        ensure_rest_pair(paths, time.time())
        context = tls_context(paths.rapi_certificate)
    except (GanetiError, OSError) as err:
        return PROGRAM.refuse(str(err), 1)
    directory = _directory_of_uploads(paths)
    return PROGRAM.run(
        args,
        paths,
        lambda ready, ending: _serve(args, paths, context, ready, ending, directory=directory),
    )


def _directory_of_uploads(paths: Paths) -> UploadDirectory | HostError:
    """Open the directory as root; a node without it serves everything else."""
    try:
        return UploadDirectory.open(paths.image_uploads)
    except HostError as err:
        return err


async def _serve(
    args: argparse.Namespace,
    paths: Paths,
    context: ssl.SSLContext,
    ready: Callable[[], None],
    ending: Ending,
    *,
    directory: UploadDirectory | HostError,
) -> None:
    users = Users(paths.rapi_users)
    clock = SystemClock()
    openid = OpenId(paths.rapi_openid, clock)
    for file in (users, openid):
        file.refresh()
        ending.on_reload.append(file.refresh)
    master = MasterConnections(paths.luxi_socket)
    hub = EventHub(master)
    idle_s = args.session_idle * 60.0
    sessions = Sessions(master, users, openid, clock, lambda: hub.contacts_lost, idle_s=idle_s)
    logins = Logins(users, openid, clock)
    may = partial(allowed, OPERATIONS)
    audit, ui = Audit(paths.log / AUDIT_LOG), UiFiles(UI_DIRECTORY)
    uploads = Uploads(directory, master, clock)
    services = Services(master, logins, sessions, openid, ui, audit, may, uploads, hub, clock)
    application = Application(OPERATIONS, services)
    services.consoles_of_user = args.max_consoles_per_user
    limits = Limits(args.max_connections, args.max_connections_per_address)
    server = rest_server(application, limits)
    services.connections = lambda: server.connections
    where = f"{args.bind_address or '*'} port {args.port}"
    tasks = [
        asyncio.create_task(hub.run(), name="events"),
        asyncio.create_task(
            _look_after((users, openid), hub, sessions, paths.rapi_certificate, ending),
            name="look after",
        ),
        asyncio.create_task(_look_after_uploads(uploads), name="uploads"),
    ]
    try:
        async with serving(server, args.bind_address, args.port, context):
            ready()
            log.info("serving at %s (process %d)", where, os.getpid())
            await ending.wait()
            log.info("ending")
            await hub.close()
    except OSError as err:
        raise HostError(f"cannot listen at {where}: {err.strerror or err}") from err
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await services.simulations.close()
        await master.close()


async def _look_after(
    files: Sequence[Users | OpenId],
    hub: EventHub,
    sessions: Sessions,
    certificate: Path,
    ending: Ending,
) -> None:
    """Watch for new users, ended sessions, a new certificate and a change of the master."""
    served = _version(certificate)
    while True:
        await asyncio.sleep(LOOK_INTERVAL_S)
        for file in files:
            file.refresh()
        await sessions.look()
        if _version(certificate) != served:
            log.info(
                "the certificate has changed; the master restarts this server with the new one"
            )
            ending.end()
        if hub.silent_s() > WITHOUT_MASTER_S:
            log.info("this node is no longer the master")
            ending.end()


async def _look_after_uploads(uploads: Uploads) -> None:
    while True:
        await uploads.look()
        await asyncio.sleep(UPLOADS_INTERVAL_S)


def _version(path: Path) -> tuple[int, int]:
    """Return a value that changes with each version of a file; the file need not be readable."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_ino


def _parser() -> argparse.ArgumentParser:
    parser = PROGRAM.listening_parser(RAPI_PORT)
    parser.add_argument(
        "--max-connections",
        type=int,
        default=Limits.connections,
        metavar="N",
        help="maximum number of clients at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--max-connections-per-address",
        type=int,
        default=Limits.connections_of_address,
        metavar="N",
        help="maximum number of clients from one address (default: %(default)s)",
    )
    parser.add_argument(
        "--max-consoles-per-user",
        type=int,
        default=BRIDGES_OF_USER,
        metavar="N",
        help="maximum number of open consoles of one user (default: %(default)s)",
    )
    parser.add_argument(
        "--session-idle",
        type=int,
        default=int(IDLE_S // 60),
        metavar="MINUTES",
        help="end a browser's session after this time without a request (default: %(default)s)",
    )
    parser.add_argument(
        "--require-authentication",
        action="store_true",
        help="ignored; kept for compatibility with Ganeti 3 (every request needs a name and a password)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
