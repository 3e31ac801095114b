"""`-m`: a server of the REST interface with a certificate of its own; what it answers is mistrusted."""

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import placement_clusters as clusters
import pytest

from ganeti.base.certificates import new_authority, new_key, sign_node, signing_request
from ganeti.cli import hinfo, hscan
from ganeti.placement.score import score
from ganeti.placement.state import State

Printed = pytest.CaptureFixture[str]
UUID = "00000000-0000-4000-9000-0000000000c1"


def resources() -> dict[str, Any]:
    """The cluster of the benchmarks, as the bulk lists give it."""
    cluster = clusters.cluster(3)
    nodes = [
        {"name": node.name, "group.uuid": node.group, "mtotal": node.total_memory, "mnode": 0,
         "mfree": node.free_memory, "dtotal": node.total_disk, "dfree": node.free_disk,
         "ctotal": node.total_cpus, "ndparams": {"spindle_count": node.total_spindles}}
        for node in cluster.nodes
    ]  # fmt: skip
    instances = [
        {"name": one.name, "beparams": {"maxmem": one.memory, "vcpus": one.vcpus},
         "disk_usage": one.disk, "pnode": one.primary,
         "snodes": [one.secondary] if one.secondary else [], "disk_template": one.template,
         "status": "running"}
        for one in cluster.instances
    ]  # fmt: skip
    return {
        "/2/groups?bulk=1": [{"name": "default", "uuid": clusters.GROUP}],
        "/2/nodes?bulk=1": nodes,
        "/2/instances?bulk=1": instances,
        "/2/info": {"tags": [], "master": "node0000"},
    }


class Server(http.server.ThreadingHTTPServer):
    """Answers from a table; text is sent as it is."""

    daemon_threads = False

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answers = resources()
        self.credentials: list[str | None] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up on us is what some tests want."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.credentials.append(self.headers.get("Authorization"))
        found = self.server.answers.get(self.path)
        text = found if isinstance(found, str) else json.dumps(found)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server for `localhost` whose authority this process trusts."""
    now = time.time()
    key, authority_key = new_key(), new_key()
    authority = new_authority(authority_key, "cluster.example.com", UUID, now)
    request = signing_request(key, "localhost")
    certificate = sign_node(
        authority, authority_key, request, node_uuid=UUID, node_name="localhost", now=now
    )
    (tmp_path / "server.pem").write_bytes(certificate + key)
    (tmp_path / "authority.pem").write_bytes(authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    one = Server(context)
    yield one
    one.close()


def url(server: Server, host: str = "localhost") -> str:
    return f"https://{host}:{server.server_address[1]}"


def test_the_cluster_that_rapi_reports_is_the_one_that_it_is(
    server: Server, capsys: Printed
) -> None:
    assert hinfo.main(["-m", url(server)]) == 0
    out = capsys.readouterr().out
    assert "Loaded 3 nodes, 30 instances" in out
    assert f"Cluster score: {score(State(clusters.cluster(3))):.8f}" in out
    assert server.credentials == [None] * 4


def test_name_and_password_go_into_the_header_only(server: Server, capsys: Printed) -> None:
    assert hinfo.main(["-m", url(server, "anna:secret@localhost")]) == 0
    assert set(server.credentials) == {f"Basic {base64.b64encode(b'anna:secret').decode()}"}
    server.answers.clear()
    assert hinfo.main(["-m", url(server, "anna:secret@localhost")]) == 1
    assert "secret" not in capsys.readouterr().err


def test_hscan_saves_what_rapi_reports(server: Server, tmp_path: Path) -> None:
    assert hscan.main(["-d", str(tmp_path), url(server)]) == 0
    [saved] = tmp_path.glob("*.data")
    assert hinfo.main(["-t", str(saved)]) == 0


def test_an_unknown_certificate_is_refused_before_any_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    other = new_authority(new_key(), "other.example.com", UUID, time.time())
    (tmp_path / "other.pem").write_bytes(other)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other.pem"))
    assert hinfo.main(["-m", url(server, "anna:secret@localhost")]) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
    assert server.credentials == []


def test_a_certificate_for_another_name_is_refused(server: Server, capsys: Printed) -> None:
    assert hinfo.main(["-m", url(server, "127.0.0.1")]) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
    assert server.credentials == []


@pytest.mark.parametrize(
    ("path", "answer", "text"),
    [
        ("/2/nodes?bulk=1", None, "404"),
        ("/2/nodes?bulk=1", "<html>", "cannot query localhost"),
        ("/2/nodes?bulk=1", {"name": "node0000"}, "is not a list"),
        ("/2/info", [], "is not a dict"),
        ("/2/groups?bulk=1", [{"name": "default"}], "has no uuid"),
        ("/2/instances?bulk=1", [{"name": "x", "pnode": "node0000", "disk_template": "tape"}],
         "unknown disk template"),
        ("/2/instances?bulk=1", [{"name": "x", "disk_template": "plain"}], "has no pnode"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_named(
    server: Server, capsys: Printed, path: str, answer: Any, text: str
) -> None:
    server.answers[path] = answer
    assert hinfo.main(["-m", url(server)]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/2/nodes?bulk=1", [7]),
        ("/2/instances?bulk=1", [None]),
        ("/2/groups?bulk=1", ["default"]),
        ("/2/info", {"tags": 7}),
        ("/2/groups?bulk=1", [{"name": "default", "uuid": clusters.GROUP, "tags": 7}]),
    ],
)
def test_rows_of_another_form_are_an_error_and_no_crash(
    server: Server, capsys: Printed, path: str, answer: Any
) -> None:
    server.answers[path] = answer
    assert hinfo.main(["-m", url(server)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def saved(directory: Path) -> str:
    """The resources as files."""
    for path, value in resources().items():
        name = path.removeprefix("/2/").removesuffix("?bulk=1")
        (directory / f"{name}.json").write_text(json.dumps(value))
    return f"file://{directory}"


def test_answers_that_were_saved_as_files_are_read(tmp_path: Path, capsys: Printed) -> None:
    assert hinfo.main(["-m", saved(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"Cluster score: {score(State(clusters.cluster(3))):.8f}" in out


@pytest.mark.parametrize(("text", "why"), [(None, "failed to load"), ("[", "JSON"), ("{}", "list")])
def test_a_file_that_is_not_there_or_no_answer_is_named(
    tmp_path: Path, text: str | None, why: str, capsys: Printed
) -> None:
    address, path = saved(tmp_path), tmp_path / "nodes.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert hinfo.main(["-m", address]) == 1
    err = capsys.readouterr().err
    assert str(path) in err
    assert why in err
