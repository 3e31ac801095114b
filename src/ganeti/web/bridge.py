"""A console in a page: a WebSocket on one side, TLS to the guest's node on the other.

Both directions wait for the slower side, so memory is bounded. A client that takes nothing for some seconds is cut.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from http import HTTPStatus
from typing import Any

from ganeti.base import tls
from ganeti.base.http_web import WSMsgType, web
from ganeti.web.refusals import Refusal

CONNECT_S = 10.0
IDLE_S = 15 * 60.0
"""Time without a byte in either direction after which a console is closed."""
STALLED_S = 20.0
CLOSE_S = 1.0
BRIDGES_LIMIT = 500
BRIDGES_OF_USER = 20
"""Open consoles of one user, unless `ganeti-rapi --max-consoles-per-user` says otherwise."""
MESSAGE_LIMIT = 64 * 1024
PING_S = 30.0
_CHUNK = 64 * 1024


class Ending(IntEnum):
    """Why the server closed the WebSocket, as its close code."""

    NORMAL = 1000
    SESSION = 4001
    IDLE = 4002
    SLOW = 4003
    GONE = 4004


_WHY = {
    Ending.NORMAL: "",
    Ending.SESSION: "the session has ended",
    Ending.IDLE: "the console was idle for too long",
    Ending.SLOW: "this client reads too slowly",
    Ending.GONE: "the guest has stopped or moved, or another window has taken its console over",
}


async def connect(endpoint: Mapping[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to the endpoint of a node, whose certificate the cluster's configuration has; Refusal (502)."""
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                endpoint["address"],
                endpoint["port"],
                ssl=tls.pinned_client_context(),
                limit=2 * _CHUNK,
            )
            if tls.peer_fingerprint(writer.transport) not in endpoint["certificates"]:
                writer.transport.abort()
                raise ssl.SSLError("another host answers there")
            writer.write(str(endpoint["secret"]).encode())
            await writer.drain()
    except (OSError, TimeoutError) as err:
        why = f"node {endpoint['node']}: the console cannot be reached ({type(err).__name__})"
        raise Refusal(HTTPStatus.BAD_GATEWAY, why) from err
    return reader, writer


async def run(
    socket: web.WebSocketResponse,
    node: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    used: Callable[[], None],
) -> None:
    """Copy until one side ends, then close the WebSocket with the reason; `used` is called for each message."""
    _, writer = node
    ending = Ending.SESSION
    try:
        ending = await _Bridge(socket, node, used).run()
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            async with asyncio.timeout(CLOSE_S):
                await socket.close(code=ending, message=_WHY[ending].encode())


class _Bridge:
    """Both directions of one console."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        node: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        used: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._reader, self._writer = node
        self._used = used
        self._idle = asyncio.timeout(IDLE_S)

    async def run(self) -> Ending:
        """Return why the bridge ended."""
        ways = [asyncio.create_task(_ending(one)) for one in (self._from_guest(), self._to_guest())]
        try:
            async with self._idle:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            return max(one.result() for one in done)
        except TimeoutError:
            return Ending.IDLE
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _from_guest(self) -> Ending:
        while data := await self._reader.read(_CHUNK):
            self._moved()
            async with asyncio.timeout(STALLED_S):
                await self._socket.send_bytes(data)
        return Ending.GONE

    async def _to_guest(self) -> Ending:
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY:
                break
            self._moved()
            self._used()
            self._writer.write(message.data)
            async with asyncio.timeout(STALLED_S):
                await self._writer.drain()
        return Ending.NORMAL

    def _moved(self) -> None:
        self._idle.reschedule(asyncio.get_running_loop().time() + IDLE_S)


async def _ending(way: Awaitable[Ending]) -> Ending:
    try:
        return await way
    except TimeoutError:
        return Ending.SLOW
    except OSError:
        return Ending.GONE
