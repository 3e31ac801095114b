"""Consoles of instances for pages: tickets, the WebSocket, pictures of screens."""

import base64
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Any

from ganeti.base.http_web import web
from ganeti.model import wire
from ganeti.model.operation import Parameter, Right, Value
from ganeti.web import bridge
from ganeti.web.application import Picture, Streamed
from ganeti.web.browsers import check_same_origin, is_browser
from ganeti.web.lists import Encoded
from ganeti.web.operations import Call, Operation, read
from ganeti.web.refusals import Refusal, bad_request, not_found
from ganeti.web.resources.instances import INSTANCE
from ganeti.web.scope import has_instance
from ganeti.web.services import Services
from ganeti.web.tickets import LIFE_S, Ticket

_KINDS = ("serial", "vnc")
_PERMISSION = "instance_console"
_TICKET = Parameter("ticket", Value.TEXT, "ticket of a console", is_required=True)
_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["kind"],
    "properties": {"kind": {"enum": list(_KINDS)}},
}


async def _issue(call: Call) -> Encoded:
    """Return a ticket for a console of an existing instance."""
    body = call.object_body()
    if set(body) != {"kind"} or body["kind"] not in _KINDS:
        raise bad_request('the body must be {"kind": "serial"} or {"kind": "vnc"}')
    _check_room(call.services, call.user.name)  # a page cannot read the refusal of a WebSocket
    (name,) = call.items
    await call.services.master.ask("QueryInstances", [name], ["name"], False)
    end = call.services.clock.monotonic() + LIFE_S
    text = call.services.tickets.issue(
        Ticket(call.user.name, call.session, name, body["kind"], end)
    )
    expires = call.services.clock.time() + LIFE_S
    found = {"ticket": text, "expires": expires, "path": f"/2/console?ticket={text}"}
    return Encoded(wire.encode(found), headers=(("Cache-Control", "no-store"),))


async def _console(call: Call) -> Streamed:
    return Streamed(partial(_serve, call))


async def _serve(call: Call, request: web.BaseRequest) -> web.StreamResponse:
    """Bridge one console; every refusal comes before the first byte of the guest."""
    if call.session is not None or is_browser(request.headers) or "Origin" in request.headers:
        check_same_origin(request.headers)
    services, scope = call.services, call.user.rights.scope
    now = services.clock.monotonic()
    ticket = services.tickets.redeem(
        call.arguments.needed("ticket"), call.user.name, call.session, now
    )
    if scope.is_restricted and not await has_instance(call, ticket.instance):
        raise not_found(f"instance {ticket.instance} does not exist for this user")
    _check_room(services, call.user.name)
    socket = web.WebSocketResponse(
        max_msg_size=bridge.MESSAGE_LIMIT, compress=False, heartbeat=bridge.PING_S
    )
    if not socket.can_prepare(request):
        raise bad_request("this is not a WebSocket; the path of a ticket is for one")
    services.bridges[call.user.name] += 1
    try:
        endpoint = await services.master.act(
            "OpenConsole",
            wire.plain(scope) if scope.is_restricted else None,
            ticket.instance,
            ticket.kind,
        )
        node = await bridge.connect(endpoint)
        try:
            await socket.prepare(request)
            await bridge.run(socket, node, partial(_used, call))
        finally:
            node[1].transport.abort()
    finally:
        services.bridges -= Counter((call.user.name,))
    return socket


def _check_room(services: Services, user: str) -> None:
    """Raise Refusal (429, 503) if the user or all users together have too many open consoles."""
    if (open_ones := services.bridges[user]) >= services.consoles_of_user:
        why = f"user {user}: {open_ones} consoles are open, which is the limit for one user; close one first"
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, why, {"Retry-After": "30"})
    if services.bridges.total() >= bridge.BRIDGES_LIMIT:
        why = f"{bridge.BRIDGES_LIMIT} consoles are open, which is the limit of this server; try again later"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why, {"Retry-After": "30"})


def _used(call: Call) -> None:
    if call.session is not None:
        call.services.sessions.use(call.session)


async def _screenshot(call: Call) -> Picture:
    """Return the present picture of an instance's screen."""
    name = call.items[0]
    known = await call.services.screens.picture(
        name, lambda: call.services.master.ask("InstanceScreenshot", name)
    )
    return Picture(base64.b64decode(known))


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", f"{INSTANCE}/console-ticket", "instances_name_console_ticket",
              "Return a ticket for a console in a page", Right.OPERATE, _issue, body_schema=_BODY,
              result="object", permission=_PERMISSION),
    Operation("GET", "/2/console", "console", "Connect a WebSocket with a console", Right.OPERATE, _console,
              (_TICKET,), permission=_PERMISSION, is_open=True),
    read(f"{INSTANCE}/screenshot", "instances_name_screenshot", "Return a picture of an instance's screen",
         _screenshot, right=Right.READ, result="picture"),
)  # fmt: skip
