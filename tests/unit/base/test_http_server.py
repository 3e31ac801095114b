"""Slow, greedy and odd clients of the server that all daemons share, with the bounds of each of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus

import pytest

from ganeti.api import monitoring_server
from ganeti.base import http_server
from ganeti.base.http_server import HttpServer, Limits, Refuse, serving
from ganeti.base.http_web import web
from ganeti.rpc import server as rpc_server
from ganeti.web import server as rest_server

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
FACES: dict[str, tuple[Limits, Refuse]] = {
    "rest": (Limits(), rest_server._refuse),
    "monitoring": (monitoring_server.LIMITS, monitoring_server.refuse),
    "rpc": (rpc_server.LIMITS, rpc_server._refuse),
}


@dataclass
class Rig:
    """A server that answers with the length of the body; `/wait` answers when it is released."""

    server: HttpServer
    port: int
    release: asyncio.Event

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def said(self, *sent: bytes, pause_s: float = 0.0) -> bytes:
        """Send parts with pauses; return all that comes until the server hangs up."""
        reader, writer = await self.connect()
        try:
            with contextlib.suppress(ConnectionError):
                for part in sent:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(pause_s)
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionError):
                    return await reader.read()
            return b""
        finally:
            writer.transport.abort()

    async def serves_others(self) -> None:
        close = GET.replace(b"Host", b"Connection: close\r\nHost")
        assert b"200 OK" in await self.said(close)


@asynccontextmanager
async def rig_of(limits: Limits, refuse: Refuse) -> AsyncIterator[Rig]:
    release = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/wait":
            await release.wait()
        if request.path == "/large":
            return web.Response(body=b"x" * 32_000_000)
        return web.Response(text=f"{len(await request.read())} bytes")

    server = HttpServer(answer, refuse, limits)
    async with serving(server, "127.0.0.1", 0) as port:
        yield Rig(server, port, release)
        release.set()


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Limits, Refuse]:
    """The bounds of one daemon, with shorter times."""
    monkeypatch.setattr(http_server, "LOOK_INTERVAL_S", 0.02)
    limits, refuse = FACES[request.param]
    return replace(limits, headers_s=0.3, idle_s=1.0, linger_s=0.5), refuse


@pytest.mark.requirement("A7")
async def test_client_that_sends_its_headers_too_slowly_is_cut_off(
    face: tuple[Limits, Refuse],
) -> None:
    async with rig_of(*face) as rig:
        slow = [
            rig.said(b""),
            rig.said(b"GET / HT"),
            rig.said(b"\r\n\r\n\r\n\r\n"),
            rig.said(*(bytes([byte]) for byte in GET), pause_s=0.05),
            rig.said(b"\r\n" * 4, GET[:-1]),
        ]
        pending = [asyncio.create_task(one) for one in slow]
        await rig.serves_others()
        assert await asyncio.gather(*pending) == [b""] * len(pending)
        assert rig.server.connections == 0


@pytest.mark.requirement("A7")
async def test_connection_that_waits_for_its_next_request_is_closed(
    face: tuple[Limits, Refuse],
) -> None:
    async with rig_of(*face) as rig:
        assert (await rig.said(GET)).count(b"200 OK") == 1
        assert (await rig.said(GET, GET[:9])).count(b"200 OK") == 1


@pytest.mark.requirement("A7")
async def test_requests_that_wait_for_their_answer_are_not_late(
    face: tuple[Limits, Refuse],
) -> None:
    async with rig_of(*face) as rig:
        close = b"GET /wait HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n"
        waiting = asyncio.create_task(rig.said(close))
        await asyncio.sleep(0.6)
        assert not waiting.done()
        rig.release.set()
        assert b"200 OK" in await waiting


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 500,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (n, b"a" * 7000) for n in range(9)),
        b"\r\n\r\nGET / HTTP/1.1\r\n"
        + b"".join(b"X%d: %s\r\n" % (n, b"a" * 7000) for n in range(9)),
        b"nonsense\r\n",
    ],
    ids=["line", "header", "many", "together", "after blank lines", "nonsense"],
)
async def test_headers_beyond_the_limits_are_refused(
    face: tuple[Limits, Refuse], head: bytes
) -> None:
    async with rig_of(*face) as rig:
        answer = await rig.said(head + b"\r\n")
        assert not answer or answer.split()[1] in (b"400", b"414", b"431")
        if answer:
            assert b"application/json" in answer
        await rig.serves_others()


async def test_body_does_not_count_as_headers(face: tuple[Limits, Refuse]) -> None:
    head = b"PUT / HTTP/1.1\r\nConnection: %s\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
    body = bytes(200_000)
    async with rig_of(*face) as rig:
        answer = await rig.said(head % b"keep-alive" + body + head % b"close", body)
        assert answer.count(b"200000 bytes") == 2
        answer = await rig.said((head % b"close")[:-2], b"\r\n" + body[:9], body[9:], pause_s=0.05)
        assert b"200000 bytes" in answer


async def test_body_beyond_the_limit_is_refused(face: tuple[Limits, Refuse]) -> None:
    limits, refuse = face
    head = b"PUT / HTTP/1.1\r\nConnection: close\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"
    async with rig_of(replace(limits, body_bytes=4000), refuse) as rig:
        assert b" 413 " in await rig.said(head + bytes(5000))


@pytest.mark.requirement("A7")
async def test_neither_one_address_nor_all_together_have_more_connections(
    face: tuple[Limits, Refuse],
) -> None:
    limits, refuse = face
    for bound in ("connections", "connections_of_address"):
        async with rig_of(replace(limits, headers_s=10.0, **{bound: 2}), refuse) as rig:
            kept = [await rig.connect() for _ in range(2)]
            await asyncio.sleep(0.05)
            assert [await rig.said(GET), rig.server.connections, rig.server.refused] == [b"", 2, 1]
            for _, writer in kept:
                writer.transport.abort()
            await asyncio.sleep(0.05)
            await rig.serves_others()


@pytest.mark.requirement("A7")
async def test_answer_that_takes_too_long_or_is_not_read_ends_the_connection(
    face: tuple[Limits, Refuse],
) -> None:
    limits, refuse = face
    async with rig_of(replace(limits, answer_s=0.3, taken_s=0.3), refuse) as rig:
        assert await rig.said(GET.replace(b"/ ", b"/wait ", 1)) == b""
        dripping = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n"
        assert await rig.said(dripping, *[b"x"] * 20, pause_s=0.05) == b""
        _reader, writer = await rig.connect()
        writer.write(GET.replace(b"/ ", b"/large ", 1))
        async with asyncio.timeout(10):
            while rig.server.connections:  # noqa: ASYNC110 - its end is not announced
                await asyncio.sleep(0.02)
        writer.transport.abort()
        await rig.serves_others()


async def test_close_lets_requests_end(face: tuple[Limits, Refuse]) -> None:
    limits, refuse = face
    async with rig_of(replace(limits, shutdown_s=5.0), refuse) as rig:
        waiting = asyncio.create_task(rig.said(GET.replace(b"/ ", b"/wait ", 1)))
        idle = asyncio.create_task(rig.said(GET))
        await asyncio.sleep(0.2)
        asyncio.get_running_loop().call_later(0.2, rig.release.set)
        await rig.server.close()
        assert b"200 OK" in await waiting
        assert b"200 OK" in await idle


async def test_error_has_the_form_of_the_daemon(face: tuple[Limits, Refuse]) -> None:
    refused = face[1](HTTPStatus.BAD_REQUEST, "why")
    assert (refused.status, refused.content_type) == (400, "application/json")
