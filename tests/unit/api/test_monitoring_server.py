"""The monitoring daemon's HTTP face over real sockets, with clients of every kind."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ganeti.api import monitoring_server
from ganeti.api.monitoring_server import MonitoringServer, serving
from ganeti.base import http_server
from ganeti.base.paths import Paths
from ganeti.model.data_collectors import Collecting, collecting
from ganeti.monitoring.collectors import Collectors, Host

ADDRESS = "127.0.0.1"


@asynccontextmanager
async def a_server(root: Path, *, off: str = "lv") -> AsyncIterator[int]:
    proc = root / "proc"
    proc.mkdir()
    (proc / "diskstats").write_text("7 0 loop0 1 2 3 4 5 6 7 8 9 10 11\n")
    (proc / "drbd").write_text("version: 8.4.11\n 0: cs:Unconfigured\n")
    wanted = collecting({}, {}) | {off: Collecting(active=False)}
    collectors = Collectors(Host(Paths(root), proc), lambda: wanted)
    async with serving(MonitoringServer(collectors), ADDRESS, 0) as port:
        yield port


async def said(port: int, sent: bytes) -> bytes:
    """All that the server answers to these bytes."""
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    try:
        writer.write(sent)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def get(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    answer = await said(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    return int(head.split()[1]), json.loads(body) if body else None


async def test_each_address_answers_as_monitoring_systems_know_it(tmp_path: Path) -> None:
    async with a_server(tmp_path) as port:
        assert await get(port, "/") == (200, [1])
        assert await get(port, "/1") == (200, None)
        _status, listed = await get(port, "/1/list/collectors")
        assert [0, "storage", "diskstats"] in listed
        assert [0, None, "cpu-avg-load"] in listed
        _status, every = await get(port, "/1/report/all")
        assert [one["name"] for one in every] == [name for _kind, _category, name in listed]
        _status, one = await get(port, "/1/report/storage/diskstats")
        assert one["data"][0]["name"] == "loop0"
        assert one["timestamp"] > 10**18
        assert (await get(port, "/1/report/default/cpu-avg-load"))[0] == 200


async def test_the_whole_finding_of_a_judging_collector_is_asked_for(tmp_path: Path) -> None:
    async with a_server(tmp_path) as port:
        _status, brief = await get(port, "/1/report/storage/drbd")
        assert set(brief["data"]) == {"status"}
        _status, whole = await get(port, "/1/report/storage/drbd?verbose=1")
        assert set(whole["data"]) == {"status", "versionInfo", "deviceInfos"}


@pytest.mark.parametrize(
    "path",
    ["/2", "/1/report/storage/lv", "/1/report/default/drbd", "/1/report", "/1/report/all/x/y"],
)
async def test_what_is_not_there_or_switched_off_is_not_found(tmp_path: Path, path: str) -> None:
    async with a_server(tmp_path) as port:
        status, body = await get(port, path)
        assert (status, body["code"]) == (404, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_can_be_changed(tmp_path: Path, method: str) -> None:
    async with a_server(tmp_path) as port:
        assert (await get(port, "/1/report/all", method))[0] == 405


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 500 + b"\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_requests_beyond_the_limits_are_refused(tmp_path: Path, sent: bytes) -> None:
    async with a_server(tmp_path) as port:
        assert (await said(port, sent)).split()[1] in (b"400", b"414", b"431")
        assert (await get(port, "/"))[0] == 200


@pytest.mark.requirement("A7")
async def test_a_client_that_never_finishes_its_request_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(monitoring_server.LIMITS, headers_s=0.1)
    monkeypatch.setattr(monitoring_server, "LIMITS", limits)
    monkeypatch.setattr(http_server, "LOOK_INTERVAL_S", 0.02)
    async with a_server(tmp_path) as port:
        async with asyncio.timeout(20):
            assert await said(port, b"GET / HTTP/1.1\r\nX: ") == b""
            assert await said(port, b"") == b""
        assert (await get(port, "/"))[0] == 200


async def test_more_connections_than_the_limit_are_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        monitoring_server, "LIMITS", replace(monitoring_server.LIMITS, connections=2)
    )
    async with a_server(tmp_path) as port:
        idle = [await asyncio.open_connection(ADDRESS, port) for _ in range(2)]
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await said(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        for _reader, writer in idle:
            writer.close()
