"""HTTPS: who may connect, how much and how slowly they may send, and answers in JSON to what is no HTTP (A3-A10).

A connection is a protocol object; while it is idle it costs its socket and nothing else. Once a second
the server looks for connections whose time is over.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ganeti.base.errors import HostError
from ganeti.base.http import LineTooLong, RequestHandler, StreamReader, web
from ganeti.web.application import Application, refused
from ganeti.web.refusals import Refusal

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
HANDSHAKE_S = 10.0
LOOK_INTERVAL_S = 1.0
LINGER_S = 3.0
"""How long the rest of a body is read and thrown away after a refusal, so that a client which still sends reads it."""
_NOISE = logging.getLogger(f"{__name__}.clients")
"""What clients send wrongly fills no log."""
_NOISE.setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients can make the server hold (docs/rules.md, limits)."""

    connections: int = 4096
    connections_of_address: int = 64
    line_bytes: int = 8 * 1024
    """Of the request line, and of one header."""
    headers_bytes: int = 32 * 1024
    headers: int = 100
    headers_s: float = 10.0
    """From the first byte of a request, or the connection, to the end of the headers."""
    idle_s: float = 75.0
    """How long a connection may wait for its next request."""


def tls_context(certificate: Path) -> ssl.SSLContext:
    """TLS 1.2 at least, forward secret and authenticated ciphers only, no renegotiation (F33); HostError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers(CIPHERS)
    try:
        context.load_cert_chain(certificate)
    except OSError as err:  # ssl.SSLError is one
        why = err.strerror or str(err)
        raise HostError(f"the certificate and key in {certificate} cannot be used: {why}") from err
    return context


class _Connection(RequestHandler):
    """One client; notes since when it has been sending headers, and how much."""

    __slots__ = ("_address", "_headers_bytes", "_is_busy", "_owner", "_rest", "_since")

    def __init__(self, owner: "RestServer", manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, loop=asyncio.get_running_loop(), **settings)
        self._owner = owner
        self._since: float | None = None
        self._headers_bytes = 0
        self._is_busy = False
        """Whether a request has come that is not answered yet."""
        self._rest: StreamReader | None = None
        """The body of the last request, of which a part may still come after the answer."""
        self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self._since = asyncio.get_running_loop().time()
        if not self._owner.admit(self._address):
            self._address = ""
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._address:
            self._owner.leave(self._address)
            self._address = ""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_busy = self._is_busy or (self._rest is not None and not self._rest.is_eof())
        super().data_received(data)
        if was_busy:
            return
        if self._messages:
            self._since, self._headers_bytes, self._is_busy = None, 0, True
            return
        if self._since is None or not self._headers_bytes:
            self._since = asyncio.get_running_loop().time()
        self._headers_bytes += len(data)
        if self._headers_bytes > self._owner.limits.headers_bytes:
            self.force_close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._is_busy = bool(self._messages)
            self._rest = request._payload  # noqa: SLF001 - aiohttp throws away what is left of it

    def is_late(self, now: float) -> bool:
        """Whether a request was begun, or a connection opened, and the headers do not come."""
        return self._since is not None and now - self._since > self._owner.limits.headers_s

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes what the client sent
    ) -> web.StreamResponse:
        if isinstance(exc, LineTooLong):
            line = exc.args[0]
            status = 414 if bytes(line).startswith((b"/", b"http")) else 431
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent already")
        why = "this is no HTTP request that is understood here" if status < 500 else "see the log"  # noqa: PLR2004
        response = refused(Refusal(HTTPStatus(status), why))
        response.force_close()
        return response


class RestServer:
    """The listening side."""

    def __init__(self, application: Application, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._inner = web.Server(application.answer, handler_cancellation=True)
        self._of_address: Counter[str] = Counter()
        self._settings: dict[str, Any] = {
            "access_log": None,
            "logger": _NOISE,
            "debug": False,
            "max_line_size": self.limits.line_bytes,
            "max_field_size": self.limits.line_bytes,
            "max_headers": self.limits.headers,
            "lingering_time": LINGER_S,
            "keepalive_timeout": self.limits.idle_s,
            "auto_decompress": False,
        }
        self.refused = 0

    @property
    def connections(self) -> int:
        """How many there are."""
        return self._of_address.total()

    def connection(self) -> asyncio.Protocol:
        """What takes care of a new client."""
        return _Connection(self, self._inner, **self._settings)

    def admit(self, address: str) -> bool:
        """Count a client in, unless there are too many."""
        limits = self.limits
        if (
            self.connections >= limits.connections
            or self._of_address[address] >= limits.connections_of_address
        ):
            self.refused += 1
            return False
        self._of_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a client out."""
        self._of_address[address] -= 1
        if self._of_address[address] <= 0:
            del self._of_address[address]

    def cut_late(self, now: float) -> None:
        """Hang up on those who have been sending headers for too long."""
        for one in list(self._inner.connections):
            if isinstance(one, _Connection) and one.is_late(now) and one.transport is not None:
                one.transport.abort()

    async def close(self) -> None:
        """Hang up on everybody."""
        await self._inner.shutdown(LOOK_INTERVAL_S)


@asynccontextmanager
async def serving(
    server: RestServer, address: str | None, port: int, context: ssl.SSLContext
) -> AsyncIterator[int]:
    """Serve at `address` (empty: everywhere) for as long as the block runs; yields the port."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(
        server.connection,
        address or None,
        port,
        ssl=context,
        ssl_handshake_timeout=HANDSHAKE_S,
        reuse_address=True,
        backlog=1024,
    )
    cutter = asyncio.create_task(_cut_late(server), name="cut late connections")
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        cutter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await cutter
        listener.close()
        await server.close()


async def _cut_late(server: RestServer) -> None:
    while True:
        await asyncio.sleep(LOOK_INTERVAL_S)
        server.cut_late(asyncio.get_running_loop().time())
