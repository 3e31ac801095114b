"""The Python client: generated from the document, and what it repeats, verifies and raises."""

import asyncio
import io
import json
import random
import runpy
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ganeti.web.operations import Arguments, JobOf
from ganeti.web.resources.every import OPERATIONS
from ganeti.web.routes import Routes
from ganeti.web.submission import opcode_of
from ganeti_rest import (
    Client,
    Conflict,
    Forbidden,
    InvalidRequest,
    JobFailed,
    JobTimeout,
    NotFound,
    OutcomeUnknown,
    ServerBusy,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from ganeti_rest.connection import PAUSES_S, Request, part
from ganeti_rest.events import Event, parsed
from ganeti_rest.jobs import JobUpdate, results, updates
from ganeti_rest.operations import Operations
from tests.support.openapi_values import DOCUMENT, body_schema, value_of
from tests.support.rest import READER, RestRig, certificate_text, rest_rig
from tests.unit.web.test_openapi import call_of

TOP = Path(__file__).resolve().parents[3]
GENERATOR = runpy.run_path(str(TOP / "scripts" / "rest_client.py"))
METHODS = GENERATOR["methods"](DOCUMENT)
ITEMS: dict[str, Any] = {"job": 1, "disk": 0, "upload": "0" * 32}
WORDS = {"type": "hard"}
"""Values of parameters that not every text is."""


def test_operations_are_those_of_the_document() -> None:
    assert GENERATOR["TARGET"].read_text() == GENERATOR["text"](), "run: make generated"


def test_every_operation_is_a_method_or_has_a_reason() -> None:
    ids = {one.id for one in OPERATIONS}
    assert ids - {one.one["operationId"] for one in METHODS} == set(GENERATOR["LEFT_OUT"])


class Recorder(Operations):
    """Keeps the request instead of sending it."""

    def _call(
        self, method: str, path: str, query: Mapping[str, Any], body: Any = None, **how: Any
    ) -> Any:
        self.request, self.how = Request(method, path, query, body), how
        return b"" if how.get("is_raw") else None  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=lambda one: str(one.name))
async def test_method_sends_what_the_server_accepts(method: Any) -> None:
    client, chance = Recorder(), random.Random(32)
    schema = body_schema(method.path, method.method)
    given: dict[str, Any] = {}
    if schema is not None and "properties" in schema:
        body = value_of(schema, chance)
        given = {one.name: body[one.sent_as] for one in method.fields if one.sent_as in body}
    for one in method.query:
        flag, texts = "bool" in one.type_, "Sequence" in one.type_
        given[one.name] = (
            True
            if flag
            else ["a"]
            if texts
            else 7
            if "int" in one.type_
            else WORDS.get(one.name, "x")
        )
    values = [ITEMS.get(name, "a") for name, _ in method.items]
    if schema is not None and "properties" not in schema:
        values.append(value_of(schema, chance))
    getattr(client, method.name)(*values, **given)

    request = client.request
    parts = urlsplit(request.target)
    operation, _ = Routes(OPERATIONS).find(request.method, parts.path)
    assert operation.id == method.one["operationId"]
    Arguments(parse_qs(parts.query)).check(operation)
    assert client.how.get("is_job", False) == (operation.result == "job")
    assert not (client.how.get("is_read") and operation.result == "job")
    if isinstance(operation.does, JobOf) and operation.does.make_body is None:
        call = call_of(operation, request.body)
        call.arguments = Arguments(parse_qs(parts.query))
        assert isinstance(await opcode_of(call, operation.does), operation.does.opcode)


@pytest.mark.parametrize("word", ["", ".", "..", "a/b", "a b", "a?b", "ü", "%2e"])
def test_name_that_would_be_another_path_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="is not the name"):
        part(word)


# A server that follows a script

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n17"
DROP = b""


def refused(code: int) -> bytes:
    body = json.dumps({"code": code, "message": "m", "explain": "the queue is full"}).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (code, len(body)) + body


class Script:
    """A TLS server; each answer of the script serves one connection, and an empty one hangs up after the request."""

    def __init__(self, directory: Path, answers: Sequence[bytes]) -> None:
        self.trusted = directory / "rapi.pem"
        self.trusted.write_bytes(certificate_text())
        self.heads: list[str] = []
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.trusted)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            plain, _ = self._listener.accept()
            try:
                with self._context.wrap_socket(plain, server_side=True) as one:
                    self._serve(one)
            except OSError:
                plain.close()
            if not self._answers:
                return

    def _serve(self, one: ssl.SSLSocket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            got = one.recv(65536)
            if not got:
                return
            head += got
        self.heads.append(head.decode())
        if answer := self._answers.pop(0):
            one.sendall(answer)

    def close(self) -> None:
        self._answers.clear()
        if self._thread.is_alive():  # it may wait for a connection
            with socket.create_connection(self._listener.getsockname()):
                pass
        self._thread.join()
        self._listener.close()

    def keys(self) -> list[str]:
        return [
            line.partition(": ")[2]
            for head in self.heads
            for line in head.split("\r\n")
            if line.lower().startswith("idempotency-key")
        ]


@contextmanager
def script(directory: Path, *answers: bytes) -> Iterator[tuple[Script, Client, list[float]]]:
    served = Script(directory, answers)
    client = Client(served.address, token="t", ca_file=str(served.trusted))
    pauses: list[float] = []
    client._connection._sleep = pauses.append
    try:
        yield served, client, pauses
    finally:
        client.close()
        served.close()


def test_submission_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    with script(tmp_path, DROP, refused(503), OK) as (served, client, pauses):
        assert client.instance_startup("web1") == 17
        assert len(served.heads) == 3
        assert len(set(served.keys())) == 1
        assert len(pauses) == 2


def test_two_submissions_have_different_keys(tmp_path: Path) -> None:
    with script(tmp_path, OK, OK) as (served, client, _):
        client.instance_startup("web1")
        client.close()
        client.instance_startup("web1")
        assert len(set(served.keys())) == 2


def test_key_of_the_caller_is_sent(tmp_path: Path) -> None:
    with script(tmp_path, OK) as (served, client, _):
        client.instance_startup("web1", idempotency_key="mine")
        assert served.keys() == ["mine"]


def test_read_is_repeated(tmp_path: Path) -> None:
    with script(tmp_path, DROP, OK) as (_, client, _):
        assert client.version() == 17


def test_other_change_is_never_repeated_once_it_was_sent(tmp_path: Path) -> None:
    with script(tmp_path, DROP, OK) as (served, client, pauses):
        with pytest.raises(OutcomeUnknown, match="did not answer DELETE /2/filters/f"):
            client.filter_remove("f")
        assert (len(served.heads), pauses) == (1, [])
        assert client.filter_remove("f") == 17


def test_server_that_stays_busy_is_given_up(tmp_path: Path) -> None:
    with script(tmp_path, *[refused(503)] * (len(PAUSES_S) + 1)) as (served, client, pauses):
        with pytest.raises(ServerBusy, match="the queue is full"):
            client.instance_startup("web1")
        assert len(pauses) == len(PAUSES_S) == len(served.heads) - 1


def test_redirect_is_not_followed(tmp_path: Path) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with script(tmp_path, moved) as (_, client, _), pytest.raises(Exception, match="302"):
        client.version()


def test_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    with script(tmp_path, OK) as (served, _, _):
        with (
            Client(served.address, token="t") as system,
            pytest.raises(Untrusted, match="certificate"),
        ):
            system.version()
        assert served.heads == []  # no credentials were sent


def test_unreachable_server_is_reported_with_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = Client(f"127.0.0.1:{port}", user="anna", password="secret")
    client._connection._sleep = lambda _pause_s: None
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port} cannot be reached") as raised:
        client.filter_remove("f")
    assert not isinstance(raised.value, OutcomeUnknown)


@pytest.mark.parametrize(
    "given", [{}, {"user": "a"}, {"password": "b"}, {"user": "a", "password": "b", "token": "c"}]
)
def test_login_is_a_password_or_a_token(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either user and password, or a token"):
        Client("127.0.0.1", **given)  # type: ignore[arg-type] # strings for str | None


# Jobs and events


def told(*answers: Any) -> Callable[..., Any]:
    left = list(answers)
    return lambda *_: left.pop(0)


def test_updates_of_a_job_have_its_log_until_it_ends() -> None:
    running = {
        "job_info": ["running", [], {"done": 1}],
        "log_entries": [[1, [0, 0], "message", "copying"]],
    }
    ended: dict[str, Any] = {"job_info": ["success", [], None], "log_entries": None}
    found = list(updates(told(running, None, ended), 5, None))
    assert found == [
        JobUpdate(5, "running", {"done": 1}, ["copying"]),
        JobUpdate(5, "success", None, []),
    ]  # fmt: skip


def test_job_that_does_not_end_in_time_continues() -> None:
    with pytest.raises(JobTimeout, match="job 5 has not ended within 0 s; it continues"):
        list(updates(lambda *_: None, 5, 0.0))


def test_failed_job_raises_the_text_of_its_error() -> None:
    job = {"id": 7, "status": "error", "opstatus": ["success", "error"],
           "opresult": [None, ["OpExecError", ["no room on node2"]]]}  # fmt: skip
    with pytest.raises(JobFailed, match="job 7: no room on node2") as raised:
        results(job)
    assert (raised.value.status, raised.value.error_class) == ("error", "OpExecError")
    canceled = {"id": 8, "status": "canceled", "opstatus": ["canceled"], "opresult": [None]}
    with pytest.raises(JobFailed, match="job 8: the job was cancelled"):
        results(canceled)
    assert results({"id": 9, "status": "success", "opresult": [1]}) == [1]


def test_events_are_read_from_the_stream() -> None:
    stream: Any = io.BytesIO(
        b': welcome\n\nid: 1-2-1\nevent: job\ndata: {"id":3}\n\n: \n\nevent: job\ndata: {"id":4}\n\n'
    )
    assert list(parsed(stream)) == [Event("job", {"id": 3}, "1-2-1"), Event("job", {"id": 4})]


# The real server


def client_of(rig: RestRig, user: str = "admin", password: str = "secret") -> Client:
    trusted = str(rig.audit.parent / "rapi.pem")
    return Client(f"127.0.0.1:{rig.port}", user=user, password=password, ca_file=trusted)


async def test_objects_and_errors_of_the_server(tmp_path: Path) -> None:
    def tour(rig: RestRig) -> None:
        with client_of(rig) as client:
            names = [one["name"] for one in client.instances()]
            assert names
            assert [one["name"] for one in client.instances(limit=1)] == names[:1]
            assert client.instance(names[0])["name"] == names[0]
            assert client.instance_startup(names[0], dry_run=True, reason="why") > 0
            with pytest.raises(NotFound, match="nosuch"):
                client.instance("nosuch.example.com")
            with pytest.raises(InvalidRequest, match="mode"):
                client.node_evacuate("node1", mode="wrong")
            with pytest.raises(Conflict):
                client.instance_tags_add(names[0], tag=["x"], expected_serial=99)
            assert "ganeti_" in client.metrics()
        with client_of(rig, READER) as reader, pytest.raises(Forbidden):
            reader.instance_startup(names[0])
        with client_of(rig, password="wrong") as stranger, pytest.raises(Unauthorized):
            stranger.version()

    async with rest_rig(tmp_path) as rig:
        await asyncio.to_thread(tour, rig)
