"""Candidates' etcd servers with the cluster's certificates: who gets in, members, and what is started again."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import ganeti
from ganeti.base import certificates, tls
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.pidfile import pid_file, serving_process
from ganeti.model.objects import NodeUuid
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.etcd.gateway import Gateway, GatewayError, NotSent, Rejected, Unanswered
from ganeti.store.etcd.messages import put
from ganeti.store.etcd.server import ensure_certificate
from ganeti.store.etcd.settings import (
    Access,
    ServerSettings,
    access,
    client_url,
    keep_server_settings,
    peer_url,
)
from ganeti.store.settings import StateSettings, keep_state_settings, state_settings
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
CLUSTER = "99999999-2222-4333-8444-555555555555"
PROGRAM = "ganeti-etcd"


class Node:
    """One candidate's directory, with the cluster's authority."""

    def __init__(self, root: Path, number: int, authority: bytes, authority_key: bytes) -> None:
        self.paths = Paths(root / f"node{number}")
        self.uuid = f"{number:08}-1111-4222-8333-444444444444"
        self.address = f"127.0.11.{number}"
        self.process: subprocess.Popen[bytes] | None = None
        for directory in (self.paths.data, self.paths.log, self.paths.run):
            directory.mkdir(parents=True)
        key = certificates.new_key()
        request = certificates.signing_request(key, f"node{number}")
        certificate = certificates.sign_node(
            authority,
            authority_key,
            request,
            node_uuid=self.uuid,
            node_name=f"node{number}",
            now=time.time(),
        )
        for path, data in (
            (self.paths.authority_certificate, authority),
            (self.paths.authority_key, authority_key),
            (self.paths.node_key, key),
            (self.paths.node_certificate, certificate),
        ):
            write_atomically(path, data, mode=0o600)

    def prepare(self, initial_cluster: str, *, is_new: bool) -> None:
        settings = ServerSettings(
            name=self.uuid,
            cluster_uuid=CLUSTER,
            address=self.address,
            initial_cluster=initial_cluster,
            is_new=is_new,
        )
        keep_server_settings(self.paths, settings)
        keep_state_settings(
            self.paths, StateSettings(kind="etcd", endpoints=(client_url(self.address),))
        )
        ensure_certificate(self.paths, CLUSTER, self.address, time.time())

    @property
    def itself(self) -> str:
        return f"{self.uuid}={peer_url(self.address)}"

    def gateway(self) -> Gateway:
        return Gateway(access(self.paths, state_settings(self.paths)))

    async def start(self, *options: str) -> None:
        environment = {
            **os.environ,
            "GANETI_ROOTDIR": str(self.paths.root),
            "PYTHONPATH": str(Path(ganeti.__file__).parents[1]),
        }
        self.process = subprocess.Popen(  # noqa: ASYNC220 - it lives longer than the call
            [sys.executable, "-m", "ganeti.daemons.etcd", *options], env=environment
        )
        async with asyncio.timeout(60 * patience()):
            while serving_process(pid_file(self.paths.run, PROGRAM)) is None:
                assert self.process.poll() is None, "it ended as it started"
                await asyncio.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[Node]]:
    authority_key = certificates.new_key()
    authority = certificates.new_authority(authority_key, "cluster", CLUSTER, time.time())
    made = [Node(tmp_path, number, authority, authority_key) for number in (1, 2)]
    yield made
    for node in made:
        node.stop()


async def written(gateway: Gateway, limit_s: float = 60.0) -> None:
    """Return once a write is possible."""
    async with asyncio.timeout(limit_s * patience()):
        while True:
            with suppress(NotSent, Unanswered):
                await gateway.txn([], [put(b"k", b"1")])
                return
            await asyncio.sleep(0.1)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.requirement("G22")
async def test_only_candidates_get_in_and_a_killed_server_comes_back(nodes: list[Node]) -> None:
    one = nodes[0]
    one.prepare(one.itself, is_new=True)
    await one.start()
    candidate = one.gateway()
    await written(candidate)
    assert EtcdFiles(one.paths).directory.stat().st_mode & 0o777 == 0o700
    files = one.paths.node_certificate, one.paths.node_key, EtcdFiles(one.paths).authority
    plain = Gateway(Access((client_url(one.address),), tls.client_context(*files)))
    with pytest.raises(GatewayError):
        await plain.range(b"k")
    await plain.close()

    assert one.process is not None
    (server,) = children(one.process.pid)
    os.kill(server, signal.SIGKILL)
    await written(candidate)
    (again,) = children(one.process.pid)
    assert again != server
    one.stop(signal.SIGKILL)
    async with asyncio.timeout(10 * patience()):
        while Path(f"/proc/{again}").exists():
            if "Z" in Path(f"/proc/{again}/stat").read_text().rpartition(")")[2].split()[:1]:
                break
            await asyncio.sleep(0.05)
    await candidate.close()


@pytest.mark.soak
async def test_a_second_candidate_is_a_learner_first_then_a_member_then_all_that_is_left(
    nodes: list[Node],
) -> None:
    one, two = nodes
    one.prepare(one.itself, is_new=True)
    await one.start()
    gateway = one.gateway()
    await written(gateway)
    async with asyncio.timeout(60 * patience()):
        while True:
            with suppress(Rejected):
                added = await gateway.add_member(peer_url(two.address), as_learner=True)
                break
            await asyncio.sleep(0.2)
    two.prepare(f"{one.itself},{two.itself}", is_new=False)
    await two.start()
    async with asyncio.timeout(60 * patience()):
        while True:
            with suppress(Rejected, Unanswered):
                await gateway.promote_member(added.member.ID)
                break
            await asyncio.sleep(0.2)
    other = two.gateway()
    await written(other)
    names = {member.name for member in (await other.members()).members}
    assert names == {NodeUuid(one.uuid), NodeUuid(two.uuid)}
    one.stop()
    with pytest.raises(GatewayError):
        await other.txn([], [put(b"alone", b"1")])
    two.stop()
    await two.start("--force-new-cluster")
    await written(other)
    assert len((await other.members()).members) == 1
    two.stop()
    await two.start()
    await written(other)
    await gateway.close()
    await other.close()


@pytest.mark.soak
async def test_a_member_that_is_taken_out_leaves_the_others_as_they_are(nodes: list[Node]) -> None:
    one, two = nodes
    one.prepare(one.itself, is_new=True)
    await one.start()
    gateway = one.gateway()
    await written(gateway)
    added = await gateway.add_member(peer_url(two.address), as_learner=True)
    async with asyncio.timeout(60 * patience()):
        while True:
            with suppress(Rejected, Unanswered):
                await gateway.remove_member(added.member.ID)
                break
            await asyncio.sleep(0.2)
    await written(gateway)
    assert len((await gateway.members()).members) == 1
    await gateway.close()


def test_old_or_foreign_certificate_is_replaced(
    tmp_path: Path,
) -> None:
    key = certificates.new_key()
    now = time.time()
    node = Node(tmp_path, 1, certificates.new_authority(key, "cluster", CLUSTER, now), key)
    assert ensure_certificate(node.paths, CLUSTER, node.address, now)
    assert not ensure_certificate(node.paths, CLUSTER, node.address, now)
    assert ensure_certificate(node.paths, CLUSTER, node.address, now + 4.6 * 365 * 24 * 3600)
    new_key = certificates.new_key()
    new = certificates.new_authority(new_key, "cluster", CLUSTER, now)
    write_atomically(node.paths.authority_certificate, new, mode=0o600)
    write_atomically(node.paths.authority_key, new_key, mode=0o600)
    assert ensure_certificate(node.paths, CLUSTER, node.address, now)
    assert certificates.is_pair(EtcdFiles(node.paths).authority.read_bytes(), new_key)
    assert certificates.is_signed_by(
        EtcdFiles(node.paths).certificate.read_bytes(), EtcdFiles(node.paths).authority.read_bytes()
    )
