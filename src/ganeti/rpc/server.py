"""The node's end of the RPC: HTTPS, only for the certificates of master candidates (G22).

    POST /rpc/PROCEDURE    arguments as JSON
    X-Ganeti-Epoch, X-Ganeti-Master, X-Ganeti-Key    the `Call`
    200 {"result": …}      with X-Ganeti-Hooks if the call has a key; else {"error": wire name, "message": …, "code": …}

The `Gate` checks the caller and the epoch of each call. A changing call continues to its end if its
caller disconnects.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from ganeti.base.call_programs import CallPrograms
from ganeti.base.errors import GanetiError, InputError, PrereqError
from ganeti.base.http_server import HttpServer, Limits
from ganeti.base.http_server import serving as http_serving
from ganeti.base.http_web import web
from ganeti.base.tls import peer_fingerprint
from ganeti.model import wire
from ganeti.rpc.calls import Call, Checks, Handlers, concerned_instance
from ganeti.rpc.headers import (
    ACCESS_DENIED,
    EPOCH_HEADER,
    EPOCH_REFUSED,
    HOOKS_HEADER,
    KEY_HEADER,
    MASTER_HEADER,
    UNKNOWN_PROCEDURE,
)
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.form import Procedure

BODY_LIMIT = 64 * 1024 * 1024
BODY_TIMEOUT_S = 30.0
LIMITS = Limits(
    connections_of_address=Limits.connections,  # a master has many calls in progress
    body_bytes=BODY_LIMIT,
    idle_s=120.0,  # longer than the client's, so that the client closes first and never calls into a closing connection
    close_s=5.0,
    shutdown_s=5.0,
)
REMEMBERED_STRANGERS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunningCall:
    """A running changing call; `instance` is the name of its instance."""

    procedure: str
    call: Call
    instance: str = ""

    @property
    def text(self) -> str:
        """Return `procedure key`."""
        return f"{self.procedure} {self.call.key}".rstrip()


class RunningCalls:
    """The changing calls in progress on this node; they continue after their caller disconnects."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], RunningCall] = {}
        self.programs = CallPrograms()
        """Programs of any calls, not only changing ones, that end with the node daemon."""

    def older_than(self, epoch: int) -> list[str]:
        """Return `procedure key` of each call that an older epoch's master sent (R8, R11)."""
        return sorted(one.text for one in self._running.values() if one.call.epoch < epoch)

    def with_key(self, key: str) -> RunningCall | None:
        """Return the call that has this key."""
        return next((one for one in self._running.values() if one.call.key == key), None)

    async def ended(
        self, is_awaited: Callable[[RunningCall], bool], limit_s: float
    ) -> list[RunningCall]:
        """Wait until these calls have ended; return the ones that still run after the time limit."""
        tasks = {task for task, one in self._running.items() if is_awaited(one)}
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        return [one for task, one in self._running.items() if task in tasks]

    async def run(
        self, procedure: str, call: Call, work: Coroutine[Any, Any, Any], *, instance: str = ""
    ) -> Any:
        """Run a call; `work` continues if its caller is cancelled."""
        task = asyncio.create_task(work, name=f"call {procedure} {call.key}")
        self._running[task] = RunningCall(procedure, call, instance)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the remaining calls; long work continues in its own scope."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        if not task.cancelled():
            task.exception()  # its caller gets the error, if it still waits


@dataclass(frozen=True)
class Gate:
    """The server's checks of callers and calls."""

    allowed: Callable[[], frozenset[str]]
    """Fingerprints of the master candidates; an empty set denies every caller."""
    check_epoch: Callable[[int, str], Awaitable[str | None]]
    """Returns why a changing call of this epoch and master is refused; None if it is accepted (R2)."""
    checks: Checks = field(default_factory=dict)
    """Checks of arguments, made before the epoch of a call is recorded."""


class _Refused(Exception):
    def __init__(self, status: int, error: str, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.error, self.message, self.code = status, error, message, code


class RpcServer:
    """Answers calls with `handlers`."""

    def __init__(
        self,
        handlers: Handlers,
        gate: Gate,
        running: RunningCalls | None = None,
        *,
        hooks: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`hooks` returns the node's report of its hook directories, for the header of an answer."""
        self._handlers = handlers
        self._gate = gate
        self._hooks = hooks
        self.running = running or RunningCalls()
        self._strangers: set[str] = set()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        try:
            self._check_caller(request)
            answer = await self._carry_out(request)
        except _Refused as why:
            return _error(why.status, why.error, why.message, why.code)
        except GanetiError as err:
            code = str(err.code) if isinstance(err, PrereqError) else ""
            return _error(500, err.wire_name, err.message, code)
        except web.HTTPRequestEntityTooLarge:
            return _error(413, "ProtocolError", f"a call may have {BODY_LIMIT} bytes")
        except Exception:
            log.exception("unexpected error while answering %s", request.path)
            what = f"unexpected error of the node daemon in {request.path}: see its log on the node"
            return _error(500, "GenericError", what)
        # Calls with a key are those of jobs, around which hooks run.
        report = self._hooks() if KEY_HEADER in request.headers else None
        headers = {"Content-Type": "application/json"}
        if report is not None:
            headers[HOOKS_HEADER] = report
        return web.Response(body=answer, headers=headers)

    def _check_caller(self, request: web.BaseRequest) -> None:
        caller = peer_fingerprint(request.transport)
        if caller is not None and caller in self._gate.allowed():
            return
        known_by = f"{caller or 'no certificate'} at {request.remote}"
        if known_by not in self._strangers and len(self._strangers) < REMEMBERED_STRANGERS:
            self._strangers.add(known_by)
            log.warning("refused a call: %s is not a master candidate (logged once)", known_by)
        raise _Refused(403, ACCESS_DENIED, "only master candidates may call this node")

    async def _carry_out(self, request: web.BaseRequest) -> bytes:
        procedure = self._procedure(request)
        call = _call(request)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refused(415, "ProtocolError", "calls must not be compressed")
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
        except TimeoutError:
            raise _Refused(
                408, "ProtocolError", f"the call took over {BODY_TIMEOUT_S:g} s to arrive"
            ) from None
        try:
            arguments = wire.decode(body or b"{}", procedure.arguments, what=procedure.name)
        except InputError as err:
            raise _Refused(400, err.wire_name, err.message, str(err.code)) from None
        with self.running.programs.of(call.key):
            result = await self._result(procedure, arguments, call)
        return b'{"result":' + wire.encode(result) + b"}"

    async def _result(self, procedure: Procedure[Any, Any], arguments: Any, call: Call) -> Any:
        handler = self._handlers[procedure.name]
        if not procedure.changes:
            return await handler(arguments, call)
        if check := self._gate.checks.get(procedure.name):
            await asyncio.to_thread(check, arguments)
        if why := await self._gate.check_epoch(call.epoch, call.master_uuid):
            raise _Refused(409, EPOCH_REFUSED, why)
        work = _started(handler(arguments, call))
        return await self.running.run(
            procedure.name, call, work, instance=concerned_instance(arguments)
        )

    def _procedure(self, request: web.BaseRequest) -> Procedure[Any, Any]:
        if request.method != "POST":
            raise _Refused(400, "ProtocolError", "calls are POST requests")
        head, _, name = request.path.rpartition("/")
        procedure = PROCEDURES.get(name) if head == "/rpc" else None
        if procedure is None or name not in self._handlers:
            raise _Refused(404, UNKNOWN_PROCEDURE, f"this node has no procedure {name!r:.60}")
        return procedure


async def _started(answer: Awaitable[Any]) -> Any:
    return await answer


def _call(request: web.BaseRequest) -> Call:
    epoch = request.headers.get(EPOCH_HEADER, "0")
    if not (epoch.isascii() and epoch.isdecimal() and len(epoch) <= 10):  # noqa: PLR2004 - 31 bits
        raise _Refused(400, "ProtocolError", f"{EPOCH_HEADER} is not a number")
    headers = request.headers
    return Call(int(epoch), headers.get(MASTER_HEADER, ""), headers.get(KEY_HEADER, ""))


def _error(status: int, error: str, message: str, code: str = "") -> web.Response:
    body = msgspec.json.encode({"error": error, "message": message, "code": code})
    return web.Response(status=status, body=body, content_type="application/json")


def _refuse(status: HTTPStatus, why: str) -> web.Response:
    return _error(status, "ProtocolError", why)


@asynccontextmanager
async def serving(
    server: RpcServer, context: ssl.SSLContext, address: str, port: int
) -> AsyncIterator[int]:
    """Serve at `address` for as long as the block runs; yields the port."""
    http = HttpServer(server.answer, _refuse, LIMITS)
    try:
        async with http_serving(http, address, port, context) as listening:
            yield listening
    finally:
        await server.running.close()
