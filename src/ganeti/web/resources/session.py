"""The session of a browser: login, facts about its user, and the end."""

from http import HTTPStatus
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model import wire
from ganeti.model.operation import ROLES, Parameter, Right, Value
from ganeti.model.rest_rights import Rights
from ganeti.model.rest_users import User
from ganeti.web.lists import Encoded
from ganeti.web.operations import Call, Operation
from ganeti.web.refusals import Refusal, bad_request
from ganeti.web.sessions import COOKIE, LINK_PREFIX, Session, csrf_token
from ganeti.web.users import basic_header, bearer_header

_PATH = "/2/session"
_OPENID = "/2/session/openid"
_COOKIE_FORM = "{name}={value}; Path=/; Secure; HttpOnly; SameSite=Strict"
_ENDED = f"{_COOKIE_FORM.format(name=COOKIE, value='')}; Max-Age=0"
_EVERYWHERE = Parameter("everywhere", Value.FLAG, "end all sessions of the user")
_TEXT = {"type": "string"}
_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "description": "a name and its password, a token, the secret of a link, or the answer of the OpenID provider",
    "properties": {
        "username": _TEXT,
        "password": _TEXT,
        "token": {**_TEXT, "description": "a token of the users file"},
        "link": {**_TEXT, "description": "the secret of gnt-cluster console-link"},
        "code": {
            **_TEXT,
            "description": "the code with which the OpenID provider has sent the browser back",
        },
        "state": {**_TEXT, "description": "the state beside the code"},
        "secret": {**_TEXT, "description": "the secret that POST /2/session/openid has returned"},
    },
}


async def _login(call: Call) -> Encoded:
    """Begin a session; Refusal (401, 429)."""
    body = call.object_body()
    if not all(isinstance(value, str) for value in body.values()):
        raise bad_request("every value must be a string")
    role, groups = "", list[str]()
    match sorted(body):
        case ["password", "username"]:
            header = basic_header(body["username"], body["password"])
            user = await call.services.logins.check(header, call.address)
        case ["token"]:
            user = await call.services.logins.check(bearer_header(body["token"]), call.address)
        case ["link"]:
            user, role = await _of_link(call, body["link"])
        case ["code", "secret", "state"]:
            given = body["code"], body["state"], body["secret"]
            user, groups = await call.services.logins.of_code(*given, call.address)
        case _:
            raise bad_request(
                "pass username and password, or a token, a link, or code, state and secret"
            )
    if user is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "Wrong name or password")
    call.user = user
    secret, call.session = await call.services.sessions.begin(user, role, groups)
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


async def _provider(call: Call) -> dict[str, Any] | None:
    """Return what the page shows on the button of the OpenID provider; null without a provider."""
    call.services.openid.refresh()  # The page asks once, perhaps right after the file was written.
    settings = call.services.openid.settings
    return {"label": settings.label} if settings is not None else None


async def _begin_openid(call: Call) -> Encoded:
    """Begin a login by the OpenID provider; Refusal (404, 502)."""
    url, secret = await call.services.openid.begin()
    body = wire.encode({"url": url, "secret": secret})
    return Encoded(body, headers=(("Cache-Control", "no-store"),))


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
              result="optional", is_open=True, is_public=True),
    Operation("GET", _OPENID, "session_openid", "Return the label of the OpenID provider, or null", Right.KNOWN,
              _provider, result="optional", is_open=True, is_public=True),
    Operation("POST", _OPENID, "session_openid", "Return the address at which the OpenID provider logs a browser in",
              Right.KNOWN, _begin_openid, result="object", is_open=True, is_public=True),
    Operation("DELETE", _PATH, "session", "End a session", Right.KNOWN, _end, (_EVERYWHERE,), is_open=True),
)  # fmt: skip
