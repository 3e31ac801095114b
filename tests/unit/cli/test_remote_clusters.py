"""Another cluster by its REST server: whom is trusted, what is asked, and what refusals say."""

import datetime as dt
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ganeti.base.errors import ExecError, PrereqError
from ganeti.cli.remote_clusters import RestAccess, RestCluster
from ganeti.model.opcodes.backup import OpBackupExport
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceStartup

UPSTREAM = "ganeti.example.com"


def certificate(directory: Path, name: str) -> Path:
    """Return a file as upstream's `rapi.pem`: a key, and a certificate that names no host but upstream's constant."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, UPSTREAM)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = directory / f"{name}.pem"
    path.write_bytes(made.public_bytes(encoding))
    private = key.private_bytes(encoding, form, serialization.NoEncryption())
    (directory / f"{name}.key").write_bytes(private)
    return path


@dataclass
class Server:
    """A REST server of upstream's kind, which answers everything alike."""

    port: int
    trusted: Path
    other: Path
    status: int = 200
    answer: Any = 7
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    def connect(self, ca_file: Path) -> RestCluster:
        return RestCluster("127.0.0.1", RestAccess(self.port, str(ca_file), "user", "password"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.asked.append((self.command, self.path, json.loads(body or b"null")))
            self.send_response(found.status)
            self.end_headers()
            self.wfile.write(json.dumps(found.answer).encode())

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - names of the library

        def log_message(self, *_args: object) -> None:
            pass

    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, own.with_suffix(".key"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
        found = Server(httpd.server_address[1], own, other)
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            httpd.shutdown()
            thread.join()


def test_a_certificate_that_names_no_host_is_trusted_if_it_is_the_very_one(server: Server) -> None:
    server.connect(server.trusted).cancel(3)
    assert server.asked == [("DELETE", "/2/jobs/3", None)]


def test_another_certificate_that_names_no_host_is_refused(server: Server) -> None:
    with pytest.raises(PrereqError, match="certificate verify failed"):
        server.connect(server.other).cancel(3)
    assert server.asked == []


@pytest.mark.requirement("S203")
def test_nothing_is_sent_that_upstream_does_not_know(server: Server) -> None:
    connect = server.connect(server.trusted)
    connect.submit(
        OpInstanceCreate(
            instance_name="web1.example.com", mode="remote-import", disks=[DiskRequest(size=4)], nics=[]
        )
    )  # fmt: skip
    where = [["198.51.100.1", 4000, "magic", "digest", "salt"]]
    connect.submit(
        OpBackupExport(instance_name="web1.example.com", mode="remote", target_node=where)
    )
    bodies = [body for _method, _path, body in server.asked]
    assert bodies == [
        {
            "__version__": 1,
            "instance_name": "web1.example.com",
            "mode": "remote-import",
            "disks": [{"size": 4, "mode": "rw"}],
            "nics": [],
            "start": True,
            "ip_check": False,
            "name_check": False,
        },
        {"mode": "remote", "destination": where},
    ]


def test_the_reason_of_a_refusal_of_upstream_is_in_its_message(server: Server) -> None:
    server.status = 400
    server.answer = {"code": 400, "message": "no such field", "explain": "Bad request syntax"}
    with pytest.raises(PrereqError, match=r"refuses \(400\): no such field \(Bad request syntax\)"):
        server.connect(server.trusted).cancel(3)
    server.answer = {"code": 400, "message": "Bad Request", "explain": "there is no x"}
    with pytest.raises(PrereqError, match=r"refuses \(400\): there is no x"):
        server.connect(server.trusted).cancel(3)


def test_operation_that_a_move_does_not_need_is_refused(server: Server) -> None:
    with pytest.raises(ExecError, match="OP_INSTANCE_STARTUP cannot be submitted"):
        server.connect(server.trusted).submit(OpInstanceStartup(instance_name="web1.example.com"))
