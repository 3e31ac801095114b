"""The errors of the client.

RestError
├── Unreachable            no answer; the request has had no effect
│   └── OutcomeUnknown     no answer after the request was sent; it may have had its effect
├── Untrusted              the server's certificate is not valid for this client
├── Refused                the server's answer is an error; `explain` is its text
│   ├── InvalidRequest     400, 422
│   ├── Unauthorized       401
│   ├── Forbidden          403
│   ├── NotFound           404
│   ├── Conflict           409
│   └── ServerBusy         429, 502, 503, 504
├── JobFailed              the job has ended, and not with success
└── JobTimeout             the job has not ended in time
"""

from http import HTTPStatus


class RestError(Exception):
    """Any error of this package."""


class Unreachable(RestError):
    """The server does not answer, and the request has had no effect."""


class OutcomeUnknown(Unreachable):
    """The connection broke after a request for a change was sent: read the state before repeating it."""


class Untrusted(RestError):
    """The server's certificate does not fit the address or the authority; nothing was sent."""


class Refused(RestError):
    """The server refuses the request; the message is the server's."""

    def __init__(self, code: int, message: str, explain: str) -> None:
        super().__init__(explain or message)
        self.code = code
        self.message = message
        self.explain = explain


class InvalidRequest(Refused):
    """The request is invalid; the message names the invalid part."""


class Unauthorized(Refused):
    """The name, the password or the token is wrong or missing."""


class Forbidden(Refused):
    """The user lacks the right."""


class NotFound(Refused):
    """The object does not exist."""


class Conflict(Refused):
    """The state of the cluster or of the object does not allow the request."""


class ServerBusy(Refused):
    """The server or the master cannot serve the request at present."""


class JobFailed(RestError):
    """A job has ended without success; the message is that of its first failed operation."""

    def __init__(self, job_id: int, status: str, message: str, error_class: str = "") -> None:
        super().__init__(f"job {job_id}: {message}")
        self.job_id = job_id
        self.status = status
        """`error` or `canceled`."""
        self.message = message
        self.error_class = error_class
        """The class of the error, for example `OpPrereqError`; empty for a cancelled job."""


class JobTimeout(RestError):
    """A job has not ended in time; it continues."""

    def __init__(self, job_id: int, limit_s: float) -> None:
        super().__init__(f"job {job_id} has not ended within {limit_s:g} s; it continues")
        self.job_id = job_id


_BY_CODE: dict[int, type[Refused]] = {
    HTTPStatus.BAD_REQUEST: InvalidRequest,
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidRequest,
    HTTPStatus.TOO_MANY_REQUESTS: ServerBusy,
    HTTPStatus.BAD_GATEWAY: ServerBusy,
    HTTPStatus.SERVICE_UNAVAILABLE: ServerBusy,
    HTTPStatus.GATEWAY_TIMEOUT: ServerBusy,
}


def refusal(code: int, message: str, explain: str) -> Refused:
    """Return the error for an answer's status."""
    return _BY_CODE.get(code, Refused)(code, message, explain)
