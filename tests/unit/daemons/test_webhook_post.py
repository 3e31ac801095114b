"""One request of a webhook, against real sockets on the loopback interface."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.certificates import for_rest, new_key
from ganeti.base.clock import SystemClock
from ganeti.daemons import webhook_post
from ganeti.daemons.webhook_post import ANSWER_LIMIT, WebhookPoster
from ganeti.model.webhook import Webhook
from ganeti.protocols.webhook import Happened, signature
from ganeti.units.services import Posted

SECRET = "0123456789abcdef"
RULE = Webhook(
    uuid="u", name="chat", url="http://hooks.example.com/", secret=SECRET, allow_local=True
)
EVENTS = [Happened("1-1-1", "job", {"id": 7})]
OK = b"HTTP/1.1 204 No Content\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """Answers each request with the same bytes, and keeps what it got."""

    def __init__(self, answer: bytes, *, endless: bytes = b"") -> None:
        self._answer, self._endless = answer, endless
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.port = 0
        self.sent = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            lines = (line.partition(": ") for line in head[1:])
            found = {name: value for name, _, value in lines if name}
            content = await reader.readexactly(int(found["Content-Length"]))
            self.requests.append((found, content))
            writer.write(self._answer)
            await writer.drain()
            while self._endless:
                writer.write(self._endless)
                self.sent += len(self._endless)
                await writer.drain()
            if not self._answer:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(
    answer: bytes = OK, *, endless: bytes = b"", context: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    found = Receiver(answer, endless=endless)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)


async def loopback(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


async def post(
    port: int, rule: Webhook = RULE, url: str = "http://hooks.example.com:{}/x"
) -> Posted:
    poster = WebhookPoster(SystemClock(), loopback)
    try:
        return await poster("c.example.com", replace(rule, url=url.format(port)), "u.1-1-1", EVENTS)
    finally:
        await poster.close()


async def test_request_is_signed_and_its_answer_is_success() -> None:
    async with receiver() as found:
        result = await post(found.port)
    assert (result.status, result.error) == (204, "")
    [(sent, content)] = found.requests
    assert sent["Host"] == f"hooks.example.com:{found.port}"
    assert sent["X-Ganeti-Webhook"] == "chat"
    assert sent["X-Ganeti-Delivery"] == "u.1-1-1"
    stamp = int(sent["X-Ganeti-Timestamp"])
    assert sent["X-Ganeti-Signature"] == f"sha256={signature(SECRET, stamp, content)}"
    assert SECRET not in str(found.requests)


async def test_local_address_is_refused_before_a_connection() -> None:
    async with receiver() as found:
        strict = replace(RULE, allow_local=False)
        by_name = await post(found.port, strict)
        by_number = await post(found.port, strict, "http://127.0.0.1:{}/")
        mapped = await post(found.port, strict, "http://[::ffff:127.0.0.1]:{}/")
    for result in (by_name, by_number, mapped):
        assert (result.status, "--allow-local" in result.error) == (0, True), result
    assert found.requests == []


async def test_one_refused_address_of_a_name_refuses_the_name() -> None:
    async def mixed(_host: str, _port: int) -> list[str]:
        return ["192.0.2.1", "169.254.169.254"]

    poster = WebhookPoster(SystemClock(), mixed)
    result = await poster("c", replace(RULE, allow_local=False), "d", EVENTS)
    assert "169.254.169.254 is a loopback or link-local address" in result.error


async def test_redirect_is_not_followed() -> None:
    async with receiver() as other:
        moved = f"HTTP/1.1 307 X\r\nLocation: http://hooks.example.com:{other.port}/\r\nContent-Length: 0\r\n\r\n"
        async with receiver(moved.encode()) as found:
            result = await post(found.port)
    assert (result.status, result.error) == (307, "status 307: redirects are not followed")
    assert other.requests == []


async def test_answer_of_an_error_is_shown_in_part_and_escaped() -> None:
    text = b"no\x1b[31m " + b"x" * 10_000
    answer = b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)
    async with receiver(answer) as found:
        result = await post(found.port)
    assert result.error.startswith("status 500: no\\x1b[31m xxx")
    assert len(result.error) < 300


async def test_endless_answer_is_cut() -> None:
    begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with receiver(begin, endless=chunk) as found:
        result = await post(found.port)
    assert result.error == ""
    assert found.sent < 64 * 1024 * 1024
    assert len(chunk) > ANSWER_LIMIT


async def test_silent_receiver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_post, "TOTAL_S", 0.2)
    async with receiver(b"") as found:
        result = await post(found.port)
    assert (result.status, result.error) == (0, "no answer within 0.2 s")


async def test_name_without_address_is_an_error() -> None:
    async def none(host: str, _port: int) -> list[str]:
        raise OSError(f"{host}: Name or service not known")

    poster = WebhookPoster(SystemClock(), none)
    result = await poster("c", RULE, "d", EVENTS)
    assert "Name or service not known" in result.error


@pytest.mark.parametrize("verify", [True, False])
async def test_certificate_is_verified_by_default(tmp_path: Path, verify: bool) -> None:
    key = new_key()
    certificate = tmp_path / "c.pem"
    certificate.write_bytes(key + for_rest(key, ["hooks.example.com"], [], SystemClock().time()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with receiver(context=context) as found:
        rule = replace(RULE, verify_tls=verify)
        result = await post(found.port, rule, "https://hooks.example.com:{}/x")
        assert len(found.requests) == (0 if verify else 1)
    assert ("certificate" in result.error.lower()) is verify


async def test_own_authorities_replace_those_of_the_system(tmp_path: Path) -> None:
    key, other, now = new_key(), new_key(), SystemClock().time()
    certificate, path = for_rest(key, ["hooks.example.com"], [], now), tmp_path / "c.pem"
    path.write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    strange = for_rest(other, ["elsewhere.example.com"], [], now)
    async with receiver(context=context) as found:
        for pem, requests in ((certificate, 1), (strange, 1), (strange + certificate, 2)):
            rule = replace(RULE, authorities=pem.decode())
            result = await post(found.port, rule, "https://hooks.example.com:{}/x")
            assert len(found.requests) == requests
            assert bool(result.error) is (pem == strange)
        elsewhere = await post(found.port, rule, "https://other.example.com:{}/x")
        assert "Hostname mismatch" in elsewhere.error


async def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as proxy, receiver() as found:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert (await post(found.port)).error == ""
    assert proxy.requests == []
