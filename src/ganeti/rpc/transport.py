"""Requests to nodes over HTTPS: pinned certificates, kept connections, few handshakes at once.

Only this module decides what a failure means for the call: `NotSent` if the node certainly has not
received it, `NoAnswer` if it may have.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ganeti.base import tls
from ganeti.base.connections import watch_other_end
from ganeti.base.http import aiohttp
from ganeti.model.objects import Node
from ganeti.rpc.headers import HOOKS_HEADER
from ganeti.rpc.procedures.form import Lane

ANSWER_LIMIT = 64 * 1024 * 1024
HANDSHAKES_AT_ONCE = 8
"""Maximum number of connections to all nodes, in each lane."""
HANDSHAKES_WITH_ONE = 2
"""Maximum number of handshakes in each lane: silent nodes must not use all slots."""
CONNECTIONS = {Lane.QUICK: 8, Lane.NORMAL: 32, Lane.LONG: 128}
"""Maximum number of connections to one node, in each lane; waiting for one counts towards the deadline."""
CONNECT_TIMEOUT_S = 5.0
KEEPALIVE_S = 60.0
"""Shorter than the server's time limit."""


class NotSent(Exception):
    """The node has certainly not received the call."""


class NoAnswer(Exception):
    """The node may have received the call, and may have carried it out."""


class _OtherCertificate(Exception):
    """The peer has an unexpected certificate; no data was sent."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Answer(msgspec.Struct, frozen=True):
    """Response of a node: an HTTP status and JSON."""

    status: int
    body: bytes
    hooks: str | None = None
    """The node's report of its hook directories, if it gave one."""


class Transport(Protocol):
    """A connection to the nodes."""

    async def post(
        self,
        node: Node,
        procedure: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        lane: Lane,
    ) -> Answer:
        """Return the node's answer; raises NotSent or NoAnswer, within `timeout_s`."""
        ...

    async def close(self) -> None: ...


@dataclass
class _Progress:
    """The progress of one request."""

    handshakes: tuple[asyncio.Semaphore, ...]
    """The slots that a new connection needs."""
    held: list[asyncio.Semaphore] = field(default_factory=list)
    is_connected: bool = False
    is_queued: bool = False
    """True if it waits for one of the node's connections."""

    async def take_slots(self) -> None:
        for slot in self.handshakes:
            await slot.acquire()
            self.held.append(slot)

    def connected(self) -> None:
        self.is_connected = True
        self.release()

    def release(self) -> None:
        while self.held:
            self.held.pop().release()


@dataclass
class _Peer:
    """A lane to a node."""

    fingerprint: str
    generation: int
    """The certificates of its connections."""
    session: aiohttp.ClientSession = field(repr=False)
    handshakes: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(HANDSHAKES_WITH_ONE)
    )
    calls: int = 0
    """Running requests."""


class HttpsTransport:
    """The real transport; connections start at `local_address`, if it is set."""

    def __init__(self, context: ssl.SSLContext, local_address: str | None = None) -> None:
        self._context = context
        self._local_address = local_address
        self._peers: dict[tuple[str, str, Lane], _Peer] = {}
        self._former: list[_Peer] = []
        """Peers with another certificate; a call may still be running there."""
        self._handshakes = {lane: asyncio.Semaphore(HANDSHAKES_AT_ONCE) for lane in Lane}

    async def post(
        self,
        node: Node,
        procedure: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        lane: Lane,
    ) -> Answer:
        try:
            return await self._post(
                node, node.certificate, procedure, body, headers, timeout_s, lane
            )
        except _OtherCertificate as err:
            if not node.next_certificate:
                raise NotSent(err.why) from err
        # The peer's certificate is being renewed.
        try:
            return await self._post(
                node, node.next_certificate, procedure, body, headers, timeout_s, lane
            )
        except _OtherCertificate as err:
            raise NotSent(err.why) from err

    async def _post(  # noqa: PLR0917 - those of a request
        self,
        node: Node,
        fingerprint: str,
        procedure: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        lane: Lane,
    ) -> Answer:
        peer = self._peer(node, fingerprint, lane)
        progress = _Progress((peer.handshakes, self._handshakes[lane]))
        peer.calls += 1
        host = f"[{node.primary_ip}]" if ":" in node.primary_ip else node.primary_ip
        try:
            async with (
                asyncio.timeout(timeout_s),
                peer.session.post(
                    f"https://{host}:{node.port}/rpc/{procedure}",
                    data=body,
                    headers={"Content-Type": "application/json", **headers},
                    ssl=self._context,
                    allow_redirects=False,
                    trace_request_ctx=progress,
                ) as response,
            ):
                hooks = response.headers.get(HOOKS_HEADER)
                return Answer(response.status, await _read(response), hooks)
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            why = _said(err, progress, timeout_s)
            if isinstance(err, aiohttp.ServerFingerprintMismatch):
                raise _OtherCertificate(why) from err
            if not progress.is_connected or _is_refused_certificate(err):
                raise NotSent(why) from err
            raise NoAnswer(why) from err
        finally:
            progress.release()
            peer.calls -= 1
            await self._close_former()

    async def close(self) -> None:
        peers, self._peers, self._former = [*self._peers.values(), *self._former], {}, []
        for peer in peers:
            await peer.session.close()

    async def _close_former(self) -> None:
        """Close replaced connections once no call uses them."""
        idle = [peer for peer in self._former if not peer.calls]
        self._former = [peer for peer in self._former if peer.calls]
        for peer in idle:
            await peer.session.close()

    def _peer(self, node: Node, fingerprint: str, lane: Lane) -> _Peer:
        # An address that does not answer keeps its handshakes busy, not those of the node's other address.
        where = node.uuid, node.primary_ip, lane
        peer = self._peers.get(where)
        generation = tls.generation(self._context)
        if peer is not None and (peer.fingerprint, peer.generation) == (fingerprint, generation):
            return peer
        made = _Peer(fingerprint, generation, self._new_session(fingerprint, lane))
        self._peers[where] = made
        if peer is not None:
            self._former.append(peer)
        return made

    def _new_session(self, fingerprint: str, lane: Lane) -> aiohttp.ClientSession:
        try:
            pin = aiohttp.Fingerprint(bytes.fromhex(fingerprint))
        except ValueError as err:
            raise NotSent(f"the configuration has no valid fingerprint for it: {err}") from err
        connector = aiohttp.TCPConnector(
            ssl=pin,
            local_addr=(self._local_address, 0) if self._local_address else None,
            keepalive_timeout=KEEPALIVE_S,
            limit=CONNECTIONS[lane],
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
    watch_other_end(made)
    return made


def _tracing() -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()

    async def starts(_session: Any, context: Any, _params: Any) -> None:
        progress: _Progress = context.trace_request_ctx
        await progress.take_slots()

    async def waits(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.is_queued = True

    async def waited(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.is_queued = False

    async def has_connection(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.connected()

    config.on_connection_queued_start.append(waits)
    config.on_connection_queued_end.append(waited)
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
            raise NoAnswer(f"the response has more than {ANSWER_LIMIT} bytes")
    return b"".join(parts)


def _is_refused_certificate(err: BaseException) -> bool:
    """Return whether the server refused the client's certificate.

    In TLS 1.3 the refusal may arrive after the client has sent its request.
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
        return (
            "its certificate differs from the one in the configuration; another host answers there"
        )
    if isinstance(err, TimeoutError) and progress.is_queued:
        return f"all connections to it were busy for {timeout_s:g} s"
    if isinstance(err, TimeoutError):
        return f"no answer within {timeout_s if progress.is_connected else CONNECT_TIMEOUT_S:g} s"
    if isinstance(err, aiohttp.ClientConnectorError):
        number = err.os_error.errno
        return f"no connection: {os.strerror(number) if number and number > 0 else err.os_error}"
    return str(err) or type(err).__name__
