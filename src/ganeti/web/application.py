"""Processing of one request: authentication, routing, permissions, execution and answer."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from ganeti.base.errors import GanetiError
from ganeti.base.http_web import web
from ganeti.model import wire
from ganeti.model.operation import Right
from ganeti.model.rest_rights import Rights
from ganeti.model.rest_users import REALM, User
from ganeti.web.audit import Recorded
from ganeti.web.bodies import Incoming, read_body
from ganeti.web.browsers import check_origin, is_browser, wants_page
from ganeti.web.lists import Encoded, has_already
from ganeti.web.openapi import PAGE, PAGE_HEADERS
from ganeti.web.operations import ARGUMENTS_LIMIT, Arguments, Call, JobOf, Operation
from ganeti.web.refusals import Refusal, bad_request, error_body, forbidden, refusal_of
from ganeti.web.routes import Routes
from ganeti.web.scope import check_resource
from ganeti.web.services import Services
from ganeti.web.sessions import COOKIE, Session, csrf_token
from ganeti.web.submission import KEY_HEADER, submit_job
from ganeti.web.ui_files import PREFIX, is_ui

PASSED_HEADERS = (KEY_HEADER, "If-None-Match", "Last-Event-ID", "Accept")
CHALLENGE = {"WWW-Authenticate": f'Basic realm="{REALM}"'}
JSON = "application/json"
EVERY = {"Server": "Ganeti", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer in JSON: names and tags in it are never taken for a page (A69)."""
NO_ARGUMENTS = Arguments({})
CSRF_HEADER, BACKGROUND_HEADER = "X-Csrf-Token", "X-Background"
_NOBODY = User("", Rights())

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Streamed:
    """An answer that writes itself, such as a stream."""

    run: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Picture:
    """An answer that is a PNG picture."""

    body: bytes


@dataclass(frozen=True)
class Text:
    """An answer that is not JSON."""

    body: str
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Application:
    """Answers requests by the tables of operations."""

    def __init__(self, operations: Sequence[Operation], services: Services) -> None:
        self._services = services
        self._audit = services.audit
        self._routes = Routes(operations)
        self._public = {(one.method, one.path) for one in operations if one.is_public}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer to one request; errors of clients and of this program become answers, too."""
        try:
            response = await self._answered(request)
        except Refusal as refusal:
            response = (
                _unknown(refusal, request) if _is_unknown(refusal, request) else refused(refusal)
            )
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
        target = request.raw_path  # as it came, before anything was decoded
        path, _, query = target.partition("?")
        if is_ui(path) or _wants_console(path, request):
            if not path.startswith(PREFIX):
                return web.Response(status=303, headers={"Location": PREFIX})
            return await self._services.ui.answer(request.method, path, request.headers)
        address = _address(request)
        who = await self._login(request, path, address)
        if not path.startswith("/"):
            raise bad_request("the request line must have a path")
        operation, items = self._routes.find(request.method, path)
        headers = {
            name: request.headers[name] for name in PASSED_HEADERS if name in request.headers
        }
        call = Call(
            operation, items, _arguments(query), None, who.user, address, self._services, headers,
            who.session, who.secret,
        )  # fmt: skip
        if who.session is None:
            return await self._carried_out(call, request)
        if BACKGROUND_HEADER not in request.headers:
            self._services.sessions.use(who.session)
        with who.session.holding():
            return await self._carried_out(call, request)

    async def _carried_out(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        operation, user = call.operation, call.user
        is_change = operation.method != "GET"
        is_recorded = is_change and operation.right is not Right.READ
        try:
            if is_change or operation.submits:
                check_origin(request.headers)
                _check_csrf(call, request)
            call.arguments.check(operation)
            if not user.rights.may(operation.right, operation.permission):
                raise forbidden("this user lacks the right to do that")
            await check_resource(call)
            if operation.is_stream:
                call.body = Incoming(request)
            else:
                call.body = await read_body(request, operation.body_limit)
            result = await self._done(call)
        except (Refusal, GanetiError) as err:
            if isinstance(call.body, Incoming):
                await call.body.discard()
            if is_recorded and not operation.is_public:  # guesses must not fill the log
                refusal = err if isinstance(err, Refusal) else refusal_of(err)
                self._audit.note(_recorded(call), refusal.status, refusal.explain)
            raise
        if is_recorded and (call.job_ids or not operation.is_stream):  # a piece is no change
            self._audit.note(_recorded(call), HTTPStatus.OK, "")
        return await _response(call, result, request)

    async def _login(self, request: web.BaseRequest, path: str, address: str) -> "_Who":
        if (request.method, path) in self._public:
            secret = _cookie(request) if request.method == "GET" else ""
            of_cookie = await self._services.sessions.find(secret) if secret else None
            return _Who(*of_cookie, secret) if of_cookie else _Who(_NOBODY)
        given = request.headers.getall("Authorization", [])
        if len(given) > 1:
            raise bad_request("more than one Authorization header")
        if given:
            user = await self._services.logins.check(given[0], address)
            if user is None:
                raise Refusal(HTTPStatus.UNAUTHORIZED, "Wrong name or password", CHALLENGE)
            return _Who(user)
        secret = _cookie(request)
        if not secret:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "Log in with a name and a password", CHALLENGE)
        found = await self._services.sessions.find(secret)
        if found is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the session has ended; log in again")
        return _Who(*found, secret)

    async def _done(self, call: Call) -> Any:
        does = call.operation.does
        if isinstance(does, JobOf):
            return await submit_job(call, does)
        return await does(call)


@dataclass(frozen=True)
class _Who:
    """The user of a request, and how the user logged in."""

    user: User
    session: Session | None = None
    secret: str = field(default="", repr=False)


def _recorded(call: Call) -> Recorded:
    path = call.operation.path
    for kind, item in zip(call.operation.kinds, call.items, strict=True):
        path = path.replace("{" + kind + "}", item, 1)
    reason = call.arguments.text("reason")
    return Recorded(call.user.name, call.address, call.operation.method, path, reason, call.job_ids)


def _cookie(request: web.BaseRequest) -> str:
    """Return the secret of the session's cookie, or ''; Refusal if there are two."""
    found = []
    for header in request.headers.getall("Cookie", []):
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE:
                found.append(value)
    if len(found) > 1:
        raise bad_request(f"more than one cookie {COOKIE}")
    return found[0] if found else ""


def _check_csrf(call: Call, request: web.BaseRequest) -> None:
    """Raise Refusal (403) if a request by cookie lacks the session's token."""
    if call.session is None:
        return
    given = request.headers.get(CSRF_HEADER, "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, csrf_token(call.session_secret).encode()):
        raise forbidden(f"the header {CSRF_HEADER} must have the token that GET /2/session returns")


def _wants_console(path: str, request: web.BaseRequest) -> bool:
    """Return True if a browser has opened the address of the server without a path."""
    is_page = path == "/" and request.method == "GET" and wants_page(request.headers)
    return is_page and "Authorization" not in request.headers


def _is_unknown(refusal: Refusal, request: web.BaseRequest) -> bool:
    """Return True if the answer needs a challenge; a browser gets none, because it would keep the password."""
    return refusal.status is HTTPStatus.UNAUTHORIZED and is_browser(request.headers)


def _unknown(refusal: Refusal, request: web.BaseRequest) -> web.Response:
    if wants_page(request.headers):
        return web.Response(text=PAGE, content_type="text/html", status=401, headers=PAGE_HEADERS)
    return refused(Refusal(refusal.status, refusal.explain))


def _address(request: web.BaseRequest) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return str(peer[0]) if peer else "unknown"


def _arguments(query: str) -> Arguments:
    if not query:
        return NO_ARGUMENTS
    try:
        given = parse_qs(
            query, keep_blank_values=True, max_num_fields=ARGUMENTS_LIMIT, errors="strict"
        )
    except ValueError as err:  # UnicodeDecodeError is one
        raise bad_request("the query is invalid, or has too many parameters") from err
    if any("\0" in text for texts in given.values() for text in texts):
        raise bad_request("the query contains a NUL character")
    return Arguments(given)


async def _response(call: Call, result: Any, request: web.BaseRequest) -> web.StreamResponse:
    if isinstance(result, Streamed):
        return await result.run(request)
    if isinstance(result, Picture):
        headers = {**EVERY, "Cache-Control": "no-store"}
        return web.Response(body=result.body, content_type="image/png", headers=headers)
    if isinstance(result, Text):
        return web.Response(
            text=result.body, content_type=result.content_type, headers=result.headers
        )
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
        status=status, body=body + b"\n", content_type=JSON, headers={**headers, **EVERY}
    )
