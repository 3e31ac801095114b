"""New certificates for all nodes, with real files and certificates, on played lines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base import certificates, tls
from ganeti.base.errors import PrereqError, RpcFailed
from ganeti.base.paths import Paths
from ganeti.bootstrap.membership import write_identity
from ganeti.config.config import Config
from ganeti.config.ssconf_writer import ssconf_values
from ganeti.config.transaction import put_row
from ganeti.daemons.renewal import CryptoRenewal
from ganeti.model.objects import Cluster, Node
from ganeti.node.identity import finish_switch, handlers
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Procedure
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backend import become_master
from ganeti.store.interface import Transaction
from tests.unit.config.sample import NODES, sample_cluster, sample_group, sample_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("F39")]
NOW = 1_700_000_000.0
Died = type("Died", (Exception,), {})


class PlayedNode:
    """A node's files and its daemon; it takes calls only from whom it knows, as a real one does."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.handlers = handlers(paths)
        self.is_down = False

    @property
    def certificate(self) -> bytes:
        return self.paths.node_certificate.read_bytes()

    def accepts(self, certificate: bytes) -> bool:
        text = self.paths.authority_certificate.read_bytes()
        begins = b"-----BEGIN CERTIFICATE-----"
        return any(
            certificates.is_signed_by(certificate, begins + one) for one in text.split(begins)[1:]
        )


class World:
    """Three candidates, of which the first is the master; each line is checked at both ends."""

    def __init__(self, tmp_path: Path) -> None:
        self.nodes = [PlayedNode(Paths(tmp_path / f"node{number}")) for number in (1, 2, 3)]
        self.master = 0
        self.steps = 0
        self.dies_at = 0
        """The master dies before its n-th step."""
        key = certificates.new_key()
        authority = certificates.new_authority(key, "c", "u", NOW)
        for number, one in enumerate(self.nodes, 1):
            one.paths.data.mkdir(parents=True)
            own = certificates.new_key()
            name = f"node{number}.example.com"
            certificate = certificates.sign_node(
                *(authority, key, certificates.signing_request(own, name)),
                node_uuid=NODES[number - 1],
                node_name=name,
                now=NOW,
            )
            write_identity(one.paths, own, certificate, authority)
            one.paths.authority_key.write_bytes(key)
        self.first = [one.certificate for one in self.nodes]

    async def begin(self) -> None:
        store = FaultyStore(MemoryDisk())
        lease = await become_master(store)
        things = [sample_cluster(), sample_group()]
        things += [
            sample_node(number, certificate=tls.fingerprint(one.certificate))
            for number, one in enumerate(self.nodes, 1)
        ]
        await store.commit(lease, Transaction(tuple(put_row(thing) for thing in things)))
        self.config = await Config.load(store, lease, LoopClock(), CountingIds())
        change = self.config.change

        async def counted(fn: Callable[[Any], Any]) -> Any:
            self.step()
            return await change(fn)

        self.config.change = counted  # type: ignore[method-assign, assignment] # to count
        self.known: list[frozenset[str]] = [self.listed() for _ in self.nodes]
        self.renewal = self.new_renewal()

    def listed(self) -> frozenset[str]:
        lines = ssconf_values(self.config.snapshot)["master_candidates_certs"].splitlines()
        return frozenset(line.partition("=")[2] for line in lines)

    def new_renewal(self) -> CryptoRenewal:
        made = CryptoRenewal(
            *(self.nodes[self.master].paths, self.config, self, LoopClock()),  # type: ignore[arg-type] # played
            settle=self.settle,
            candidates=self,
        )
        made.start()
        return made

    async def fail_over(self, number: int) -> None:
        """Another candidate is the master from now on."""
        await self.renewal.close()
        self.master, self.dies_at = number, 0
        self.renewal = self.new_renewal()

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.dies_at:
            raise Died

    # What the master calls

    async def call(
        self, node: Node, procedure: Procedure[Any, Any], args: Any, *, key: str = ""
    ) -> Any:
        self.step()
        number = NODES.index(node.uuid)
        target, caller = self.nodes[number], self.nodes[self.master]
        if target.is_down:
            raise RpcFailed(node.name, "it is down")
        assert tls.fingerprint(target.certificate) in node.certificates, "somebody else answers"
        assert caller.accepts(target.certificate)
        assert target.accepts(caller.certificate)
        assert tls.fingerprint(caller.certificate) in self.known[number], "no candidate"
        return await target.handlers[procedure.name](args, Call())

    async def settle(self, _limit_s: float) -> list[str]:
        late = []
        for number, one in enumerate(self.nodes):
            if self.config.snapshot.nodes[NODES[number]].offline:
                continue
            if one.is_down:
                late.append(f"node{number + 1}.example.com")
            else:
                self.known[number] = self.listed()
        return late

    async def promote(self, node: Node) -> None:
        self.step()
        key = self.nodes[self.master].paths.authority_key.read_bytes()
        target = self.nodes[NODES.index(node.uuid)]
        if target.is_down:
            raise RpcFailed(node.name, "it is down")
        target.paths.authority_key.write_bytes(key)

    async def renew_confd_key(self) -> dict[str, str]:
        return {}

    # What came of it

    @property
    def cluster(self) -> Cluster:
        return self.config.snapshot.cluster

    def is_whole(self) -> bool:
        """Every node has a certificate of the one authority, and is known by it alone."""
        nodes = self.config.snapshot.nodes
        return not self.renewal.is_wanted and all(
            nodes[uuid].certificates == (tls.fingerprint(one.certificate),)
            and certificates.is_pair(one.certificate, one.paths.node_key.read_bytes())
            and all(other.accepts(one.certificate) for other in self.nodes)
            and not one.paths.next_node_key.exists()
            and not one.paths.next_node_certificate.exists()
            for uuid, one in zip(NODES, self.nodes, strict=True)
        )

    async def wait_whole(self) -> None:
        async with asyncio.timeout(600):
            while not self.is_whole():
                await asyncio.sleep(1)
                await self.settle(1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.begin()
    yield made
    await made.renewal.close()
    await made.config.close()


@pytest.mark.parametrize("authority", [False, True])
async def test_all_nodes_have_new_keys_and_certificates(world: World, authority: bool) -> None:
    assert await world.renewal.renew(authority=authority) == {}
    assert world.is_whole()
    assert all(one.certificate != old for one, old in zip(world.nodes, world.first, strict=True))
    authorities = {one.paths.authority_certificate.read_bytes() for one in world.nodes}
    keys = {one.paths.authority_key.read_bytes() for one in world.nodes}
    assert len(authorities) == len(keys) == 1
    assert certificates.is_pair(authorities.pop(), keys.pop())
    assert world.nodes[0].accepts(world.first[0]) is not authority
    assert world.listed() == {tls.fingerprint(one.certificate) for one in world.nodes}


async def test_a_node_that_is_down_is_named_and_gets_its_own_when_it_is_back(world: World) -> None:
    world.nodes[2].is_down = True
    late = await world.renewal.renew(authority=False)
    assert late.keys() >= {"node3.example.com"}
    assert "it is down" in late["node3.example.com"]
    assert world.nodes[2].certificate == world.first[2]
    world.nodes[2].is_down = False
    await world.wait_whole()
    assert world.nodes[2].certificate != world.first[2]


async def test_no_node_switches_before_all_accept_the_new_authority(world: World) -> None:
    world.nodes[1].is_down = True
    late = await world.renewal.renew(authority=True)
    assert "node2.example.com" in late
    assert [one.certificate for one in world.nodes] == world.first
    with pytest.raises(PrereqError, match="already"):
        await world.renewal.renew(authority=True)
    world.nodes[1].is_down = False
    await world.wait_whole()
    assert len(world.cluster.authorities) == 1


async def test_a_node_that_is_marked_offline_is_not_waited_for(world: World) -> None:
    world.nodes[1].is_down = True

    def offline(draft: Any) -> None:
        node = draft.nodes[NODES[1]]
        draft.put(msgspec.structs.replace(node, offline=True, master_candidate=False))

    await world.config.change(offline)
    assert await world.renewal.renew(authority=True) == {}
    assert world.nodes[1].certificate == world.first[1]
    assert len(world.cluster.authorities) == 1
    assert not world.nodes[0].accepts(world.first[1])


@pytest.mark.sampled(0)
@pytest.mark.parametrize("authority", [False, True])
@pytest.mark.parametrize("next_master", [pytest.param(0, marks=pytest.mark.soak), 1])
async def test_next_master_continues_an_interrupted_renewal(
    tmp_path: Path, authority: bool, next_master: int
) -> None:
    """Dead before each call and each change in turn; certificates that nobody accepts would be seen by `call`."""
    step = 1
    while True:
        world = World(tmp_path / str(step))
        await world.begin()
        await asyncio.sleep(0.1)
        world.dies_at, world.steps = step, 0
        renewing = asyncio.create_task(world.renewal.renew(authority=authority))
        task = world.renewal._task
        assert task is not None
        await asyncio.wait((renewing, task), return_when=asyncio.FIRST_COMPLETED)
        died = (renewing.done() and isinstance(renewing.exception(), Died)) or task.done()
        renewing.cancel()
        await asyncio.wait((renewing,))
        if task.done():
            assert isinstance(task.exception(), Died)
        await world.settle(1)
        await world.fail_over(next_master if died else 0)
        await world.wait_whole()
        await world.renewal.close()
        await world.config.close()
        if not died:
            break
        step += 1
    assert step > (12 if authority else 9)


@pytest.mark.parametrize("at", ["nothing", "key", "both"])
async def test_a_switch_that_a_crash_has_cut_short_is_finished_at_the_start(
    world: World, at: str
) -> None:
    paths = world.nodes[0].paths
    own = certificates.new_key()
    paths.next_node_key.write_bytes(own)
    paths.next_node_certificate.write_bytes(b"next")
    if at in ("key", "both"):
        paths.node_key.write_bytes(own)
    if at == "both":
        paths.node_certificate.write_bytes(b"next")
    for _ in range(2):
        finish_switch(paths)
        assert paths.node_key.read_bytes() == own
        assert paths.node_certificate.read_bytes() == b"next"
        assert not paths.next_node_key.exists()
        assert not paths.next_node_certificate.exists()


async def test_a_key_that_waits_for_its_certificate_is_kept(world: World) -> None:
    paths = world.nodes[0].paths
    paths.next_node_key.write_bytes(b"waiting")
    finish_switch(paths)
    assert paths.next_node_key.read_bytes() == b"waiting"
    assert paths.node_certificate.read_bytes() == world.first[0]
