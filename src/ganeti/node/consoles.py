"""Bridges between guests' consoles and other hosts: TLS with the node's certificate, for one connection each.

The master asks for an endpoint and tells the REST server or a command its port and secret. An endpoint accepts the first connection that
begins with the secret, and nothing after it. The guest never waits long for a slow user: QEMU waits once a socket is
full, so a connection that takes no bytes for some seconds is cut.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ganeti.base.errors import HostError, HypervisorError
from ganeti.hypervisor.abilities import ConsoleAddress
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.consoles import CONSOLE_OPEN, ConsoleArgs, ConsoleEndpoint, ConsoleKind

OPEN_S = 15.0
"""Time for the caller to connect."""
SECRET_S = 5.0
"""Time for a caller's handshake, and for its secret."""
STALLED_S: Mapping[ConsoleKind, float] = {"serial": 5.0, "vnc": 30.0, "log": 30.0}
ENDPOINTS_LIMIT = 256
CALLERS_LIMIT = 8
"""Callers of one endpoint whose secret has not arrived."""
_CHUNK = 64 * 1024
_BUFFER = 256 * 1024

log = logging.getLogger(__name__)


class Consoles:
    """The endpoints of this node."""

    def __init__(
        self, hypervisors: Mapping[str, Hypervisor], context: Callable[[], ssl.SSLContext]
    ) -> None:
        """`context` returns TLS with the node's present certificate."""
        self._hypervisors = hypervisors
        self._context = context
        self._endpoints: set[_Endpoint] = set()

    def handlers(self) -> Handlers:
        return {CONSOLE_OPEN.name: self.open}

    async def open(self, args: ConsoleArgs, _call: Call) -> ConsoleEndpoint:
        """Open an endpoint to the console of a guest that runs here; HypervisorError, HostError."""
        consoles = options_of(self._hypervisors, args.instance.hypervisor).consoles
        if consoles is None:
            raise HypervisorError(
                f"instance {args.instance.name}: the hypervisor {args.instance.hypervisor} has no consoles for other hosts"
            )
        if len(self._endpoints) >= ENDPOINTS_LIMIT:
            raise HostError(f"this node has {ENDPOINTS_LIMIT} open consoles already; close some")
        address = consoles.console_address(args.instance, args.kind)
        endpoint = _Endpoint(args, address, self)
        port = await endpoint.listen(args.address, self._context())
        self._endpoints.add(endpoint)
        return ConsoleEndpoint(port=port, secret=endpoint.secret)

    async def take_over(self, endpoint: "_Endpoint") -> None:
        """End another connection to the same serial console."""
        args = endpoint.args
        for other in list(self._endpoints):
            is_same = (other.args.instance.uuid, other.args.kind) == (args.instance.uuid, args.kind)
            if other is not endpoint and other.is_taken and is_same and args.kind == "serial":
                await other.close()

    def forget(self, endpoint: "_Endpoint") -> None:
        """Handle the end of an endpoint."""
        self._endpoints.discard(endpoint)

    @property
    def count(self) -> int:
        """Return the number of endpoints, connected or not."""
        return len(self._endpoints)

    async def close(self) -> None:
        """End all connections."""
        for endpoint in list(self._endpoints):
            await endpoint.close()


class _Endpoint:
    """One console, for one connection."""

    def __init__(self, args: ConsoleArgs, address: ConsoleAddress, owner: Consoles) -> None:
        self.args = args
        self.secret = secrets.token_urlsafe(32)
        self.is_taken = False
        self._address = address
        self._owner = owner
        self._server: asyncio.Server | None = None
        self._end: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._callers = 0

    async def listen(self, address: str, context: ssl.SSLContext) -> int:
        """Open the port and return it; HostError."""
        try:
            self._server = await asyncio.start_server(
                self._met, address, 0, ssl=context, ssl_handshake_timeout=SECRET_S, limit=_BUFFER,
                ssl_shutdown_timeout=SECRET_S,
            )  # fmt: skip
        except OSError as err:
            raise HostError(
                f"cannot open a port at {address} for a console: {err.strerror}"
            ) from err
        self._end = asyncio.get_running_loop().call_later(OPEN_S, self._late)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _late(self) -> None:
        if not self.is_taken:
            self._shut()
            self._owner.forget(self)

    def _shut(self) -> None:
        """Accept no further caller."""
        if self._end is not None:
            self._end.cancel()
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """End the connection, and return once it has ended."""
        self._shut()
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._owner.forget(self)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self.is_taken or self._callers >= CALLERS_LIMIT:
            writer.transport.abort()
            return
        self._tasks.add(task)
        self._callers += 1
        try:
            is_right = await self._is_right(reader)
            self._callers -= 1
            if is_right and not self.is_taken:
                self.is_taken = True
                self._shut()
                await self._bridge(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as err:
            log.debug("console of %s: %s", self.args.instance.name, err)
        except asyncio.CancelledError:
            log.debug("console of %s: ended", self.args.instance.name)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)
            if self.is_taken and not self._tasks:
                self._owner.forget(self)

    async def _is_right(self, reader: asyncio.StreamReader) -> bool:
        async with asyncio.timeout(SECRET_S):
            given = await reader.readexactly(len(self.secret))
        return hmac.compare_digest(given, self.secret.encode())

    async def _bridge(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy in both directions until one side hangs up or takes nothing for too long."""
        await self._owner.take_over(self)
        kind = self.args.kind
        if kind == "log":
            await self._send_log(writer)
            return
        from_guest, to_guest = await self._connected()
        try:
            ways = [
                asyncio.create_task(_copy(from_guest, writer, STALLED_S[kind]), name="from guest"),
                asyncio.create_task(_copy(reader, to_guest, STALLED_S["vnc"]), name="to guest"),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                await _hang_up(writer)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            to_guest.transport.abort()

    async def _send_log(self, writer: asyncio.StreamWriter) -> None:
        """Send the log as it is now."""
        assert isinstance(self._address, Path)  # noqa: S101 - for the type
        with self._address.open("rb") as file:
            rest = os.fstat(file.fileno()).st_size
            while data := file.read(min(_CHUNK, rest)):
                rest -= len(data)
                writer.write(data)
                async with asyncio.timeout(STALLED_S["log"]):
                    await writer.drain()
        await _hang_up(writer)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(SECRET_S):
            if isinstance(self._address, tuple):
                return await asyncio.open_connection(*self._address, limit=_BUFFER)
            return await asyncio.open_unix_connection(self._address, limit=_BUFFER)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection once the other side has everything, within some seconds."""
    if writer.can_write_eof() or not writer.is_closing():
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(SECRET_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, stalled_s: float) -> None:
    """Copy to the end of the source; TimeoutError if the sink takes nothing for some time."""
    while data := await source.read(_CHUNK):
        sink.write(data)
        async with asyncio.timeout(stalled_s):
            await sink.drain()
