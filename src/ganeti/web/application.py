"""Processing of one request: authentication, routing, permissions, execution and answer."""

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from ganeti.base.errors import GanetiError, InputError
from ganeti.base.http_web import web
from ganeti.model import wire
from ganeti.web.audit import Audit
from ganeti.web.bodies import read_body
from ganeti.web.browsers import check_origin, is_browser, wants_page
from ganeti.web.delays import LoginDelays
from ganeti.web.lists import Encoded, has_already
from ganeti.web.openapi import PAGE, PAGE_HEADERS
from ganeti.web.operations import ARGUMENTS_LIMIT, Arguments, Call, JobOf, Operation
from ganeti.web.refusals import Refusal, bad_request, error_body, forbidden, refusal_of
from ganeti.web.routes import Routes
from ganeti.web.scope import check_resource
from ganeti.web.services import Services
from ganeti.web.submission import KEY_HEADER, submit_job
from ganeti.web.users import REALM, User, Users, name_in

PASSED_HEADERS = (KEY_HEADER, "If-None-Match", "Last-Event-ID", "Accept")
CHALLENGE = {"WWW-Authenticate": f'Basic realm="{REALM}"'}
JSON = "application/json"
NO_ARGUMENTS = Arguments({})

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Streamed:
    """An answer that writes itself, such as a stream."""

    run: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Text:
    """An answer that is not JSON."""

    body: str
    content_type: str


class Application:
    """Answers requests by the tables of operations."""

    def __init__(
        self, operations: Sequence[Operation], services: Services, users: Users, audit: Audit
    ) -> None:
        self._services = services
        self._users = users
        self._audit = audit
        self._routes = Routes(operations)
        self._delays = LoginDelays(services.clock.monotonic)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer to one request; errors of clients and of this program become answers, too."""
        try:
            response = await self._answered(request)
        except Refusal as refusal:
            response = _unknown(request) if _is_unknown(refusal, request) else refused(refusal)
        except GanetiError as err:
            response = refused(refusal_of(err))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("internal error while answering a request")
            why = "internal error of the server; its log has the details"
            response = refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, why))
        if not request.content.is_eof():  # what was not read must not be taken for a request
            response.force_close()
        key = (request.method if len(request.method) < 10 else "other", response.status)  # noqa: PLR2004
        self._services.requests[key] = self._services.requests.get(key, 0) + 1
        return response

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        address = _address(request)
        user = await self._login(request, address)
        target = request.raw_path  # as it came, before anything was decoded
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            raise bad_request("the request line must have a path")
        operation, items = self._routes.find(request.method, path)
        headers = {
            name: request.headers[name] for name in PASSED_HEADERS if name in request.headers
        }
        call = Call(
            operation, items, _arguments(query), None, user, address, self._services, headers
        )
        is_change = operation.method != "GET"
        try:
            if is_change or operation.submits:
                check_origin(request.headers)
            call.arguments.check(operation)
            if not user.rights.may(operation.right, operation.permission):
                raise forbidden("this user lacks the right to do that")
            await check_resource(call)
            call.body = await read_body(request, operation.body_limit)
            result = await self._done(call)
        except (Refusal, GanetiError) as err:
            if is_change:
                refusal = err if isinstance(err, Refusal) else refusal_of(err)
                self._audit.note(call, refusal.status, refusal.explain)
            raise
        if is_change:
            self._audit.note(call, HTTPStatus.OK, "")
        return await _response(call, result, request)

    async def _login(self, request: web.BaseRequest, address: str) -> User:
        given = request.headers.getall("Authorization", [])
        if len(given) > 1:
            raise bad_request("more than one Authorization header")
        if not given:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "Log in with a name and a password", CHALLENGE)
        today = dt.datetime.fromtimestamp(self._services.clock.time(), dt.UTC).date()
        header = given[0]

        def check() -> User | None:
            user = self._users.login(header, today)
            if user is None and self._users.refresh():  # A user who was just added need not wait.
                user = self._users.login(header, today)
            return user

        try:
            user = await self._delays.login(address, name_in(header), header, check)
        except InputError as err:
            raise bad_request(err.message) from err
        if user is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "Wrong name or password", CHALLENGE)
        return user

    async def _done(self, call: Call) -> Any:
        does = call.operation.does
        if isinstance(does, JobOf):
            return await submit_job(call, does)
        return await does(call)


def _is_unknown(refusal: Refusal, request: web.BaseRequest) -> bool:
    """Return True if the answer needs a challenge; a browser gets none, because it would keep the password."""
    return refusal.status is HTTPStatus.UNAUTHORIZED and is_browser(request.headers)


def _unknown(request: web.BaseRequest) -> web.Response:
    if wants_page(request.headers):
        return web.Response(text=PAGE, content_type="text/html", status=401, headers=PAGE_HEADERS)
    return refused(Refusal(HTTPStatus.UNAUTHORIZED, "Log in with a name and a password"))


def _address(request: web.BaseRequest) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return str(peer[0]) if peer else "unknown"


def _arguments(query: str) -> Arguments:
    if not query:
        return NO_ARGUMENTS
    try:
        given = parse_qs(query, max_num_fields=ARGUMENTS_LIMIT, errors="strict")
    except ValueError as err:  # UnicodeDecodeError is one
        raise bad_request("the query is invalid, or has too many parameters") from err
    if any("\0" in text for texts in given.values() for text in texts):
        raise bad_request("the query contains a NUL character")
    return Arguments(given)


async def _response(call: Call, result: Any, request: web.BaseRequest) -> web.StreamResponse:
    if isinstance(result, Streamed):
        return await result.run(request)
    if isinstance(result, Text):
        headers = PAGE_HEADERS if result.content_type == "text/html" else {}
        return web.Response(text=result.body, content_type=result.content_type, headers=headers)
    if isinstance(result, Encoded):
        if has_already(call, result.etag):
            return web.Response(status=304, headers={"ETag": result.etag})
        headers = dict(result.headers)
        if result.etag:
            headers["ETag"] = result.etag
        return _json(result.body, HTTPStatus.OK, headers)
    return _json(wire.encode(result), HTTPStatus.OK, {})


def refused(refusal: Refusal) -> web.Response:
    """Return the answer for a refusal."""
    body = wire.encode(error_body(refusal.status, refusal.explain))
    return _json(body, refusal.status, refusal.headers)


def _json(body: bytes, status: HTTPStatus, headers: dict[str, str]) -> web.Response:
    return web.Response(
        status=status, body=body + b"\n", content_type=JSON, headers={**headers, "Server": "Ganeti"}
    )
