"""Error answers in the form that clients expect: `{"code", "message", "explain"}`."""

from http import HTTPStatus

from ganeti.base.errors import (
    ErrorCode,
    GanetiError,
    InputError,
    JobLost,
    JobQueueDrained,
    JobQueueFull,
    NotMaster,
    PrereqError,
    RpcError,
)
from ganeti.base.terminal import escaped
from ganeti.protocols.luxi import RemoteError

EXPLAIN_LIMIT = 1000
_OF_CODE = {
    ErrorCode.UNKNOWN_ENTITY: HTTPStatus.NOT_FOUND,
    ErrorCode.WRONG_INPUT: HTTPStatus.BAD_REQUEST,
    ErrorCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.RESOLVER: HTTPStatus.BAD_REQUEST,
    ErrorCode.FORBIDDEN: HTTPStatus.FORBIDDEN,
}
_NO_METHOD = "Failed to parse request: no method"


class Refusal(Exception):
    """An answer with an error status and `headers`."""

    def __init__(
        self, status: HTTPStatus, explain: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(explain)
        self.status = status
        self.explain = explain
        self.headers = headers or {}

    def body(self) -> dict[str, object]:
        """Body of the answer."""
        return error_body(self.status, self.explain)


def error_body(status: HTTPStatus, explain: str) -> dict[str, object]:
    """Return `{"code", "message", "explain"}` without control characters for terminals."""
    text = escaped(explain, EXPLAIN_LIMIT)
    return {"code": status.value, "message": status.phrase, "explain": text}


def bad_request(explain: str) -> Refusal:
    """Return a Refusal for an invalid request."""
    return Refusal(HTTPStatus.BAD_REQUEST, explain)


def forbidden(explain: str) -> Refusal:
    """Return a Refusal for a missing right."""
    return Refusal(HTTPStatus.FORBIDDEN, explain)


def not_found(explain: str) -> Refusal:
    """Return a Refusal for an object that does not exist."""
    return Refusal(HTTPStatus.NOT_FOUND, explain)


def refusal_of(err: GanetiError) -> Refusal:
    """Return the Refusal for an error of this server or of the master."""
    if isinstance(err, InputError):
        return bad_request(err.message)
    if isinstance(err, PrereqError):
        return Refusal(_OF_CODE.get(err.code, HTTPStatus.CONFLICT), err.message)
    if isinstance(err, JobLost):
        return not_found(err.message)
    if isinstance(err, JobQueueFull | JobQueueDrained):
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, err.message, {"Retry-After": "30"})
    if isinstance(err, NotMaster | RpcError):
        return Refusal(HTTPStatus.BAD_GATEWAY, err.message)
    if isinstance(err, RemoteError) and err.message.startswith(_NO_METHOD):
        return Refusal(HTTPStatus.NOT_IMPLEMENTED, "the master does not support this request")
    if isinstance(err, RemoteError) and err.message.startswith("Failed to parse request"):
        return bad_request(err.message)
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, err.message)
