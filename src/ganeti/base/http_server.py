"""The HTTP server of all daemons: limits on the size, speed and number of clients' requests (A3-A10).

A connection is a protocol object; an idle one costs only its socket. Once a second the server
aborts connections whose time is over. A daemon's handler makes its answers.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ganeti.base.http_web import LineTooLong, RequestHandler, StreamReader, web

LOOK_INTERVAL_S = 1.0
COMPLETE_S = 0.05
"""Maximum delay between a request's headers and its start."""
_NOISE = logging.getLogger(f"{__name__}.clients")
"""A logger that is off: malformed requests must not fill a log."""
_NOISE.setLevel(logging.CRITICAL)

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Refuse = Callable[[HTTPStatus, str], web.Response]
"""Returns the answer to bytes that are not a request, in the form of the daemon's other answers."""


@dataclass(frozen=True)
class Limits:
    """Limits on clients; None: no limit."""

    connections: int = 4096
    connections_of_address: int = 64
    line_bytes: int = 8 * 1024
    """Maximum size of the request line, and of one header."""
    headers_bytes: int = 32 * 1024
    headers: int = 100
    headers_s: float = 10.0
    """Time limit from the connection, or the first byte of a request, to the end of the headers."""
    answer_s: float | None = None
    """Time limit from the headers to the answer; the body must arrive within it."""
    taken_s: float | None = None
    """Time limit for a client to read an answer."""
    idle_s: float = 75.0
    """Time that a connection may wait for its next request."""
    body_bytes: int = 1024 * 1024
    """Maximum size that `request.read()` returns."""
    linger_s: float = 3.0
    """Time for which the rest of a body is read and discarded after the answer.

    A client that still sends can then read the answer.
    """
    handshake_s: float = 10.0
    close_s: float = 30.0
    """Time limit for the end of TLS; the client reads the rest of its answer meanwhile."""
    shutdown_s: float = 1.0
    """Time that requests may continue when the server stops."""


class _Connection(RequestHandler):
    """A client; `end` is the end of its time, by the loop's clock."""

    __slots__ = ("_address", "_body", "_cut", "_head_bytes", "_is_busy", "_owner", "end")

    def __init__(self, owner: "HttpServer", manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, loop=asyncio.get_running_loop(), **settings)
        self._owner = owner
        self.end: float | None = None
        self._address = ""
        self._is_busy = False
        """True while a received request is not answered."""
        self._body: StreamReader | None = None
        """The body of the last request, of which a part may still arrive after the answer."""
        self._head_bytes = 0
        self._cut: asyncio.TimerHandle | None = None
        """Ends a connection whose headers are too long, unless a request begins."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else "unknown"
        self._set_end(self._owner.limits.headers_s)
        if self._owner.admit(address):
            self._address = address
        else:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._address:
            self._owner.leave(self._address)
            self._address = ""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_busy and (self._body is None or self._body.is_eof()):
            self._count_head(len(data))
        super().data_received(data)

    def _count_head(self, length: int) -> None:
        """Count bytes that may be headers: bytes beyond the limit may also be a body in the same packet."""
        if not self._head_bytes:
            self._set_end(self._owner.limits.headers_s)
        self._head_bytes += length
        if self._head_bytes > self._owner.limits.headers_bytes and self._cut is None:
            self._cut = asyncio.get_running_loop().call_later(COMPLETE_S, self.force_close)

    def begin(self, body: StreamReader) -> None:
        """Handle the end of a request's headers."""
        self._is_busy, self._body, self._head_bytes = True, body, 0
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None
        self._set_end(self._owner.limits.answer_s)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if self._owner.limits.taken_s is not None:
            self._set_end(self._owner.limits.taken_s)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._is_busy, self.end = False, None
            self._head_bytes = 0

    def _set_end(self, limit_s: float | None) -> None:
        if limit_s is None:
            self.end = None
        else:
            self.end = asyncio.get_running_loop().time() + limit_s
            self._owner.cut_at(self.end)

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
        why = "this is not an HTTP request that the server understands"
        response = self._owner.refuse(
            HTTPStatus(status), why if status < HTTPStatus.INTERNAL_SERVER_ERROR else "see the log"
        )
        response.force_close()
        return response


class HttpServer:
    """The listening side; `cancels` is True if a request ends when its client disconnects."""

    def __init__(
        self, answer: Answer, refuse: Refuse, limits: Limits | None = None, *, cancels: bool = False
    ) -> None:
        self.limits = limits or Limits()
        self.refuse = refuse
        self.refused = 0
        self._of_address: Counter[str] = Counter()
        self._answer = answer
        self._cutting: asyncio.TimerHandle | None = None
        self._inner = web.Server(
            self._bounded, request_factory=self._request, handler_cancellation=cancels
        )
        self._settings: dict[str, Any] = {
            "access_log": None,
            "logger": _NOISE,
            "debug": False,
            "max_line_size": self.limits.line_bytes,
            "max_field_size": self.limits.line_bytes,
            "max_headers": self.limits.headers,
            "lingering_time": self.limits.linger_s,
            "keepalive_timeout": self.limits.idle_s,
            "auto_decompress": False,
        }

    @property
    def connections(self) -> int:
        """Return the number of connections."""
        return self._of_address.total()

    def connection(self) -> asyncio.Protocol:
        """Return the protocol of a new client."""
        return _Connection(self, self._inner, **self._settings)

    async def _bounded(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request whose headers are not too long."""
        length = sum(len(name) + len(value) for name, value in request.raw_headers)
        if length > self.limits.headers_bytes:
            response = self.refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers together are too long"
            )
            response.force_close()
            return response
        return await self._answer(request)

    def _request(
        self,
        message: Any,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: Any,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        if isinstance(protocol, _Connection):
            protocol.begin(payload)
        loop, limit = asyncio.get_running_loop(), self.limits.body_bytes
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=limit
        )

    def admit(self, address: str) -> bool:
        """Count a new client, unless there are too many."""
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
        """Count a client that has left."""
        self._of_address[address] -= 1
        if self._of_address[address] <= 0:
            del self._of_address[address]

    def cut_at(self, end: float) -> None:
        """Check at that time, or before, for connections whose time is over."""
        if self._cutting is None or end < self._cutting.when():
            self._stop_cutting()
            self._cutting = asyncio.get_running_loop().call_at(end, self._cut_late)

    def _stop_cutting(self) -> None:
        cutting, self._cutting = self._cutting, None
        if cutting is not None:
            cutting.cancel()

    def _cut_late(self) -> None:
        """Abort the connections whose time is over; check again after a second at the earliest."""
        self._cutting = None
        now = asyncio.get_running_loop().time()
        for one in self._inner.connections:
            if not isinstance(one, _Connection) or one.end is None or one.transport is None:
                continue
            if one.end <= now:
                one.transport.abort()
            else:
                self.cut_at(max(one.end, now + LOOK_INTERVAL_S))

    async def close(self) -> None:
        """Let requests end for a while, then close all connections."""
        self._inner.pre_shutdown()
        await self._inner.shutdown(self.limits.shutdown_s)
        self._stop_cutting()


@asynccontextmanager
async def serving(
    server: HttpServer, address: str | None, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve at `address` (empty: everywhere) for as long as the block runs; yield the port."""
    loop, limits = asyncio.get_running_loop(), server.limits
    listener = await loop.create_server(
        server.connection,
        address or None,
        port,
        ssl=context,
        ssl_handshake_timeout=limits.handshake_s if context else None,
        ssl_shutdown_timeout=limits.close_s if context else None,
        reuse_address=True,
        backlog=1024,
    )
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.close()
