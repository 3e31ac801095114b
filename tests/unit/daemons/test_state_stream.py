"""The connection between the master daemons of two candidates."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base import tls
from ganeti.base.connections import SILENCE_LIMIT_MS
from ganeti.base.paths import Paths
from ganeti.daemons import candidates
from ganeti.daemons.candidates import TlsChannel, listening
from ganeti.store.stream import LENGTH, Ack, Append, Channel, ChannelClosed, encode_message
from tests.support.node_certificates import Authority


@contextlib.asynccontextmanager
async def two_ends() -> AsyncIterator[tuple[TlsChannel, TlsChannel]]:
    accepted: asyncio.Queue[TlsChannel] = asyncio.Queue()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TlsChannel(accepted.put_nowait), "127.0.0.1", 0)
    _, one = await loop.create_connection(TlsChannel, *server.sockets[0].getsockname())
    other = await accepted.get()
    try:
        yield one, other
    finally:
        for end in (one, other):
            end.close()
        server.close()
        await server.wait_closed()


@pytest.mark.requirement("G17")
async def test_both_ends_find_out_that_the_other_system_is_gone() -> None:
    async with two_ends() as ends:
        for end in ends:
            connection = end.transport.get_extra_info("socket")
            limit_ms = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert limit_ms == SILENCE_LIMIT_MS


@pytest.mark.requirement("G17", "F18")
async def test_read_ahead_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "AHEAD_BYTES", 1 << 20)
    content = bytes(300_000)
    async with two_ends() as (one, other):
        count = 0
        with contextlib.suppress(TimeoutError):
            while count < 100:
                async with asyncio.timeout(0.5):
                    await one.send(Append([(count, 0, b"", content)]))
                count += 1
        assert count < 100, "the sender is held up"
        assert other._ahead_bytes < (1 << 20) + 2 * len(content)
        assert len(other._data) < 2 * len(content)
        for number in range(count):
            message = await other.receive()
            assert isinstance(message, Append)
            assert message.entries[0][0] == number


async def test_messages_before_the_end_are_received_and_then_its_reason() -> None:
    async with two_ends() as (one, other):
        await one.send(Ack(1))
        await one.send(Ack(2))
        one.close()
        assert [await other.receive(), await other.receive()] == [Ack(1), Ack(2)]
        for _ in range(2):
            with pytest.raises(ChannelClosed, match="peer closed"):
                await other.receive()
        with pytest.raises(ChannelClosed):
            await other.send(Ack(3))


async def test_close_ends_a_receive_that_waits() -> None:
    async with two_ends() as (one, _):
        waiting = asyncio.create_task(one.receive())
        await asyncio.sleep(0)
        one.close()
        with pytest.raises(ChannelClosed):
            await waiting


@pytest.mark.parametrize(
    ("data", "why"), [(LENGTH.pack(1 << 30), "too long"), (LENGTH.pack(1) + b"\xc1", "damaged")]
)
async def test_bytes_that_are_no_message_end_the_connection(data: bytes, why: str) -> None:
    async with two_ends() as (one, other):
        one.transport.write(data)
        with pytest.raises(ChannelClosed, match=why):
            await other.receive()
        with pytest.raises(ChannelClosed, match="peer closed"):
            await one.receive()


async def test_a_message_in_single_bytes_is_received() -> None:
    async with two_ends() as (one, other):
        for byte in encode_message(Ack(7)) + encode_message(Ack(8)):
            other.data_received(bytes((byte,)))
        assert [await other.receive(), await other.receive()] == [Ack(7), Ack(8)]
        del one


async def test_a_daemon_that_ends_with_open_connections_logs_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = Paths(tmp_path)
    fingerprint = Authority().equip(paths, "node1.example.com")
    files = paths.node_certificate, paths.node_key, paths.authority_certificate
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(candidates, "STATE_PORT", free.getsockname()[1])
    served, unknown = asyncio.Event(), list[dict[str, object]]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, found: unknown.append(found))

    async def serve(_channel: Channel) -> None:
        served.set()
        await asyncio.Event().wait()

    allowed = frozenset((fingerprint,))
    async with listening(tls.server_context(*files), "127.0.0.1", lambda: allowed, serve):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", candidates.STATE_PORT, ssl=tls.client_context(*files), server_hostname=""
        )
        await served.wait()
    assert await reader.read() == b""
    writer.close()
    assert unknown == []
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []
