"""The HTTP face of the monitoring daemon: reports of the node's collectors, for all that may reach it.

    GET /                                  [1], the versions of this interface
    GET /1                                 null
    GET /1/list/collectors                 [kind, category, name] of each active collector
    GET /1/report/all                      the reports of all of them
    GET /1/report/CATEGORY/COLLECTOR       one report; CATEGORY is `default` where there is none
    ?verbose=1                             all that judging collectors found, not only the judgement

Nothing is changed by any request. Every connection has one request, and a limited time for it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ganeti.base.http import web
from ganeti.monitoring.collectors import Collectors
from ganeti.monitoring.report import NO_CATEGORY, Description, brief

VERSION = 1
MOST_CONNECTIONS = 128
HEADER_LIMIT = 8 * 1024
HEADER_COUNT_LIMIT = 100
REQUEST_LIMIT_S = 10.0
"""Seconds in which a request must have arrived whole, and an answer must have been taken."""
ANSWER_LIMIT_S = 40.0
"""Seconds in which an answer is made."""
LOOK_INTERVAL_S = 1.0

log = logging.getLogger(__name__)
_noise = logging.getLogger(f"{__name__}.clients")
"""What clients send wrongly fills no log."""
_noise.setLevel(logging.CRITICAL)


class MonitoringServer:
    """Answers from `collectors`."""

    def __init__(self, collectors: Collectors) -> None:
        self._collectors = collectors
        self._ends: dict[Any, float] = {}
        """When (loop time) the time of a connection is over."""

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._bounded])
        application.router.add_get("/", self._versions)
        application.router.add_get("/1", self._nothing)
        application.router.add_get("/1/list/collectors", self._list)
        application.router.add_get("/1/report/all", self._all)
        application.router.add_get("/1/report/{category}/{name}", self._one)
        return application

    @web.middleware
    async def _bounded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self._ends[request.protocol] = asyncio.get_running_loop().time() + ANSWER_LIMIT_S
        try:
            answer = await handler(request)
        except web.HTTPException as refusal:
            body = {
                "code": refusal.status,
                "message": refusal.reason,
                "explain": _why(refusal, request),
            }
            answer = _json(body, refusal.status)
            if allowed := refusal.headers.get("Allow"):
                answer.headers["Allow"] = allowed
        except Exception:
            log.exception("a fault of this program while it answered %s", request.path)
            body = {
                "code": 500,
                "message": "Internal Server Error",
                "explain": "see the daemon's log",
            }
            answer = _json(body, 500)
        answer.force_close()
        self._ends[request.protocol] = asyncio.get_running_loop().time() + REQUEST_LIMIT_S
        return answer

    async def _versions(self, _request: web.Request) -> web.Response:
        return _json([VERSION])

    async def _nothing(self, _request: web.Request) -> web.Response:
        return _json(None)

    async def _list(self, _request: web.Request) -> web.Response:
        return _json([[int(one.kind), one.category, one.name] for one in self._collectors.active()])

    async def _all(self, request: web.Request) -> web.Response:
        reports = [await self._report(one, request) for one in self._collectors.active()]
        return _json(reports)

    async def _one(self, request: web.Request) -> web.Response:
        category, name = request.match_info["category"], request.match_info["name"]
        for one in self._collectors.active():
            if (one.category or NO_CATEGORY, one.name) == (category, name):
                return _json(await self._report(one, request))
        raise web.HTTPNotFound

    async def _report(self, one: Description, request: web.Request) -> dict[str, Any]:
        report = await self._collectors.report(one)
        return report if request.query.get("verbose") == "1" else brief(report)

    def cut_slow(self, connections: Collection[Any], now: float) -> None:
        """End the connections whose time is over; forget those that are gone."""
        before = self._ends
        self._ends = {one: before.get(one, now + REQUEST_LIMIT_S) for one in connections}
        for one, end in self._ends.items():
            if now > end and one.transport is not None:
                one.transport.abort()


def _json(value: Any, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body + b"\n", content_type="application/json")


def _why(refusal: web.HTTPException, request: web.Request) -> str:
    if refusal.status == web.HTTPMethodNotAllowed.status_code:
        return "this interface only reads: use GET"
    return f"there is no {request.path:.200}; see /1/list/collectors for what is active"


class _TooMany(asyncio.Protocol):
    """Hangs up at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


@asynccontextmanager
async def serving(server: MonitoringServer, address: str, port: int) -> AsyncIterator[int]:
    """Serve at `address` (empty: everywhere) for as long as the block runs; yields the port."""
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        logger=_noise,
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
        max_headers=HEADER_COUNT_LIMIT,
        lingering_time=0.0,
        shutdown_timeout=LOOK_INTERVAL_S,
    )
    await runner.setup()
    inner = runner.server
    assert inner is not None  # noqa: S101 - `setup` made it

    def accepted() -> asyncio.Protocol:
        return _TooMany() if len(inner.connections) >= MOST_CONNECTIONS else inner()

    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(accepted, address or None, port, reuse_address=True)
        cutter = asyncio.create_task(_cut_slow(server, inner), name="cut slow connections")
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            cutter.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await cutter
            listener.close()
    finally:
        await runner.cleanup()


async def _cut_slow(server: MonitoringServer, inner: web.Server) -> None:
    while True:
        server.cut_slow(inner.connections, asyncio.get_running_loop().time())
        await asyncio.sleep(LOOK_INTERVAL_S)
