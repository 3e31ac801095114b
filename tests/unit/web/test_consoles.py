"""Consoles in a page: tickets, the WebSocket, the bridge to a real node's endpoint, and pictures."""

import asyncio
import base64
import os
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ganeti.base import tls
from ganeti.base.certificates import for_rest, new_key
from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import ConsoleAddress, Options, ServesConsoles
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node import consoles as node_consoles
from ganeti.node.consoles import Consoles
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.consoles import ConsoleArgs, ConsoleKind
from ganeti.web import bridge
from ganeti.web.tickets import LIFE_S
from tests.support.rest import ADMIN, OPERATOR, READER, TENANT, Answer, RestRig, credentials, parsed
from tests.unit.web.test_sessions import HERE, login

INSTANCE = "web1.example.com"
BINARY, TEXT, CLOSE = 2, 1, 8
NOBODY = Call(0, "", "")


class _Sockets(ServesConsoles):
    def __init__(self, path: Path) -> None:
        self.path = path

    def console_address(self, instance: InstanceSpec, kind: ConsoleKind) -> ConsoleAddress:
        if kind == "vnc":
            raise HypervisorError(f"{instance.name} has no VNC")
        return self.path


@dataclass
class _Driver:
    options: Options


@dataclass
class Guest:
    """A node's endpoints, and a guest behind them that repeats what it is told, in upper case."""

    endpoints: Consoles
    fingerprint: str
    rig: RestRig
    connections: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    opened: list[tuple[Any, ...]] = field(default_factory=list)
    answers: bool = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(b"login: ")
        with suppress(ConnectionError):
            while data := await reader.read(1000):
                if data == b"poweroff":
                    break
                writer.write(data.upper())
        self.ended.set()
        writer.close()

    async def open(self, _snapshot: Any, scope: Any, instance: str, kind: str) -> dict[str, Any]:
        self.opened.append((scope, instance, kind))
        spec = InstanceSpec(
            name=instance,
            uuid="uuid-1",
            hypervisor="kvm",
            os="tiny",
            memory=64,
            vcpus=1,
            hvparams={},
        )
        args = ConsoleArgs(instance=spec, kind=kind, address="127.0.0.1")  # type: ignore[arg-type] # the master checks it
        endpoint = await self.endpoints.open(args, NOBODY)
        return {
            "node": "node1", "address": "127.0.0.1", "port": endpoint.port, "secret": endpoint.secret,
            "certificates": [self.fingerprint],
        }  # fmt: skip


@asynccontextmanager
async def guest_of(rig: RestRig, directory: Path) -> AsyncIterator[Guest]:
    key = new_key()
    (directory / "key.pem").write_bytes(key)
    certificate = for_rest(key, ["node1"], ["127.0.0.1"], time.time())
    (directory / "cert.pem").write_bytes(certificate)
    drivers: Any = {"kvm": _Driver(Options(consoles=_Sockets(directory / "serial")))}
    endpoints = Consoles(
        drivers, lambda: tls.one_shot_server_context(directory / "cert.pem", directory / "key.pem")
    )
    guest = Guest(endpoints, tls.fingerprint(certificate), rig)
    server = await asyncio.start_unix_server(guest.serve, directory / "serial")
    rig.master.consoles = guest
    try:
        yield guest
    finally:
        await endpoints.close()
        server.close()
        await asyncio.sleep(0.01)


@pytest.fixture
async def guest(rig: RestRig, tmp_path: Path) -> AsyncIterator[Guest]:
    async with guest_of(rig, tmp_path) as one:
        yield one


@dataclass
class Page:
    """A hand-made client of WebSockets."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answer: Answer

    def send(self, data: bytes, kind: int = BINARY) -> None:
        mask = os.urandom(4)
        length = (
            struct.pack("!B", len(data) | 0x80)
            if len(data) < 126
            else struct.pack("!BQ", 127 | 0x80, len(data))
        )
        masked = bytes(one ^ mask[number % 4] for number, one in enumerate(data))
        self.writer.write(bytes([0x80 | kind]) + length + mask + masked)

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            head, length = await self.reader.readexactly(2)
            if length == 126:
                (length,) = struct.unpack("!H", await self.reader.readexactly(2))
            return head & 15, await self.reader.readexactly(length)

    async def until(self, wanted: bytes) -> bytes:
        found = b""
        while wanted not in found:
            kind, data = await self.frame()
            assert kind == BINARY
            found += data
        return found

    async def close_code(self) -> int:
        while True:
            kind, data = await self.frame()
            if kind == CLOSE:
                return int(struct.unpack("!H", data[:2])[0])


async def socket(rig: RestRig, path: str, headers: dict[str, str]) -> Page:
    reader, writer = await rig.connect()
    lines = [
        f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        *(f"{name}: {value}" for name, value in headers.items() if name != "X-Csrf-Token"),
    ]  # fmt: skip
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(20):
        return Page(reader, writer, parsed(await reader.readuntil(b"\r\n\r\n")))


async def ticket(rig: RestRig, browser: dict[str, str], kind: str = "serial") -> str:
    path = f"/2/instances/{INSTANCE}/console-ticket"
    answer = await rig.ask("POST", path, {"kind": kind}, user=None, headers=browser)
    assert answer.status == 200, answer.body
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.json["path"])


async def test_page_types_into_a_guest_and_sees_its_answer(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    page = await socket(rig, await ticket(rig, browser), browser)
    assert page.answer.status == 101
    await page.until(b"login: ")
    page.send(b"root\n")
    await page.until(b"ROOT\n")
    page.send(b"x" * 60_000)
    await page.until(b"X" * 1000)
    page.send(b"", CLOSE)
    await page.close_code()
    async with asyncio.timeout(20):
        await guest.ended.wait()
    assert rig.services.bridges.total() == 0


async def test_program_with_a_password_may_use_a_ticket_too(rig: RestRig, guest: Guest) -> None:
    program = {"Authorization": credentials(OPERATOR)}
    page = await socket(rig, await ticket(rig, program), program)
    await page.until(b"login: ")
    assert guest.connections == 1


async def test_end_of_the_guest_closes_the_page_with_a_reason(rig: RestRig, guest: Guest) -> None:
    del guest
    browser, _ = await login(rig)
    page = await socket(rig, await ticket(rig, browser), browser)
    await page.until(b"login: ")
    page.send(b"poweroff")
    assert await page.close_code() == bridge.Ending.GONE


async def test_second_window_takes_the_serial_console_over(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    first = await socket(rig, await ticket(rig, browser), browser)
    await first.until(b"login: ")
    second = await socket(rig, await ticket(rig, browser), browser)
    await second.until(b"login: ")
    assert await first.close_code() == bridge.Ending.GONE
    second.send(b"still here")
    await second.until(b"STILL HERE")
    assert guest.connections == 2


async def test_user_with_too_many_consoles_is_refused_and_others_are_not(
    rig: RestRig, guest: Guest
) -> None:
    rig.services.consoles_of_user = 1
    browser, _ = await login(rig)
    first = await socket(rig, await ticket(rig, browser), browser)
    await first.until(b"login: ")
    again, _ = await login(rig)  # another session of the same user
    path = f"/2/instances/{INSTANCE}/console-ticket"
    refused = await rig.ask("POST", path, {"kind": "serial"}, user=None, headers=again)
    assert (refused.status, refused.headers["retry-after"]) == (429, "30")
    assert "1 consoles are open, which is the limit for one user" in refused.json["explain"]
    rig.services.consoles_of_user = 2
    late = await ticket(rig, again)
    rig.services.consoles_of_user = 1
    assert (await socket(rig, late, again)).answer.status == 429
    other = {"Authorization": credentials(OPERATOR)}
    second = await socket(rig, await ticket(rig, other), other)
    await second.until(b"login: ")
    first.send(b"", CLOSE)
    await first.close_code()
    async with asyncio.timeout(20):
        while rig.services.bridges.total() > 1:  # noqa: ASYNC110 - the end of the request has no event
            await asyncio.sleep(0)
    third = await socket(rig, await ticket(rig, browser), browser)
    await third.until(b"login: ")
    assert guest.connections == 3


async def test_server_with_too_many_consoles_refuses_everybody(rig: RestRig, guest: Guest) -> None:
    rig.services.bridges["others"] = bridge.BRIDGES_LIMIT
    browser, _ = await login(rig)
    path = f"/2/instances/{INSTANCE}/console-ticket"
    refused = await rig.ask("POST", path, {"kind": "vnc"}, user=None, headers=browser)
    assert refused.status == 503
    assert guest.connections == 0


@pytest.mark.requirement("A68")
async def test_ticket_is_valid_once(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    path = await ticket(rig, browser)
    page = await socket(rig, path, browser)
    await page.until(b"login: ")
    assert (await socket(rig, path, browser)).answer.status == 403
    assert guest.connections == 1


@pytest.mark.requirement("A68")
async def test_stolen_ticket_is_refused_and_void(rig: RestRig, guest: Guest) -> None:
    owner, _ = await login(rig)
    for thief in (
        (await login(rig))[0],  # another session of the same user
        (await login(rig, OPERATOR))[0],
        {"Authorization": credentials(ADMIN)},
        {"Authorization": credentials(OPERATOR)},
    ):
        path = await ticket(rig, owner)
        assert (await socket(rig, path, thief)).answer.status == 403
        assert (await socket(rig, path, owner)).answer.status == 403
    path = await ticket(rig, owner)
    assert (await socket(rig, path, HERE)).answer.status == 401
    assert guest.connections == 0
    assert guest.opened == []


@pytest.mark.requirement("A68")
async def test_late_guessed_and_missing_tickets_are_refused(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    path = await ticket(rig, browser)
    for wrong in ("/2/console", "/2/console?ticket=", "/2/console?ticket=x&ticket=y"):
        assert (await socket(rig, wrong, browser)).answer.status == 400
    assert (await socket(rig, "/2/console?ticket=x", browser)).answer.status == 403

    class Later:
        def time(self) -> float:
            return time.time() + LIFE_S + 1

        def monotonic(self) -> float:
            return time.monotonic() + LIFE_S + 1

    rig.services.clock = Later()
    assert (await socket(rig, path, browser)).answer.status == 403
    assert guest.opened == []


@pytest.mark.requirement("A68")
async def test_socket_from_another_origin_is_refused(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    path = await ticket(rig, browser)
    for headers in (
        {"Cookie": browser["Cookie"], "Origin": "https://evil.example.com"},
        {**browser, "Sec-Fetch-Site": "cross-site"},
        {"Cookie": browser["Cookie"]},  # a browser always sends the origin of a socket
        {"Authorization": credentials(ADMIN), "Origin": "https://evil.example.com"},
        {"Cookie": browser["Cookie"], "Origin": "null"},
    ):
        assert (await socket(rig, path, headers)).answer.status == 403
    page = await socket(rig, path, browser)  # those requests have not used the ticket up
    await page.until(b"login: ")
    assert guest.connections == 1


@pytest.mark.requirement("A2", "A68")
async def test_console_needs_the_right_and_the_scope(rig: RestRig, guest: Guest) -> None:
    path = f"/2/instances/{INSTANCE}/console-ticket"
    assert (await rig.ask("POST", path, {"kind": "serial"}, user=READER)).status == 403
    other = "/2/instances/db1.example.com/console-ticket"
    assert (await rig.ask("POST", other, {"kind": "serial"}, user=TENANT)).status == 404
    tenant, _ = await login(rig, TENANT)
    page = await socket(rig, await ticket(rig, tenant), tenant)
    await page.until(b"login: ")
    ((scope, *_),) = guest.opened
    assert scope.names == ("web1*",)


@pytest.mark.requirement("A68")
async def test_right_lost_after_the_ticket_is_refused(rig: RestRig, guest: Guest) -> None:
    for line in ("tenant secret read,name=web1*", "tenant secret write,name=db1*"):
        rig.users.write_text("tenant secret write,name=web1*\n")
        rig.known_users.refresh()
        tenant, _ = await login(rig, TENANT)
        path = await ticket(rig, tenant)
        rig.users.write_text(f"{line}\n")
        rig.known_users.refresh()
        assert (await socket(rig, path, tenant)).answer.status in (403, 404)
    assert guest.opened == []


@pytest.mark.requirement("A68")
async def test_huge_and_strange_frames_end_the_console(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    for data, kind in ((b"x" * (bridge.MESSAGE_LIMIT + 1), BINARY), (b"text", TEXT)):
        guest.ended.clear()
        page = await socket(rig, await ticket(rig, browser), browser)
        await page.until(b"login: ")
        page.send(data, kind)
        await page.close_code()
        async with asyncio.timeout(20):
            await guest.ended.wait()


async def test_logout_closes_the_consoles_of_the_session(rig: RestRig, guest: Guest) -> None:
    browser, _ = await login(rig)
    page = await socket(rig, await ticket(rig, browser), browser)
    await page.until(b"login: ")
    await rig.ask("DELETE", "/2/session?everywhere=1", user=None, headers=browser)
    assert await page.close_code() == bridge.Ending.SESSION
    async with asyncio.timeout(20):
        await guest.ended.wait()


async def test_idle_console_is_closed(
    rig: RestRig, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    del guest
    monkeypatch.setattr(bridge, "IDLE_S", 0.05)
    browser, _ = await login(rig)
    page = await socket(rig, await ticket(rig, browser), browser)
    assert await page.close_code() == bridge.Ending.IDLE


async def test_console_that_the_guest_has_not_is_refused_with_the_reason(
    rig: RestRig, guest: Guest
) -> None:
    del guest
    browser, _ = await login(rig)
    answer = (await socket(rig, await ticket(rig, browser, "vnc"), browser)).answer
    assert answer.status in (409, 500, 502)
    path = f"/2/instances/{INSTANCE}/console-ticket"
    bodies: tuple[Any, ...] = ({"kind": "spice"}, {}, {"kind": "serial", "x": 1}, [])
    for body in bodies:
        assert (await rig.ask("POST", path, body)).status == 400


@pytest.mark.requirement("A68")
async def test_bridge_talks_only_to_the_nodes_certificate(rig: RestRig, guest: Guest) -> None:
    guest.fingerprint = "0" * 64
    browser, _ = await login(rig)
    answer = (await socket(rig, await ticket(rig, browser), browser)).answer
    assert answer.status == 502
    assert guest.connections == 0


# The endpoint on the node


async def test_endpoint_admits_one_caller_with_the_secret(guest: Guest) -> None:
    endpoint = await guest.open(None, None, INSTANCE, "serial")
    for wrong in (b"x" * len(endpoint["secret"]), b""):
        reader, writer = await _called(endpoint, wrong)
        writer.write_eof() if writer.can_write_eof() else writer.transport.abort()
        with suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""
    reader, writer = await _called(endpoint, endpoint["secret"].encode())
    assert await reader.readexactly(7) == b"login: "
    with pytest.raises(OSError):
        await _called(endpoint, endpoint["secret"].encode())
    writer.transport.abort()


async def test_unused_endpoint_is_closed(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_consoles, "OPEN_S", 0.01)
    endpoint = await guest.open(None, None, INSTANCE, "serial")
    while guest.endpoints.count:  # noqa: ASYNC110 - a timer of the endpoint ends it
        await asyncio.sleep(0.01)
    with pytest.raises(OSError):
        await _called(endpoint, b"")


async def test_client_that_reads_nothing_does_not_hold_the_guest(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_consoles, "STALLED_S", {"serial": 0.05, "vnc": 30.0})
    endpoint = await guest.open(None, None, INSTANCE, "serial")
    reader, writer = await _called(endpoint, endpoint["secret"].encode(), limit=1000)
    await reader.readexactly(7)
    with suppress(ConnectionError):
        while not guest.ended.is_set():
            writer.write(b"y" * 10_000)
            await asyncio.wait_for(writer.drain(), 20)
            await asyncio.sleep(0)
    writer.transport.abort()


async def _called(
    endpoint: dict[str, Any], first: bytes, limit: int = 2**16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(
        endpoint["address"], endpoint["port"], ssl=tls.pinned_client_context(), limit=limit
    )
    writer.write(first)
    return reader, writer


# Screenshots


async def test_screenshot_is_a_picture_that_is_taken_once_for_many(rig: RestRig) -> None:
    calls = []

    async def taken(_snapshot: Any, instance: str) -> str:
        calls.append(instance)
        return base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()

    rig.master.pictures = taken
    path = f"/2/instances/{INSTANCE}/screenshot"
    answers = [await rig.ask("GET", path, user=READER) for _ in range(3)]
    assert {one.status for one in answers} == {200}
    assert answers[0].headers["content-type"] == "image/png"
    assert answers[0].headers["x-content-type-options"] == "nosniff"
    assert answers[0].body.startswith(b"\x89PNG")
    assert len(calls) == 1
    assert (await rig.ask("GET", path, user="guest")).status == 403
