"""Names and addresses, with the real resolver and real sockets on loopback."""

import asyncio
import socket

import pytest

from ganeti.base.errors import PrereqError
from ganeti.units import name_lookup


async def test_an_unknown_name_reports_the_remedy() -> None:
    with pytest.raises(PrereqError, match="--no-name-check"):
        await name_lookup.address_of("nosuch.invalid")


async def test_an_address_is_its_own_name() -> None:
    assert await name_lookup.address_of("127.0.0.1") == "127.0.0.1"


async def test_who_takes_a_connection_is_there() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await name_lookup.is_answering("127.0.0.1", port)
    server.close()
    await server.wait_closed()


async def test_who_refuses_a_connection_is_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert await name_lookup.is_answering("127.0.0.1", unused.getsockname()[1])


async def test_no_host_is_at_an_address_without_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_args: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(name_lookup, "ANSWER_S", 0.01)
    monkeypatch.setattr(asyncio, "open_connection", never)
    assert not await name_lookup.is_answering("192.0.2.1")
