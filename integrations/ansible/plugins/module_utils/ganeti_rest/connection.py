"""Requests over HTTPS: one connection, TLS, credentials, and repetitions of what may be repeated."""

import base64
import http.client
import json
import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.errors import (
    OutcomeUnknown,
    Refused,
    ServerBusy,
    Unreachable,
    Untrusted,
    refusal,
)

PORT = 5080
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Between the attempts of a request that may be repeated."""
REUSE_S = 30.0
"""The server closes a connection after 75 s without a request; this client does not use one that old again."""
ANSWER_LIMIT = 256 * 1024 * 1024
"""Bytes of an answer."""

Value = bool | int | str | Sequence[str] | None
"""A value of the query; None: absent."""


@dataclass(frozen=True)
class Request:
    """One request; `may_repeat` if a second one has no second effect."""

    method: str
    path: str
    query: Mapping[str, Value] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    may_repeat: bool = False

    @property
    def target(self) -> str:
        """Return path and query."""
        found: list[tuple[str, str]] = []
        for name, value in self.query.items():
            match value:
                case None:
                    continue
                case bool():
                    found.append((name, str(int(value))))
                case int() | str():
                    found.append((name, str(value)))
                case _:
                    found += [(name, one) for one in value]
        return f"{self.path}?{urlencode(found)}" if found else self.path

    @property
    def content(self) -> bytes | None:
        """Return the encoded body."""
        return None if self.body is None else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Answer:
    """A successful answer."""

    content: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.content) if self.content else None


def part(word: str | int) -> str:
    """Return a part of a path; ValueError for one that would be another path."""
    text = str(word)
    if not text or text in {".", ".."} or quote(text, safe="") != text:
        raise ValueError(f"{text!r} is not the name or the number of an object")
    return text


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    """Return the context: verified by `ca_file`, or by the system's authorities without one."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def credentials(user: str | None, password: str | None, token: str | None) -> dict[str, str]:
    """Return the header of a login; ValueError unless there is either a user with a password, or a token."""
    if token is not None and user is None and password is None:
        return {"Authorization": f"Bearer {token}"}
    if token is None and user is not None and password is not None:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    raise ValueError("pass either user and password, or a token")


class Connection:
    """A connection to one server, opened again when needed; for one thread at a time."""

    def __init__(
        self,
        address: str,
        login: Mapping[str, str],
        context: ssl.SSLContext,
        timeout_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        is_ipv6 = ":" in host and not host.startswith("[")
        self._host = address if is_ipv6 else host.strip("[]") or address
        self._port = PORT if is_ipv6 or not port else int(port)
        self._login, self._context, self._timeout_s = dict(login), context, timeout_s
        self._sleep = sleep
        self._open: http.client.HTTPSConnection | None = None
        self._used = 0.0

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def ask(self, request: Request) -> Answer:
        """Return the answer; Refused, Unreachable, OutcomeUnknown. Repeats what may be repeated."""
        for pause in PAUSES_S:
            try:
                return self._once(request)
            except Unreachable as err:
                if isinstance(err, OutcomeUnknown) and not request.may_repeat:
                    raise
            except ServerBusy as err:
                if not request.may_repeat and err.code != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
            self._sleep(pause * (0.5 + random.random()))  # noqa: S311 - no secret
        return self._once(request)

    @contextmanager
    def stream(self, request: Request) -> Iterator[http.client.HTTPResponse]:
        """Open an answer that does not end, on a connection of its own."""
        connection = self._connect()
        try:
            yield _checked(self._send(connection, request))
        finally:
            connection.close()

    def _once(self, request: Request) -> Answer:
        if self._open is not None and (
            time.monotonic() - self._used > REUSE_S or _has_ended(self._open)
        ):
            self.close()
        if self._open is None:
            self._open = self._connect()
        try:
            answer = self._send(self._open, request)
            content = self._read(answer)
        except BaseException:
            self.close()
            raise
        self._used = time.monotonic()
        if answer.will_close:
            self.close()
        if answer.status != HTTPStatus.OK:
            raise _refused(answer.status, content)
        return Answer(content, {name.lower(): value for name, value in answer.headers.items()})

    def _connect(self) -> http.client.HTTPSConnection:
        made = http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._context
        )
        try:
            made.connect()
            # Otherwise a request in two packets waits for the acknowledgement of the first.
            made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except ssl.SSLCertVerificationError as err:
            made.close()
            raise Untrusted(f"the certificate of {self._host} is not valid: {err}") from err
        except OSError as err:
            made.close()
            raise Unreachable(f"{self._host}:{self._port} cannot be reached: {err}") from err
        return made

    def _send(
        self, connection: http.client.HTTPSConnection, request: Request
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", **self._login, **request.headers}
        content = request.content
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(request.method, request.target, content, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as err:
            raise self._unknown(request, err) from err

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            content = answer.read(ANSWER_LIMIT)
        except (OSError, http.client.HTTPException) as err:
            raise OutcomeUnknown(f"{self._host}: the answer is incomplete: {err!r}") from err
        if not answer.isclosed():
            raise OutcomeUnknown(f"{self._host}: the answer is longer than {ANSWER_LIMIT} bytes")
        return content

    def _unknown(self, request: Request, err: Exception) -> OutcomeUnknown:
        what = f"{request.method} {request.path}"
        return OutcomeUnknown(f"{self._host}:{self._port} did not answer {what}: {err!r}")


def _has_ended(connection: http.client.HTTPSConnection) -> bool:
    """Return whether the server has closed an idle connection, or has sent something unexpected."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _checked(answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    if answer.status != HTTPStatus.OK:
        raise _refused(answer.status, answer.read(ANSWER_LIMIT))
    return answer


def _refused(status: int, content: bytes) -> Refused:
    try:
        found = json.loads(content)
        return refusal(status, str(found["message"]), str(found["explain"]))
    except (ValueError, KeyError, TypeError):
        return refusal(status, str(status), content[:500].decode(errors="replace"))
