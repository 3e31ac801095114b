import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ganeti.api import luxi_server
from ganeti.api.luxi_server import Caller, Limits, LuxiServer
from ganeti.api.unix_socket import Listener
from ganeti.base.errors import ConfigurationError, JobLost
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.protocols.luxi import END, Answer, RemoteError, Request, encode_request
from ganeti.protocols.luxi_requests import answer_parts
from tests.unit.api.masters import Master
from tests.unit.query.cluster import job


class Echo:
    """Answers with what it was asked; methods of some names behave differently."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.working = 0
        self.most_working = 0
        self.ended: list[str] = []
        self.callers: list[Caller] = []

    def is_abandonable(self, method: str) -> bool:
        return method == "Wait"

    def answer_at_once(self, request: Request, _caller: Caller) -> Answer | None:
        if request.method == "Blunder":
            raise ZeroDivisionError
        if request.method == "Soon":
            return Answer(True, ["Soon", request.args])
        return Answer(True, "x" * 8_000_000) if request.method == "HugeSoon" else None

    async def answer(self, request: Request, caller: Caller) -> Answer:
        self.callers.append(caller)
        self.working += 1
        self.most_working = max(self.most_working, self.working)
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            self.ended.append(f"{request.method} cancelled")
            raise
        finally:
            self.working -= 1

    async def _answer(self, request: Request) -> Answer:
        if request.method in ("Wait", "Work"):
            await self.gate.wait()
            self.ended.append(request.method)
        if request.method == "Crash":
            raise ZeroDivisionError
        if request.method == "Lose":
            raise JobLost("there is no job 7")
        if request.method == "Rows":
            return Answer(True, [["x" * 1000]] * 5000)
        if request.method == "Huge":
            return Answer(True, "x" * 8_000_000)
        await asyncio.sleep(0)
        return Answer(True, [request.method, request.args])


Start = Callable[..., Awaitable[LuxiServer]]


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def start(tmp_path: Path, echo: Echo) -> AsyncIterator[Start]:
    servers: list[LuxiServer] = []

    async def begin(**limits: Any) -> LuxiServer:
        server = LuxiServer(tmp_path / "luxi", echo, limits=replace(Limits(), **limits))
        await server.start()
        servers.append(server)
        return server

    yield begin
    for server in servers:
        await server.close()


Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def wire_to(server: LuxiServer) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_unix_connection(str(server.path), limit=2**24)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is in the server's private state
            await asyncio.sleep(0)


async def read_answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    async with asyncio.timeout(5):
        data = await reader.readuntil(END)
    found: dict[str, Any] = json.loads(data[:-1])
    return found


async def test_a_request_is_answered_and_its_caller_known(start: Start, echo: Echo) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("Hello", [1]))
        assert await read_answer(reader) == {"success": True, "result": ["Hello", [1]]}
    assert echo.callers == [Caller(os.geteuid(), os.getegid(), os.getpid())]


@pytest.mark.requirement("A20")
async def test_two_messages_in_one_write_are_answered_in_order(start: Start, echo: Echo) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("One", []) + encode_request("Two", []))
        assert (await read_answer(reader))["result"] == ["One", []]
        assert (await read_answer(reader))["result"] == ["Two", []]
    assert echo.most_working == 1


@pytest.mark.requirement("S190")
async def test_a_message_that_comes_byte_by_byte_does_not_hold_up_others(start: Start) -> None:
    server = await start()
    async with wire_to(server) as (slow_reader, slow), wire_to(server) as (reader, writer):
        for byte in encode_request("Slow", []):
            slow.write(bytes((byte,)))
            writer.write(encode_request("Fast", []))
            assert (await read_answer(reader))["result"] == ["Fast", []]
        assert (await read_answer(slow_reader))["result"] == ["Slow", []]


@pytest.mark.requirement("A20")
async def test_half_a_message_and_a_hang_up_leave_nothing(start: Start) -> None:
    server = await start()
    async with wire_to(server) as (_reader, writer):
        writer.write(b'{"method":')
        await writer.drain()
        await until(lambda: server.buffered_bytes > 0)
    await until(lambda: not server.connections)
    assert server.buffered_bytes == 0


@pytest.mark.requirement("A20")
@pytest.mark.parametrize("data", [b"\x00\xff\xfe" * 100, b"hello", b"[]", b"{}", b""])
async def test_garbage_is_answered_and_the_connection_continues(start: Start, data: bytes) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(data + END + encode_request("Then", []))
        answer = await read_answer(reader)
        assert not answer["success"]
        assert answer["result"].startswith("Failed to parse request: ")
        assert (await read_answer(reader))["result"] == ["Then", []]


@pytest.mark.requirement("A20")
async def test_a_message_without_end_is_cut_off_at_the_limit(start: Start) -> None:
    server = await start(message_bytes=10_000)
    async with wire_to(server) as (reader, writer):
        writer.write(b"x" * 20_000)
        assert "longer than 10000 bytes" in (await read_answer(reader))["result"]
        assert await reader.read() == b""
    await until(lambda: not server.connections)
    assert server.buffered_bytes == 0


@pytest.mark.requirement("A20")
async def test_all_incomplete_messages_together_are_bounded(start: Start) -> None:
    server = await start(total_bytes=10_000)
    async with wire_to(server) as (_reader, first), wire_to(server) as (reader, second):
        first.write(b"x" * 6_000)
        await until(lambda: server.buffered_bytes == 6_000)
        second.write(b"x" * 6_000)
        assert "too many incomplete messages" in (await read_answer(reader))["result"]
        await until(lambda: server.buffered_bytes == 6_000)


async def test_a_message_that_is_not_complete_in_time_is_dropped(start: Start) -> None:
    server = await start(message_s=0.05)
    async with wire_to(server) as (reader, writer):
        writer.write(b'{"meth')
        assert "not complete within 0.05 s" in (await read_answer(reader))["result"]
        assert await reader.read() == b""


@pytest.mark.requirement("S189")
async def test_idle_connections_have_no_task(start: Start) -> None:
    server = await start()
    before = len(asyncio.all_tasks())
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(200):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            stack.callback(connection.close)
            connection.setblocking(False)
            connection.connect(str(server.path))
        await until(lambda: len(server.connections) == 200)
        await until(lambda: len(asyncio.all_tasks()) == before)
        async with wire_to(server) as (reader, writer):
            writer.write(encode_request("Hello", []))
            assert (await read_answer(reader))["success"]
    await until(lambda: not server.connections)


async def test_too_many_clients_get_an_error(start: Start) -> None:
    server = await start(clients=1)
    async with wire_to(server):
        await until(lambda: len(server.connections) == 1)
        async with wire_to(server) as (reader, _writer):
            assert "more than 1 clients" in (await read_answer(reader))["result"]
            assert await reader.read() == b""
    assert server.statistics().refused == 1


async def test_internal_error_is_reported_and_the_daemon_continues(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("Crash", []))
        answer = await read_answer(reader)
        assert answer["result"].startswith("Internal error in Crash")
        assert "ZeroDivisionError" not in answer["result"]
        assert "ZeroDivisionError" in caplog.text
        writer.write(encode_request("Lose", []))
        assert (await read_answer(reader))["result"] == ["JobLost", ["there is no job 7"]]


async def test_disconnected_waiting_client_is_forgotten(start: Start, echo: Echo) -> None:
    server = await start()
    async with wire_to(server) as (_reader, writer):
        writer.write(encode_request("Wait", []))
        await until(lambda: echo.working == 1)
    await until(lambda: not server.connections)
    assert echo.ended == ["Wait cancelled"]


async def test_work_that_was_begun_is_finished_though_the_client_hangs_up(
    start: Start, echo: Echo
) -> None:
    server = await start()
    async with wire_to(server) as (_reader, writer):
        writer.write(encode_request("Work", []))
        await until(lambda: echo.working == 1)
    # Another client's answer comes after the server has seen the first one hang up.
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("Echo", []))
        assert (await read_answer(reader))["result"] == ["Echo", []]
    assert echo.ended == []
    echo.gate.set()
    await until(lambda: not server.connections)
    assert echo.ended == ["Work"]


async def test_a_client_that_only_stops_sending_gets_its_answer(start: Start, echo: Echo) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("Work", []))
        await until(lambda: echo.working == 1)
        writer.write_eof()
        echo.gate.set()
        assert (await read_answer(reader))["result"] == ["Work", []]
        assert await reader.read() == b""


async def test_a_large_message_is_read_beside_the_loop(start: Start) -> None:
    server = await start()
    client = await AsyncLuxiClient.connect(server.path)
    text = "x" * 1_000_000
    assert await client.call("Large", text) == ["Large", [text]]
    await client.close()


async def test_what_can_be_answered_at_once_is_in_its_order_and_without_a_task(
    start: Start, echo: Echo
) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        soon = [encode_request("Soon", [number]) for number in range(200)]
        writer.write(b"".join(soon))
        for number in range(200):
            assert (await read_answer(reader))["result"] == ["Soon", [number]]
        writer.write(soon[0] + encode_request("Work", []) + soon[1] + b"{" + END + soon[2])
        assert (await read_answer(reader))["result"] == ["Soon", [0]]
        await until(lambda: echo.working == 1)
        echo.gate.set()
        assert (await read_answer(reader))["result"] == ["Work", []]
        assert echo.callers[-1] == Caller(os.geteuid(), os.getegid(), os.getpid())


async def test_immediate_failure_is_answered_by_the_task(start: Start) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("Blunder", []))
        assert (await read_answer(reader))["result"] == ["Blunder", []]


@pytest.mark.parametrize("method", ["Huge", "HugeSoon"])
async def test_unread_answer_ends_the_connection(start: Start, method: str) -> None:
    server = await start(drain_s=0.05)
    async with wire_to(server) as (_reader, writer):
        writer.write(encode_request(method, []))
        await until(lambda: len(server.connections) == 1)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport
        await until(lambda: not server.connections)


async def test_a_large_answer_is_made_no_faster_than_it_is_read(
    start: Start, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def counted(answer: Answer) -> Iterator[bytes]:
        nonlocal made
        for part in answer_parts(answer):
            made += len(part)
            yield part

    monkeypatch.setattr(luxi_server, "answer_parts", counted)
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport
        writer.write(encode_request("Rows", []))
        await until(lambda: made > 0)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert made < 2_000_000
        writer.transport.resume_reading()  # type: ignore[attr-defined] # a socket's transport
        answer = await read_answer(reader)
        assert answer["result"] == [["x" * 1000]] * 5000


async def test_requests_ahead_of_their_turn_are_not_hoarded(start: Start, echo: Echo) -> None:
    server = await start()
    async with wire_to(server) as (reader, writer):
        writer.write(encode_request("Work", []))
        await until(lambda: echo.working == 1)
        big = encode_request("Next", ["x" * 100_000])
        for _ in range(100):
            writer.write(big)
        for _ in range(200):
            await asyncio.sleep(0)
        [connection] = server.connections
        assert connection._waiting_bytes + connection._buffer.pending_bytes < 1_000_000
        echo.gate.set()
        assert (await read_answer(reader))["result"] == ["Work", []]
        for _ in range(100):
            assert (await asyncio.wait_for(reader.readuntil(END), 5)).startswith(b'{"success":true')


@pytest.mark.requirement("S192")
async def test_many_waiting_clients_cost_no_thread(tmp_path: Path) -> None:
    import threading

    master = Master()
    master.queue.live = [job(1, status=job(1).status.RUNNING)]
    master.queue.release = asyncio.Event()
    server = LuxiServer(tmp_path / "luxi", master.methods())
    await server.start()
    before = threading.active_count()
    clients = [await AsyncLuxiClient.connect(server.path) for _ in range(100)]
    waits = [
        asyncio.create_task(one.call("WaitForJobChange", 1, ["status"], ["running"], 0, 60))
        for one in clients
    ]
    await until(lambda: master.queue.waiting == 100)
    assert threading.active_count() == before
    master.queue.release.set()
    assert await asyncio.gather(*waits) == ["nochange"] * 100
    for one in clients:
        await one.close()
    await server.close()


async def test_asynchronous_client_raises_the_master_error(start: Start) -> None:
    server = await start()
    client = await AsyncLuxiClient.connect(server.path)
    with pytest.raises(JobLost, match="no job 7"):
        await client.call("Lose")
    with pytest.raises(RemoteError, match="Internal error"):
        await client.call("Crash")
    assert await client.call("Hello") == ["Hello", []]
    await client.close()


# --- the socket itself ---


@pytest.mark.requirement("A19")
def test_the_socket_is_never_open_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        listener = Listener(tmp_path / "deep" / "luxi")
        mode = stat.S_IMODE((tmp_path / "deep" / "luxi").lstat().st_mode)
        assert mode == 0o660
        assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o750
        listener.close()
        assert not (tmp_path / "deep" / "luxi").exists()
        assert os.umask(0) == 0
    finally:
        os.umask(before)


@pytest.mark.requirement("A19")
@pytest.mark.parametrize("what", ["file", "directory", "link", "link to nothing"])
def test_a_foreign_object_in_its_place_is_refused_and_left(tmp_path: Path, what: str) -> None:
    path, target = tmp_path / "luxi", tmp_path / "target"
    if what == "file":
        path.touch()
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to(target)
        if what == "link":
            target.touch()
    with pytest.raises(ConfigurationError, match="not a socket of this daemon"):
        Listener(path)
    assert path.is_symlink() or path.exists()


def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(tmp_path / "luxi"))
    dead.close()
    listener = Listener(tmp_path / "luxi")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        assert client.connect_ex(str(tmp_path / "luxi")) == 0
    listener.close()


def test_the_socket_of_a_living_daemon_is_not_taken(tmp_path: Path) -> None:
    first = Listener(tmp_path / "luxi")
    with pytest.raises(ConfigurationError, match="another daemon"):
        Listener(tmp_path / "luxi")
    first.close()


def test_socket_of_another_process_is_not_removed(tmp_path: Path) -> None:
    first = Listener(tmp_path / "luxi")
    (tmp_path / "luxi").unlink()
    (tmp_path / "other").touch()
    second = Listener(tmp_path / "luxi")
    first.close()
    assert (tmp_path / "luxi").exists()
    second.close()


async def test_a_long_path_is_no_obstacle(tmp_path: Path, echo: Echo) -> None:
    path = tmp_path / ("x" * 100) / ("y" * 100) / "luxi"
    server = LuxiServer(path, echo)
    await server.start()
    assert stat.S_ISSOCK(path.lstat().st_mode)
    await server.close()
    assert not path.exists()
