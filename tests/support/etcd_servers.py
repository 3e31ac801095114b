"""Real etcd servers on loopback addresses, for tests; each is a process of its own."""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from ganeti.base import certificates

START_S = 60.0
CLIENT, PEER = 0, 1


def free_ports(address: str, count: int) -> list[int]:
    """Ports of an address that nobody listens at now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((address, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@dataclass
class EtcdServer:
    """One member."""

    name: str
    client: str
    peer: str
    directory: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, initial_cluster: str, state: str = "new") -> None:
        words = [
            "etcd", "--name", self.name, "--data-dir", str(self.directory / self.name),
            "--listen-client-urls", self.client, "--advertise-client-urls", self.client,
            "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
            "--initial-cluster", initial_cluster, "--initial-cluster-state", state,
            "--log-level", "error", "--logger", "zap", *self.options,
        ]  # fmt: skip
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def post(self, path: str, body: object, authority: Path | None = None) -> int:
        """Ask its gateway; the HTTP status, or 0 without an answer."""
        _, _, where = self.client.partition("://")
        connection = http.client.HTTPConnection(where, timeout=5)
        if authority is not None:
            context = ssl.create_default_context(cafile=str(authority))
            connection = http.client.HTTPSConnection(where, timeout=5, context=context)
        try:
            connection.request("POST", path, json.dumps(body))
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def answers(self) -> bool:
        return self.post("/v3/kv/range", {"key": "eA=="}) == 200


@dataclass
class EtcdServers:
    """A cluster of them."""

    members: list[EtcdServer]

    @property
    def initial_cluster(self) -> str:
        return ",".join(f"{member.name}={member.peer}" for member in self.members)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.client for member in self.members)

    def start(self, member: EtcdServer) -> None:
        """Start one (again) and wait until it answers."""
        member.start(self.initial_cluster)
        self.wait_for(member)

    @staticmethod
    def wait_for(member: EtcdServer) -> None:
        end = time.monotonic() + START_S
        while not member.answers():
            assert time.monotonic() < end, (member.directory / f"{member.name}.log").read_text()
            time.sleep(0.05)


def require_etcd() -> None:
    """Skip the test where etcd is not installed."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed: apt-get install etcd-server")


@contextmanager
def small_disk(directory: Path, mib: int) -> Iterator[None]:
    """A file system of its own at a directory; skips the test where that cannot be mounted."""
    directory.mkdir(mode=0o700)
    words = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(directory)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@contextmanager
def etcd_servers(
    count: int = 3, *, options: tuple[str, ...] = (), last_disk_mib: int = 0
) -> Iterator[EtcdServers]:
    """A cluster that is gone afterwards; skips the test where etcd is not installed.

    `last_disk_mib` gives the last of them a file system of that size.
    """
    require_etcd()
    fast = Path("/dev/shm")
    base = fast if os.access(fast, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="ganeti-etcd-", dir=base))
    members = []
    for number in range(1, count + 1):
        address = f"127.0.9.{number}"
        ports = free_ports(address, 2)
        client, peer = (f"http://{address}:{port}" for port in ports)
        members.append(EtcdServer(f"m{number}", client, peer, directory, options))
    servers = EtcdServers(members)
    disk = ExitStack()
    try:
        if last_disk_mib:
            disk.enter_context(small_disk(directory / members[-1].name, last_disk_mib))
        for member in members:
            member.start(servers.initial_cluster)
        for member in members:
            servers.wait_for(member)
        yield servers
    finally:
        for member in members:
            member.kill()
        disk.close()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class SecuredEtcd:
    """An etcd as somebody else runs it: TLS, and a user who may change one prefix only."""

    server: EtcdServer
    authority: Path
    credentials: Path

    @property
    def url(self) -> str:
        return self.server.client

    def start(self) -> None:
        """Start it (again) and wait until it answers; whoever had a token needs a new one."""
        self.server.start(f"{self.server.name}={self.server.peer}")
        end = time.monotonic() + START_S
        while not self.server.post("/v3/maintenance/status", {}, self.authority):
            log = self.server.directory / f"{self.server.name}.log"
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def protect(self, user: str, password: str) -> None:
        """From now on only this user gets in, and root."""
        begin, end = (base64.b64encode(key).decode() for key in (b"/ganeti/", b"/ganeti0"))
        permission = {"permType": "READWRITE", "key": begin, "range_end": end}
        for path, body in (
            ("user/add", {"name": "root", "password": "of-root"}),
            ("user/add", {"name": user, "password": password}),
            ("role/add", {"name": "root"}),
            ("role/add", {"name": "some"}),
            ("role/grant", {"name": "some", "perm": permission}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/grant", {"user": user, "role": "some"}),
            ("enable", {}),
        ):
            assert self.server.post(f"/v3/auth/{path}", body, self.authority) == 200, path
        assert self.server.post("/v3/kv/range", {"key": "eA=="}, self.authority) != 200


@contextmanager
def secured_etcd(*, has_signed_tokens: bool = False) -> Iterator[SecuredEtcd]:
    """One server with a certificate and a password; gone afterwards."""
    require_etcd()
    directory = Path(tempfile.mkdtemp(prefix="ganeti-etcd-"))
    address, now = "127.0.9.9", time.time()
    key, server_key = certificates.new_key(), certificates.new_key()
    authority = certificates.role_authority(key, "somebody else's", now)
    certificate = certificates.sign_peer(
        authority, key, server_key, name="a server", address=address, now=now
    )
    files = {"ca.pem": authority, "server.pem": certificate, "server.key": server_key}
    public = serialization.load_pem_private_key(server_key, None).public_key()
    pem, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    files["server.pub"] = public.public_bytes(pem, form)
    files["credentials"] = b"cluster\nits password\n"
    for name, data in files.items():
        (directory / name).write_bytes(data)
    ports = free_ports(address, 2)
    options: tuple[str, ...] = (
        f"--cert-file={directory}/server.pem",
        f"--key-file={directory}/server.key",
    )
    if has_signed_tokens:
        keys = f"pub-key={directory}/server.pub,priv-key={directory}/server.key"
        options = (*options, f"--auth-token=jwt,{keys},sign-method=ES256,ttl=10m")
    client, peer = f"https://{address}:{ports[0]}", f"http://{address}:{ports[1]}"
    server = EtcdServer("other", client, peer, directory, options)
    made = SecuredEtcd(server, directory / "ca.pem", directory / "credentials")
    try:
        made.start()
        made.protect("cluster", "its password")
        yield made
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
