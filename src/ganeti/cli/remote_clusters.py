"""Clients of other clusters for programs that submit jobs: by the master's socket or by REST."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError

if TYPE_CHECKING:  # slow to import
    import ssl
    from http.client import HTTPSConnection

    from ganeti.clients.luxi import LuxiClient
    from ganeti.model.opcodes import OpCode

FINAL = ("success", "error", "canceled")
REST_PORT = 5080
ANSWER_S = 60.0
AGAIN_S = 60.0
"""Seconds for which read-only requests are repeated without an answer, for example during a master failover."""
PASSWORD_LIMIT = 1024


class JobUpdate(NamedTuple):
    """The changes of a job: its status, and the kind and content of each new log entry."""

    status: str
    entries: Sequence[tuple[str, Any]]


class RemoteCluster(Protocol):
    """One of the two clusters. All methods can raise GanetiError."""

    def submit(self, op: "OpCode") -> int: ...

    def watch(self, job_id: int) -> Iterator[JobUpdate]:
        """Yield updates of a job until it has ended."""
        ...

    def result(self, job_id: int) -> Any:
        """Return the result of a finished job, or raise its error."""
        ...

    def cancel(self, job_id: int) -> None:
        """Cancel a job, which then undoes its changes."""
        ...


class LuxiCluster:
    """A cluster whose master runs on this machine; each request opens a connection to the master's socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def submit(self, op: "OpCode") -> int:
        with self._client() as client:
            return int(client.submit_job([op]))

    def watch(self, job_id: int) -> Iterator[JobUpdate]:
        with self._client() as client:
            for change in client.wait_for_job(job_id):
                yield JobUpdate(change.status, [(entry[2], entry[3]) for entry in change.entries])

    def result(self, job_id: int) -> Any:
        from ganeti.cli.jobs import wait_for_result

        with self._client() as client:
            return wait_for_result(client, job_id, is_quiet=True)[0]

    def cancel(self, job_id: int) -> None:
        with self._client() as client:
            client.cancel_job(job_id)

    def _client(self) -> "LuxiClient":
        from ganeti.cli.placement_input import luxi_client

        return luxi_client(str(self._socket))


@dataclass(frozen=True)
class RestAccess:
    """Access to a REST server; `ca_file` "" uses the certificates that this machine trusts."""

    port: int = REST_PORT
    ca_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)


class RestCluster:
    """A cluster, by its REST server.

    The server's certificate must be valid for its name, or must be a certificate in the file of trusted
    certificates, because upstream's certificates do not name a host.
    """

    def __init__(self, host: str, access: RestAccess) -> None:
        self._host, self._access = host, access
        self._pinned = _certificates_in(access.ca_file)
        self._context = _context(access.ca_file)

    def submit(self, op: "OpCode") -> int:
        from msgspec import structs

        from ganeti.model import wire
        from ganeti.model.opcodes.base import OpCode

        # Fields of every opcode are not part of a request's body. Upstream rejects unknown fields, so
        # default values are not sent; except two fields that have another default in upstream.
        common = {"OP_ID", *OpCode.__struct_fields__}
        needed = [one.name for one in structs.fields(op) if one.required]
        usual = wire.plain(type(op)(**{name: getattr(op, name) for name in needed}))
        fields = {
            name: _without_none(value)
            for name, value in wire.plain(op).items()
            if name not in common and (name in {*needed, *_ALWAYS} or value != usual[name])
        }
        match op.op_id():
            case "OP_INSTANCE_CREATE":
                return int(self._ask("POST", "/2/instances", {"__version__": 1, **fields}))
            case "OP_INSTANCE_QUERY_DATA":
                [name] = fields["instances"]
                return int(self._ask("GET", _instance(name, "info?static=1")))
            case "OP_INSTANCE_REMOVE":
                return int(self._ask("DELETE", _instance(fields["instance_name"])))
            case "OP_BACKUP_PREPARE":
                name = fields["instance_name"]
                return int(
                    self._ask("PUT", _instance(name, f"prepare-export?mode={fields['mode']}"))
                )
            case "OP_BACKUP_ABANDON":
                name = fields.pop("instance_name")
                return int(self._ask("PUT", _instance(name, "abandon-export"), fields))
            case "OP_BACKUP_EXPORT":
                name = fields.pop("instance_name")
                # Its name in this interface.
                fields["destination"] = fields.pop("target_node")
                return int(self._ask("PUT", _instance(name, "export"), fields))
            case other:
                raise ExecError(
                    f"{other} cannot be submitted by the REST interface of upstream Ganeti"
                )

    def watch(self, job_id: int) -> Iterator[JobUpdate]:
        status: list[str] | None = None
        serial: int | None = None
        while True:
            body = {
                "fields": ["status"],
                "previous_job_info": status,
                "previous_log_serial": serial,
            }
            answer = self._ask_again(f"/2/jobs/{job_id}/wait", body)
            if answer is None:
                continue
            status, entries = answer["job_info"], answer["log_entries"] or []
            if status is None:
                raise ExecError(f"job {job_id} of {self._host} does not exist any more")
            serial = max([serial or 0, *(entry[0] for entry in entries)]) or None
            yield JobUpdate(status[0], [(entry[2], entry[3]) for entry in entries])
            if status[0] in FINAL and not entries:
                return

    def result(self, job_id: int) -> Any:
        job = self._ask_again(f"/2/jobs/{job_id}")
        [found] = job["opresult"]
        if job["status"] == "success":
            return found
        match found:
            case [str(), [str() as text, *_]]:
                raise ExecError(f"job {job_id} of {self._host}: {text}")
            case _:
                raise ExecError(f"job {job_id} of {self._host} ended as {job['status']}")

    def cancel(self, job_id: int) -> None:
        self._ask("DELETE", f"/2/jobs/{job_id}")

    def _ask_again(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request that can be repeated."""
        end = time.monotonic() + AGAIN_S
        while True:
            try:
                return self._ask("GET", path, body)
            except _NoAnswerError:
                if time.monotonic() > end:
                    raise
                time.sleep(1.0)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        import base64
        import json
        from http import HTTPStatus
        from http.client import HTTPException

        pair = f"{self._access.username}:{self._access.password}".encode()
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair).decode()}",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        try:
            with contextlib.closing(self._connected()) as connection:
                connection.request(method, path, body=data, headers=headers)
                answer = connection.getresponse()
                if answer.status != HTTPStatus.OK:
                    raise _refusal(self._host, answer.status, answer.read(64 * 1024))
                return json.load(answer)
        except (OSError, ValueError, HTTPException) as err:
            raise _NoAnswerError(
                f"cannot query {self._host} port {self._access.port}: {err}", ErrorCode.ENVIRONMENT
            ) from err

    def _connected(self) -> "HTTPSConnection":
        """Return a connection to the verified server; raise OSError."""
        import ssl
        from http.client import HTTPSConnection

        host, port = self._host, self._access.port
        if self._pinned:
            pinned = HTTPSConnection(
                host, port, timeout=ANSWER_S, context=_without_names(self._access.ca_file)
            )
            with contextlib.suppress(ssl.SSLError):  # Then it can be valid for its name.
                pinned.connect()
                if pinned.sock.getpeercert(binary_form=True) in self._pinned:
                    return pinned
            pinned.close()
        connection = HTTPSConnection(host, port, timeout=ANSWER_S, context=self._context)
        connection.connect()
        return connection


class _NoAnswerError(PrereqError):
    """The server did not answer, or its answer is invalid."""


def _refusal(host: str, status: int, body: bytes) -> PrereqError:
    import json
    from http import HTTPStatus

    try:
        said = json.loads(body)
        # This implementation has the reason in the explanation, upstream in the message.
        message, explain = (str(said.get(one) or "") for one in ("message", "explain"))
        text = explain if message in ("", HTTPStatus(status).phrase) else f"{message} ({explain})"
    except (ValueError, AttributeError):
        text = "no reason given"
    if status in (502, 503, 504):
        return _NoAnswerError(f"{host} cannot answer now ({status}): {text}", ErrorCode.ENVIRONMENT)
    return PrereqError(f"{host} refuses ({status}): {text:.2000}", ErrorCode.WRONG_INPUT)


def _instance(name: str, what: str = "") -> str:
    from urllib.parse import quote

    return f"/2/instances/{quote(name, safe='')}" + (f"/{what}" if what else "")


_ALWAYS = ("mode", "disks", "nics", "instances", "start", "ip_check", "name_check")
"""Fields that are sent with default values: upstream requires them or has other defaults."""
_NOTHING: tuple[Any, ...] = (None, [], {}, "")


def _without_none(value: Any) -> Any:
    """Return a list of disks or interfaces without unset values; any other value unchanged."""
    if not isinstance(value, list):
        return value
    return [
        {name: part for name, part in one.items() if part not in _NOTHING}
        if isinstance(one, dict)
        else one
        for one in value
    ]


def _certificates_in(ca_file: str) -> frozenset[bytes]:
    """Return the certificates of a file in DER form; none if it cannot be read, which `_context` reports."""
    import re
    import ssl

    expression = r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----"
    try:
        found = re.findall(expression, Path(ca_file).read_text("ascii"), re.DOTALL)
        return frozenset(ssl.PEM_cert_to_DER_cert(one) for one in found)
    except (OSError, ValueError):
        return frozenset()


def _without_names(ca_file: str) -> "ssl.SSLContext":
    """Return a context for a server whose certificate is compared as a whole."""
    context = _context(ca_file)
    context.check_hostname = False
    return context


def _context(ca_file: str) -> "ssl.SSLContext":
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as err:  # ssl.SSLError is one
        raise PrereqError(
            f"cannot use the certificates in {ca_file}: {err}", ErrorCode.ENVIRONMENT
        ) from err


def password_in(name: str, option: str) -> str:
    """Return the password in a file of one line; raise InputError."""
    try:
        with open(name, encoding="utf-8") as file:  # noqa: PTH123 - pathlib may be a pipe's path too
            lines = file.read(PASSWORD_LIMIT).splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"cannot be read: {err}", option) from err
    if len(lines) != 1 or not lines[0]:
        raise InputError(f"{name} must contain one line with the password", option)
    return lines[0]


def connect(where: str, access: RestAccess) -> RemoteCluster:
    """Return the cluster for an argument: the path of a socket, or the host name of a REST server."""
    from ganeti.base.addresses import is_address
    from ganeti.base.identifiers import host_name

    if where.startswith("/"):
        return LuxiCluster(Path(where))
    if not is_address(where):
        host_name(where, "cluster")
    if not access.username or not access.password:
        raise InputError(
            f"cluster {where} needs a user and a password file, for example"
            " --src-username and --src-password-file",
            "cluster",
        )
    return RestCluster(where, access)
