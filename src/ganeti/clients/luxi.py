"""The master in the view of commands: one socket, one request at a time, errors raised again.

Commands start in a tenth of a second, so this module imports little; the same conversation
for asyncio is in `luxi_async.py`.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ganeti.base.errors import ConfigurationError, GanetiError, NotMaster, ProtocolError
from ganeti.base.paths import Paths, hostname
from ganeti.protocols.luxi import (
    NO_CHANGE,
    MessageBuffer,
    encode_request,
    error_of,
    parse_answer,
)

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 300.0
WAIT_S = 60
"""The time for one WaitForJobChange until the master answers that nothing changed."""

FINAL = frozenset({"canceled", "success", "error"})

_SOCKET_VARIABLES = ("GANETI_LUXI_SOCKET", "FORCE_LUXI_SOCKET")
_PATH_LIMIT = 107


class NotClusterNodeError(GanetiError):
    """This host is not part of a cluster."""

    exit_code = 5


class MasterDownError(GanetiError):
    """The master daemon of this node does not answer."""


class ConnectionBrokenError(MasterDownError):
    """The connection broke during a request: the outcome is unknown."""


class JobChange(NamedTuple):
    """Updates of a job; `is_keepalive` if there are none."""

    status: str
    entries: list[list[Any]]
    """`[serial, [seconds, microseconds], type, content]` each."""
    is_keepalive: bool = False


def socket_path(paths: Paths) -> Path:
    """Return the path of the master's socket; `GANETI_LUXI_SOCKET` or `FORCE_LUXI_SOCKET` override it."""
    for name in _SOCKET_VARIABLES:
        if given := os.environ.get(name):
            return Path(given)
    return paths.luxi_socket


class LuxiClient:
    """A connection to the master, opened by the first call; a context manager."""

    def __init__(
        self,
        paths: Paths | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
        path: Path | None = None,
    ) -> None:
        """`path` is the master's socket, by default the usual one (`socket_path`)."""
        self._paths = paths or Paths.from_environment()
        self._path = path
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._buffer = MessageBuffer()
        self.is_degraded = False
        """True if the last answer reported that writes have only one copy (R6)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._buffer = MessageBuffer()

    def call(self, method: str, *args: Any) -> Any:
        """Return the result of one request, or raise its error. A failure of the connection closes it."""
        connection = self._socket or self._connect()
        try:
            connection.sendall(encode_request(method, list(args)))
            answer = parse_answer(self._receive(connection))
        except TimeoutError as err:
            self.close()
            raise MasterDownError(
                f"the master daemon received {method} but did not answer within {self._timeout_s:g} s;"
                " the outcome is unknown"
            ) from err
        except OSError as err:
            self.close()
            raise ConnectionBrokenError(
                f"the connection to the master daemon broke during {method}"
                f" ({err.strerror or err}); the outcome is unknown"
            ) from err
        except BaseException:
            self.close()  # a late answer would be mistaken for that of the next call
            raise
        self.is_degraded = answer.degraded
        if not answer.success:
            raise error_of(answer)
        return answer.result

    # --- jobs ---

    def submit_job(self, ops: Sequence[Any], key: str | None = None) -> int:
        """Submit opcodes as one job; return its id, the same for the same key.

        PrereqError, JobQueueDrained, JobQueueFull. After any other error a submission with a key
        may be repeated; one without may not.
        """
        arguments = [_plain(ops)] if key is None else [_plain(ops), key]
        return int(self.call("SubmitJob", *arguments))

    def submit_many_jobs(
        self, jobs: Sequence[Sequence[Any]], key: str | None = None
    ) -> list[tuple[bool, Any]]:
        """Submit jobs; return for each `(True, id)` or `(False, reason)`. Repetition is as for `submit_job`."""
        plain = [_plain(ops) for ops in jobs]
        answers = self.call("SubmitManyJobs", *([plain] if key is None else [plain, key]))
        return [(bool(done), what) for done, what in answers]

    def query_jobs(self, ids: Sequence[int], fields: Sequence[str]) -> list[list[Any] | None]:
        """Return a row of values for each id (default: all jobs)."""
        rows: list[list[Any] | None] = self.call("QueryJobs", list(ids), list(fields))
        return rows

    def cancel_job(self, job_id: int, *, kill: bool = False) -> tuple[bool, str]:
        """Return whether the job will end, and the reason; with `kill` its running parts end as well."""
        done, text = self.call("CancelJob", job_id, kill)
        return bool(done), str(text)

    def wait_for_job(self, job_id: int) -> Iterator[JobChange]:
        """Yield the events of a job as they happen, until its status is final; JobLost."""
        status: list[Any] | None = None
        serial: int | None = None
        while True:
            answer = self.call("WaitForJobChange", job_id, ["status"], status, serial, WAIT_S)
            if answer == NO_CHANGE:
                yield JobChange(status[0] if status else "", [], is_keepalive=True)
                continue
            status, entries = answer
            if status is None:
                raise ProtocolError(f"the master returned nothing about job {job_id}")
            serial = max([serial or 0, *(entry[0] for entry in entries)]) or None
            yield JobChange(status[0], entries)
            # The last log lines may come after the status: then they are queried once more.
            if status[0] in FINAL and not entries:
                return

    # --- queries ---

    def query(self, kind: str, fields: Sequence[str], filter_: Any = None) -> dict[str, Any]:
        """`{"fields": [definition …], "data": [[[status, value] …] …]}`."""
        answer: dict[str, Any] = self.call("Query", kind, list(fields), filter_)
        return answer

    def query_fields(self, kind: str, fields: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return definitions of fields, by default all of the kind."""
        answer = self.call("QueryFields", kind, list(fields) if fields else None)
        found: list[dict[str, Any]] = answer["fields"]
        return found

    def rows(
        self, kind: str, names: Sequence[str], fields: Sequence[str], *, locking: bool = False
    ) -> list[list[Any]]:
        """Return values of named `Instances`, `Nodes` or `Groups` (default: all); PrereqError."""
        found: list[list[Any]] = self.call(f"Query{kind}", list(names), list(fields), locking)
        return found

    def replace_filter(
        self,
        uuid: str | None,
        priority: int,
        predicates: Any,
        action: Any,
        reason_trail: Sequence[Any],
    ) -> str:
        """Make a job filter, or replace the one with this UUID; return its UUID."""
        found: str = self.call(
            "ReplaceFilter", uuid, priority, predicates, action, list(reason_trail)
        )
        return found

    def cluster_info(self) -> dict[str, Any]:
        """Return the data of `gnt-cluster info`."""
        found: dict[str, Any] = self.call("QueryClusterInfo")
        return found

    def config_values(self, *names: str) -> list[Any]:
        """Return values such as `cluster_name` and `master_node`."""
        found: list[Any] = self.call("QueryConfigValues", list(names))
        return found

    # --- the line ---

    def _connect(self) -> socket.socket:
        path = self._path or socket_path(self._paths)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_TIMEOUT_S)
        try:
            _connect_to(connection, path)
        except OSError as err:
            connection.close()
            raise self._why_not(path, err) from err
        connection.settimeout(self._timeout_s)
        self._socket = connection
        return connection

    def _receive(self, connection: socket.socket) -> bytes:
        while True:
            data = connection.recv(256 * 1024)
            if not data:
                raise ConnectionResetError(None, "the connection was closed")
            messages = self._buffer.feed(data)
            if len(messages) == 1:
                return messages[0]
            if messages:
                raise ProtocolError("the master daemon sent more than one answer")

    def _why_not(self, path: Path, err: OSError) -> GanetiError:
        """Explain a failed connection, from this node's ssconf."""
        if isinstance(err, PermissionError):
            return MasterDownError(
                f"this user may not use {path}; run the command as root,"
                " or as a member of the socket's group"
            )
        master = ssconf_value(self._paths, "master_node")
        me = hostname()
        if master is None and not isinstance(err, FileNotFoundError | ConnectionRefusedError):
            return ConfigurationError(f"cannot connect to {path}: {err.strerror or err}")
        if master is None:
            return NotClusterNodeError(
                f"this host ({me}) is not part of a cluster: make one with 'gnt-cluster init',"
                " or add it to one with 'gnt-node add' on that cluster's master"
            )
        if master != me:
            return NotMaster(
                f"this is not the master node: run the command on {master} (this is {me})"
            )
        return MasterDownError(
            f"the master daemon does not answer at {path} ({err.strerror or err});"
            f" start ganeti-masterd on this node ({me}); its log has the reason of its end"
        )


def _plain(ops: Sequence[Any]) -> list[Any]:
    """Return opcodes (structs or dictionaries) in the types of JSON."""
    from ganeti.model import wire  # noqa: PLC0415 - lists do not need it, and start faster

    return [wire.plain(op) for op in ops]


def _connect_to(connection: socket.socket, path: Path) -> None:
    """Connect, even if the path exceeds the limit of a socket address."""
    if len(os.fsencode(path)) <= _PATH_LIMIT:
        connection.connect(str(path))
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


def ssconf_value(paths: Paths, name: str) -> str | None:
    """Return this node's record of the master's name; None if there is none."""
    try:
        return (paths.data / f"ssconf_{name}").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
