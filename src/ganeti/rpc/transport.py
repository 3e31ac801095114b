"""Requests to nodes over HTTPS: pinned certificates, kept connections, few handshakes at once.

What a failure means for the call is decided here and nowhere else: `NotSent` if the node surely has
not seen it, `NoAnswer` if it may have.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from ganeti.model.objects import Node

ANSWER_LIMIT = 64 * 1024 * 1024
HANDSHAKES_AT_ONCE = 8
CONNECT_TIMEOUT_S = 5.0
KEEPALIVE_S = 60.0
"""Shorter than the server's."""
SILENCE_LIMIT_MS = 20_000
"""A peer whose host is gone is noticed after this long, also in the middle of a long call."""


class NotSent(Exception):
    """The node has surely not seen the call."""


class NoAnswer(Exception):
    """The node may have seen the call, and may have carried it out."""


@dataclass(frozen=True)
class Answer:
    """What the node said: an HTTP status and JSON."""

    status: int
    body: bytes


class Transport(Protocol):
    """A way to the nodes."""

    async def post(
        self,
        node: Node,
        procedure: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Answer:
        """The node's answer; raises NotSent or NoAnswer, within `timeout_s`."""
        ...

    async def close(self) -> None: ...


@dataclass
class _Progress:
    """How far one request has come."""

    handshakes: asyncio.Semaphore
    holds_handshake: bool = False
    is_connected: bool = False

    def connected(self) -> None:
        self.is_connected = True
        self.release()

    def release(self) -> None:
        if self.holds_handshake:
            self.holds_handshake = False
            self.handshakes.release()


@dataclass
class _Peer:
    fingerprint: str
    session: aiohttp.ClientSession = field(repr=False)


class HttpsTransport:
    """The real one; connections start at `local_address`, where one is given."""

    def __init__(self, context: ssl.SSLContext, local_address: str | None = None) -> None:
        self._context = context
        self._local_address = local_address
        self._peers: dict[str, _Peer] = {}
        self._handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)

    async def post(
        self,
        node: Node,
        procedure: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Answer:
        session = await self._session(node)
        progress = _Progress(self._handshakes)
        host = f"[{node.primary_ip}]" if ":" in node.primary_ip else node.primary_ip
        try:
            async with (
                asyncio.timeout(timeout_s),
                session.post(
                    f"https://{host}:{node.port}/rpc/{procedure}",
                    data=body,
                    headers={"Content-Type": "application/json", **headers},
                    ssl=self._context,
                    allow_redirects=False,
                    trace_request_ctx=progress,
                ) as response,
            ):
                return Answer(response.status, await _read(response))
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            why = _said(err, progress, timeout_s)
            if not progress.is_connected or _is_refused_certificate(err):
                raise NotSent(why) from err
            raise NoAnswer(why) from err
        finally:
            progress.release()

    async def close(self) -> None:
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.session.close()

    async def _session(self, node: Node) -> aiohttp.ClientSession:
        peer = self._peers.get(node.uuid)
        if peer is not None and peer.fingerprint == node.certificate:
            return peer.session
        self._peers[node.uuid] = _Peer(node.certificate, self._new_session(node.certificate))
        if peer is not None:
            await peer.session.close()
        return self._peers[node.uuid].session

    def _new_session(self, fingerprint: str) -> aiohttp.ClientSession:
        try:
            pin = aiohttp.Fingerprint(bytes.fromhex(fingerprint))
        except ValueError as err:
            raise NotSent(f"the configuration has no valid fingerprint for it: {err}") from err
        connector = aiohttp.TCPConnector(
            ssl=pin,
            local_addr=(self._local_address, 0) if self._local_address else None,
            keepalive_timeout=KEEPALIVE_S,
            limit=0,
            socket_factory=_watched_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            trace_configs=[_tracing()],
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )


def _watched_socket(info: Any) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    with contextlib.suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_MS)
    return made


def _tracing() -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()

    async def starts(_session: Any, context: Any, _params: Any) -> None:
        progress: _Progress = context.trace_request_ctx
        await progress.handshakes.acquire()
        progress.holds_handshake = True

    async def has_connection(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.connected()

    config.on_connection_create_start.append(starts)
    config.on_connection_create_end.append(has_connection)
    config.on_connection_reuseconn.append(has_connection)
    return config


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > ANSWER_LIMIT:
            raise NoAnswer(f"the answer has more than {ANSWER_LIMIT} bytes")
    return b"".join(parts)


def _is_refused_certificate(err: BaseException) -> bool:
    """In TLS 1.3 the server judges the client's certificate after the client may have sent.

    A server that answers with an alert has read nothing.
    """
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _said(err: BaseException, progress: _Progress, timeout_s: float) -> str:
    if isinstance(err, aiohttp.ServerFingerprintMismatch):
        return "its certificate is not the one in the configuration; somebody else answers there"
    if isinstance(err, TimeoutError):
        return f"nothing within {timeout_s if progress.is_connected else CONNECT_TIMEOUT_S:g} s"
    if isinstance(err, aiohttp.ClientConnectorError):
        number = err.os_error.errno
        return f"no connection: {os.strerror(number) if number and number > 0 else err.os_error}"
    return str(err) or type(err).__name__
