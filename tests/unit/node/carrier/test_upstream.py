"""Disks to and from upstream's end of a move, which is a `socat` with a magic word before the data."""

import asyncio
import datetime as dt
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from ganeti.base.errors import GanetiError, HostError
from ganeti.node.carrier.upstream import PlainReader
from ganeti.rpc.procedures.streams import STREAM_RECEIVE, STREAM_SEND, STREAM_STATUS, StreamArgs
from tests.support.stream_nodes import BY_SCRIPT, MIB, RAW, SIZE, Node, receive, send, stream_nodes

pytestmark = pytest.mark.skipif(shutil.which("socat") is None, reason="socat is not installed")
MAGIC = b"M=the token"


@pytest.fixture
async def node(disk_path: Path) -> AsyncIterator[Node]:
    async with stream_nodes(disk_path) as (found, _other):
        yield found


@dataclass(frozen=True)
class Upstream:
    """Upstream's end: a key, and a certificate that names its host and has no other names."""

    directory: Path
    certificate: str

    def options(self, peer: str) -> str:
        (self.directory / "peer.pem").write_text(peer)
        at = self.directory
        return f"cert={at}/cert.pem,key={at}/key.pem,cafile={at}/peer.pem,verify=1"

    async def sends(self, port: int, peer: str, data: bytes) -> int:
        """Send data to a port as upstream does; the exit status."""
        to = f"OPENSSL:127.0.0.1:{port},{self.options(peer)},openssl-commonname=ganeti.example.com"
        process = await asyncio.create_subprocess_exec(
            "socat", "-u", "stdin", to, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )  # fmt: skip
        await process.communicate(data)
        return int(process.returncode or 0)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node1.example.com")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(private)
    certificate = made.public_bytes(serialization.Encoding.PEM)
    (tmp_path / "cert.pem").write_bytes(certificate)
    return Upstream(tmp_path, certificate.decode())


async def error_of(node: Node) -> str:
    status = await node.call(STREAM_STATUS, StreamArgs(instance_name="web1.example.com", token="the token", receives=True))  # fmt: skip
    return str(status.error)


@pytest.mark.requirement("S203", "S204")
@pytest.mark.parametrize("end", [RAW, BY_SCRIPT])
async def test_data_that_upstream_sends_becomes_a_disk(
    node: Node, upstream: Upstream, end: Any
) -> None:
    data = node.fill(b"the original's")
    node.fill(b"")
    own = await node.certificate("in")
    port = (await node.call(STREAM_RECEIVE, receive(upstream.certificate, disk=end))).port
    assert await upstream.sends(port, own, MAGIC + data) == 0
    await node.idle()
    assert await error_of(node) == ""
    assert node.disk().read_bytes() == data


@pytest.mark.requirement("G14", "A61")
@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (MAGIC + b"x" * (SIZE * MIB - 1), "bytes were sent for a disk of"),
        (MAGIC + b"x" * (SIZE * MIB + 1), "that the disk allows were sent"),
        (b"M=another tok" + b"x" * (SIZE * MIB), "no sender delivered the data"),
    ],
)
async def test_what_is_no_whole_disk_is_refused(
    node: Node, upstream: Upstream, sent: bytes, why: str
) -> None:
    own = await node.certificate("in")
    args = receive(upstream.certificate, disk=RAW, wait_s=1.0)
    port = (await node.call(STREAM_RECEIVE, args)).port
    await upstream.sends(port, own, sent)
    await node.idle()
    assert why in await error_of(node)


@pytest.mark.requirement("S203", "S204")
@pytest.mark.parametrize("end", [RAW, BY_SCRIPT])
async def test_upstream_reads_what_is_sent_to_it(node: Node, upstream: Upstream, end: Any) -> None:
    data = node.fill(b"ours")
    own, got = await node.certificate("out"), upstream.directory / "got"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = f"OPENSSL-LISTEN:{port},bind=127.0.0.1,reuseaddr,{upstream.options(own)}"
    words = ("socat", "-d", "-d", "-u", listen, f"CREATE:{got}")
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async for line in process.stderr:
        if b"listening on" in line:
            break
    result = await node.call(STREAM_SEND, send(upstream.certificate, port, disk=end))
    await process.communicate()
    assert result.data_bytes == len(data)
    assert got.read_bytes() == MAGIC + data


async def test_a_receiver_that_is_not_there_is_an_error(node: Node, upstream: Upstream) -> None:
    node.fill(b"ours")
    await node.certificate("out")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(GanetiError):
        await node.call(STREAM_SEND, send(upstream.certificate, port, disk=RAW))


def test_more_than_is_possible_is_refused_as_it_comes() -> None:
    with pytest.raises(HostError, match="more than the 10 bytes"):
        list(PlainReader(len, 10).pieces())
