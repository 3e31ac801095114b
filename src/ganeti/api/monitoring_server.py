"""The HTTP server of the monitoring daemon: reports of the node's collectors, readable by any client.

    GET /                                  [1], the versions of this interface
    GET /1                                 null
    GET /1/list/collectors                 [kind, category, name] of each active collector
    GET /1/report/all                      the reports of all of them
    GET /1/report/CATEGORY/COLLECTOR       one report; CATEGORY is `default` where there is none
    ?verbose=1                             all that judging collectors found, not only the judgement

No request changes anything. Every connection has one request and a time limit.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from ganeti.base.http_server import HttpServer, Limits
from ganeti.base.http_server import serving as http_serving
from ganeti.base.http_web import web
from ganeti.monitoring.collectors import Collectors
from ganeti.monitoring.report import NO_CATEGORY, Description, brief

VERSION = 1
LIMITS = Limits(
    connections=128,
    connections_of_address=128,
    answer_s=40.0,
    taken_s=10.0,
    linger_s=0.0,
)
READS = ("GET", "HEAD")

log = logging.getLogger(__name__)


class MonitoringServer:
    """Answers from `collectors`."""

    def __init__(self, collectors: Collectors) -> None:
        self._collectors = collectors

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer one request, after which the connection ends."""
        try:
            answer = await self._answered(request)
        except Exception:
            log.exception("unexpected error while answering %s", request.path)
            answer = refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "see the daemon's log")
        answer.force_close()
        return answer

    async def _answered(self, request: web.BaseRequest) -> web.Response:
        make = self._made(request)
        if make is None:
            why = (
                f"{request.path:.200} does not exist; see /1/list/collectors for the active "
                "collectors"
            )
            return refuse(HTTPStatus.NOT_FOUND, why)
        if request.method not in READS:
            answer = refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this interface is read-only: use GET")
            answer.headers["Allow"] = ",".join(READS)
            return answer
        return _json(await make())

    def _made(self, request: web.BaseRequest) -> Callable[[], Awaitable[Any]] | None:
        """Return the function that answers a path, if there is one."""
        active = self._collectors.active
        match request.path.split("/")[1:]:
            case [""]:
                return partial(_value, [VERSION])
            case ["1"]:
                return partial(_value, None)
            case ["1", "list", "collectors"]:
                return partial(
                    _value, [[int(one.kind), one.category, one.name] for one in active()]
                )
            case ["1", "report", "all"]:
                return partial(self._reports, request)
            case ["1", "report", category, name]:
                for one in active():
                    if (one.category or NO_CATEGORY, one.name) == (category, name):
                        return partial(self._report, one, request)
        return None

    async def _reports(self, request: web.BaseRequest) -> list[dict[str, Any]]:
        return [await self._report(one, request) for one in self._collectors.active()]

    async def _report(self, one: Description, request: web.BaseRequest) -> dict[str, Any]:
        report = await self._collectors.report(one)
        return report if request.query.get("verbose") == "1" else brief(report)


async def _value(value: object) -> object:
    return value


def refuse(status: HTTPStatus, why: str) -> web.Response:
    """Return an answer that refuses."""
    return _json({"code": status, "message": status.phrase, "explain": why}, status)


def _json(value: Any, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body + b"\n", content_type="application/json")


def serving(server: MonitoringServer, address: str, port: int) -> AbstractAsyncContextManager[int]:
    """Serve at `address` (empty: everywhere) for as long as the block runs; yields the port."""
    return http_serving(HttpServer(server.answer, refuse, LIMITS), address, port)
