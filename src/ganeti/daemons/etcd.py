"""`ganeti-etcd`: runs this candidate's server of the etcd cluster that holds the state, and restarts it."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from ganeti.base.clock import SystemClock
from ganeti.base.errors import ConfigurationError, HostError
from ganeti.base.paths import Paths
from ganeti.base.permissions import make_log
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.base.state_kinds import ETCD_SERVER
from ganeti.base.users import MASTERD, ServiceUsers
from ganeti.daemons.program import EXIT_NOT_A_NODE, DaemonProgram, Ending
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.etcd.server import command, ensure_certificate
from ganeti.store.etcd.settings import (
    CLIENT_PORT,
    ServerSettings,
    has_data,
    note_begun,
    server_settings,
)

PROGRAM = DaemonProgram(
    ETCD_SERVER.daemon, "Run and supervise a candidate's etcd server.", ETCD_SERVER.logs[0], MASTERD
)
AGAIN_S = (0.5, 1.0, 2.0, 5.0)
"""Pauses before the restarts of a server that ends shortly after its start."""
SOON_S = 30.0
END_S = 10.0
LISTENS_S = 20.0
LOOK_AT_CERTIFICATE_S = 3600.0

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until SIGTERM or SIGINT."""
    parser = PROGRAM.parser()
    parser.add_argument(
        "--force-new-cluster",
        action="store_true",
        help="forget all other members; use it after the loss of a majority, on the most advanced member",
    )
    args = parser.parse_args(argv)
    paths = Paths.from_environment()
    settings = server_settings(paths)
    if settings is None:
        return PROGRAM.refuse(
            f"this node runs no etcd server ({EtcdFiles(paths).settings} does not exist)",
            EXIT_NOT_A_NODE,
        )
    if os.geteuid() == 0 and ServiceUsers.of_node(paths):
        for name in ETCD_SERVER.logs:
            make_log(paths.log / name)

    async def serve(ready: Callable[[], None], ending: Ending) -> None:
        server = Server(paths, settings.address, alone=args.force_new_cluster)
        running = asyncio.create_task(server.run(), name="etcd")
        try:
            await server.listens()
            ready()
            await ending.wait()
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await server.close()

    return PROGRAM.run(args, paths, serve)


class Server:
    """One server, restarted whenever it ends."""

    def __init__(self, paths: Paths, address: str, *, alone: bool = False) -> None:
        """`alone` makes the server start a new cluster with its existing data."""
        self._paths, self._address, self._alone = paths, address, alone
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Restart the server forever; a full disk or a lost quorum may recover."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            begun = loop.time()
            try:
                status: object = await self._once()
            except (HostError, ConfigurationError, OSError) as err:
                status = err
            failures = failures + 1 if loop.time() - begun < SOON_S else 0
            pause = AGAIN_S[min(failures, len(AGAIN_S) - 1)]
            _log.error("etcd has ended (%s); restarting it in %g s", status, pause)
            await asyncio.sleep(pause)

    async def _once(self) -> str:
        paths = self._paths
        settings = self._startable()
        now = SystemClock().time()
        if ensure_certificate(paths, settings.cluster_uuid, settings.address, now):
            _log.info("made a certificate for etcd")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        output = os.open(paths.log / ETCD_SERVER.logs[1], flags, 0o640)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command(paths, settings, alone=self._alone),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=CLEAN_ENVIRONMENT,
            )
        finally:
            os.close(output)
        self._alone = False
        _log.info("etcd runs as process %d", self._process.pid)
        status = await self._ended(self._process, settings)
        self._process = None
        return f"status {status}, see {paths.log / ETCD_SERVER.logs[1]}"

    def _startable(self) -> ServerSettings:
        """Return the settings that the master wrote last.

        HostError where a start would revoke votes already given.

        A server whose data is lost returns as another member after the master has removed the old
        one.
        """
        settings = server_settings(self._paths)
        if settings is None:
            raise HostError(f"{EtcdFiles(self._paths).settings} is gone")
        if settings.has_begun and not has_data(self._paths):
            raise HostError(
                f"the data in {EtcdFiles(self._paths).data} is lost; the master replaces this "
                "member with a new one"
            )
        note_begun(self._paths)
        return settings

    async def _ended(self, process: asyncio.subprocess.Process, settings: ServerSettings) -> int:
        """Return the server's exit status; a new certificate also ends the server."""
        while True:
            try:
                async with asyncio.timeout(LOOK_AT_CERTIFICATE_S):
                    return await process.wait()
            except TimeoutError:
                now = SystemClock().time()
                if ensure_certificate(self._paths, settings.cluster_uuid, settings.address, now):
                    _log.info("restarting etcd with its new certificate")
                    process.terminate()

    async def listens(self) -> None:
        """Return when the server accepts connections; raise HostError after the time limit."""
        loop = asyncio.get_running_loop()
        end = loop.time() + LISTENS_S
        while loop.time() < end:
            with contextlib.suppress(OSError):
                _reader, writer = await asyncio.open_connection(self._address, CLIENT_PORT)
                writer.close()
                note_begun(self._paths)
                return
            await asyncio.sleep(0.05)
        raise HostError(
            f"etcd does not listen at {self._address} port {CLIENT_PORT};"
            f" see {self._paths.log / ETCD_SERVER.logs[1]}"
        )

    async def close(self) -> None:
        """Stop the server; kill it if it does not stop in time."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            try:
                async with asyncio.timeout(END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


if __name__ == "__main__":
    sys.exit(main())
