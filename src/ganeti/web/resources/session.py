"""The session of a browser: login, facts about its user, and the end."""

from http import HTTPStatus
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model import wire
from ganeti.model.operation import ROLES, Parameter, Right, Value
from ganeti.web.lists import Encoded
from ganeti.web.operations import Call, Operation
from ganeti.web.refusals import Refusal, bad_request
from ganeti.web.rights import Rights
from ganeti.web.sessions import COOKIE, LINK_PREFIX, Session, csrf_token
from ganeti.web.users import User, basic_header, bearer_header

_PATH = "/2/session"
_COOKIE_FORM = "{name}={value}; Path=/; Secure; HttpOnly; SameSite=Strict"
_ENDED = f"{_COOKIE_FORM.format(name=COOKIE, value='')}; Max-Age=0"
_EVERYWHERE = Parameter("everywhere", Value.FLAG, "end all sessions of the user")
_TEXT = {"type": "string"}
_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "description": "a name and its password, or a token, or the secret of a link",
    "properties": {
        "username": _TEXT,
        "password": _TEXT,
        "token": {**_TEXT, "description": "a token of the users file"},
        "link": {**_TEXT, "description": "the secret of gnt-cluster console-link"},
    },
}


async def _login(call: Call) -> Encoded:
    """Begin a session; Refusal (401, 429)."""
    body = call.object_body()
    if not all(isinstance(value, str) for value in body.values()):
        raise bad_request("name, password, token and link must be strings")
    role = ""
    match sorted(body):
        case ["password", "username"]:
            header = basic_header(body["username"], body["password"])
            user = await call.services.logins.check(header, call.address)
        case ["token"]:
            user = await call.services.logins.check(bearer_header(body["token"]), call.address)
        case ["link"]:
            user, role = await _of_link(call, body["link"])
        case _:
            raise bad_request("pass username and password, or a token, or a link")
    if user is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "Wrong name or password")
    call.user = user
    secret, call.session = await call.services.sessions.begin(user, role)
    cookie = _COOKIE_FORM.format(name=COOKIE, value=secret)
    return _answer(call, secret, call.session, cookie)


async def _of_link(call: Call, secret: str) -> tuple[User | None, str]:
    """Return the user of a login link, and the role if the link has one; PrereqError if it is not valid."""
    why, user, role = None, None, ""
    try:
        found = await call.services.master.act("RedeemLoginLink", secret)
    except PrereqError as err:
        if err.code is not ErrorCode.FORBIDDEN:
            raise
        why = err.message
    else:
        role = str(found["role"])
        if role:
            user = User(f"{LINK_PREFIX}{role}", Rights(ROLES[role]))
        else:
            user = call.services.logins.of_name(str(found["user"]))
            why = f"the users file has no user {found['user']}"
    user = await call.services.logins.of_link(user, secret, call.address)
    if user is None and why is not None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, why)
    return user, role


async def _show(call: Call) -> Encoded | None:
    """Return the session of the cookie; null without one, so that a page can ask whether its user has logged in."""
    if call.session is None:
        return None
    return _answer(call, call.session_secret, call.session)


async def _end(call: Call) -> Encoded:
    """End the session of the cookie, or all of its user; all of their requests end, too."""
    session = call.session
    if session is None:
        raise bad_request("this request has no cookie of a session")
    await call.services.sessions.end(session, everywhere=call.arguments.flag("everywhere"))
    return Encoded(b"null", headers=(("Set-Cookie", _ENDED), ("Cache-Control", "no-store")))


def _answer(call: Call, secret: str, session: Session, cookie: str = "") -> Encoded:
    rights, sessions = call.user.rights, call.services.sessions
    body = {
        "user": call.user.name,
        "rights": [one.value for one in Right if one in rights.rights],
        "operations": call.services.allowed(rights),
        "limited": rights.scope.is_restricted,
        "csrf": csrf_token(secret),
        "expires": sessions.expires(session),
        "idle_s": sessions.idle_s,
        "now": call.services.clock.time(),
    }
    headers = (("Cache-Control", "no-store"), *((("Set-Cookie", cookie),) if cookie else ()))
    return Encoded(wire.encode(body), headers=headers)


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", _PATH, "session", "Log in with a browser", Right.KNOWN, _login, body_schema=_BODY,
              result="object", is_open=True, is_public=True),
    Operation("GET", _PATH, "session", "Return the user and the rights of a session, or null", Right.KNOWN, _show,
              result="object", is_open=True, is_public=True),
    Operation("DELETE", _PATH, "session", "End a session", Right.KNOWN, _end, (_EVERYWHERE,), is_open=True),
)  # fmt: skip
