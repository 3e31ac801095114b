"""The state in three real etcd servers: elections, faults of servers, and of the master itself."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress

import pytest

from ganeti.base.errors import CommitUnknown, NotMaster, Refused
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.messages import KeyValue
from ganeti.store.etcd.messages import put as put_key
from ganeti.store.etcd.settings import Access
from ganeti.store.etcd.upkeep import LEASE_S, EtcdOptions
from ganeti.store.interface import (
    META_KIND,
    Campaign,
    CampaignKind,
    Follower,
    Identity,
    Lease,
    Master,
    MemberChange,
    NotYet,
    Position,
    Put,
    Row,
    Transaction,
)
from tests.support.etcd_servers import EtcdServers, etcd_servers
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
NODES = tuple(NodeUuid(f"node-{number}") for number in (1, 2, 3))
LIMIT_S = 40.0
LONG_S = 90
"""A lease that no test waits for."""


@pytest.fixture(scope="module")
def servers() -> Iterator[EtcdServers]:
    with etcd_servers() as running:
        yield running


class Candidates:
    """Back ends of one cluster, each of another node."""

    def __init__(self, servers: EtcdServers) -> None:
        self.servers = servers
        self.cluster = str(uuid.uuid4())
        self.opened: list[EtcdBackend] = []
        self.promised = 0
        self.gone: set[NodeUuid] = set()
        """Nodes that say that no master daemon runs there."""
        self.lease_s = LEASE_S

    async def _promised(self, _taken: int) -> int:
        return self.promised

    async def _is_gone(self, node: NodeUuid) -> bool:
        return node in self.gone

    async def open(self, node: NodeUuid) -> EtcdBackend:
        number = NODES.index(node)
        endpoints = self.servers.endpoints
        backend = EtcdBackend(
            Gateway(Access(endpoints[number:] + endpoints[:number])),
            Identity(self.cluster, node),
            highest_promised=self._promised,
            is_gone=self._is_gone,
            options=EtcdOptions(is_managed=False, lease_s=self.lease_s),
        )
        await backend.start()
        self.opened.append(backend)
        return backend

    async def all(self) -> list[EtcdBackend]:
        """The first as the master, and the two others, candidates as well."""
        first = await self.open(NODES[0])
        lease = await become_master(first)
        for node in NODES[1:]:
            await first.change_members(lease, MemberChange(node, is_voter=True, is_candidate=True))
        return [first, *[await self.open(node) for node in NODES[1:]]]


@pytest.fixture
async def candidates(servers: EtcdServers) -> AsyncIterator[Candidates]:
    made = Candidates(servers)
    yield made
    for backend in made.opened:
        await backend.close()


async def master_among(*backends: EtcdBackend) -> tuple[EtcdBackend, Lease]:
    async with asyncio.timeout(LIMIT_S * patience()):
        while True:
            for backend in backends:
                role = backend.statistics().role
                if isinstance(role, Master):
                    return backend, role.lease
            await asyncio.sleep(0.05)


async def rows_of(backend: StateBackend) -> dict[str, bytes]:
    async with aclosing(backend.load()) as items:
        return {
            item.key: item.value
            async for item in items
            if isinstance(item, Row) and item.kind != META_KIND
        }


def put(key: str, value: bytes = b"v") -> Transaction:
    return Transaction((Put("instance", key, value),))


async def die(backend: EtcdBackend) -> None:
    """As by kill -9: nothing is given back."""
    backend._roles.is_closed = True
    tasks = [
        task
        for task in asyncio.all_tasks()
        if task.get_name().startswith("etcd-") and _belongs(task, backend)
    ]

    async def nothing(number: int) -> None:
        return

    setattr(backend, "_give_back", nothing)  # noqa: B010 - a method, as mypy knows
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    backend._ended.set()
    await backend._gateway.close()


def _belongs(task: asyncio.Task[object], backend: EtcdBackend) -> bool:
    return task in {*backend._tasks, backend._view._task}


@pytest.mark.requirement("G4", "G19")
async def test_another_candidate_is_elected_when_the_master_dies(candidates: Candidates) -> None:
    first, *others = await candidates.all()
    lease = await become_master(first)
    await first.commit(lease, put("before"))
    loop = asyncio.get_running_loop()
    died = loop.time()
    await die(first)
    second, next_lease = await master_among(*others)
    took = loop.time() - died
    assert took >= LEASE_S - 2
    assert next_lease.epoch > lease.epoch
    assert await rows_of(second) == {"before": b"v"}
    receipt = await second.commit(next_lease, put("after"))
    assert receipt.position == Position(next_lease.epoch, 1)
    members = await second.members()
    assert members.candidates == frozenset(NODES)
    (third,) = [backend for backend in others if backend is not second]
    async with asyncio.timeout(LIMIT_S * patience()), aclosing(third.role_changes()) as roles:
        async for role in roles:
            if isinstance(role, Follower) and role.master == members.master:
                break


@pytest.mark.requirement("G19")
async def test_a_master_that_ends_in_order_is_followed_at_once(candidates: Candidates) -> None:
    candidates.lease_s = LONG_S
    first, *others = await candidates.all()
    await first.close()
    successor, _lease = await master_among(*others)
    assert successor in others


@pytest.mark.requirement("G4", "G19")
async def test_master_whose_daemon_is_gone_is_followed_at_once(candidates: Candidates) -> None:
    """As soon as its node says so: a connection that has ended proves nothing."""
    candidates.lease_s = LONG_S
    first, second, third = await candidates.all()
    lease = await become_master(first)
    await second.master_hung_up()
    assert first.holds(lease.epoch)
    await die(first)
    candidates.gone.add(NODES[0])
    await second.master_hung_up()
    _next, next_lease = await master_among(second, third)
    assert next_lease.epoch > lease.epoch


async def test_a_daemon_that_comes_back_does_not_wait_for_its_own_lease(
    candidates: Candidates,
) -> None:
    candidates.lease_s = LONG_S
    first = await candidates.open(NODES[0])
    lease = await become_master(first)
    await first.commit(lease, put("a"))
    await die(first)
    _again, next_lease = await master_among(await candidates.open(NODES[0]))
    assert next_lease.epoch > lease.epoch


@pytest.mark.requirement("G19")
async def test_hand_over_makes_the_requesting_node_the_master(candidates: Candidates) -> None:
    first, second, third = await candidates.all()
    lease = await become_master(first)
    pending = [asyncio.create_task(first.commit(lease, put(f"{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    await third.campaign(Campaign(CampaignKind.HAND_OVER))
    assert isinstance(third.statistics().role, Master)
    assert isinstance(first.statistics().role, Follower)
    assert isinstance(second.statistics().role, Follower)
    done = await asyncio.gather(*pending, return_exceptions=True)
    written = await rows_of(third)
    for number, outcome in enumerate(done):
        assert isinstance(outcome, NotMaster) or f"{number}" in written


@contextmanager
def deaf(backend: EtcdBackend) -> Iterator[None]:
    """Its watch does not tell of a hand-over, yet."""
    view, heard = backend._view, backend._view._learn

    def learn(found: KeyValue) -> None:
        if found.key != backend._keys.hand_over:
            heard(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "_learn", learn)
        yield


async def requested(backend: EtcdBackend) -> None:
    """Return once somebody is to be the master."""
    async with asyncio.timeout(LIMIT_S * patience()):
        while not (await backend._gateway.range(backend._keys.hand_over)).kvs:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)


@pytest.mark.requirement("G19")
async def test_candidate_unaware_of_a_hand_over_is_not_elected(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = await candidates.all()
    await third.close()
    has_tried, give_back = asyncio.Event(), second._give_back

    async def tried(number: int) -> None:
        has_tried.set()
        await give_back(number)

    monkeypatch.setattr(second, "_give_back", tried)
    with deaf(second):
        lease = await first._gateway.grant_lease(60)
        request = put_key(first._keys.hand_over, NODES[2].encode(), lease)
        await first._gateway.txn([], [request])
        async with asyncio.timeout(LIMIT_S * patience()):
            await has_tried.wait()
        assert isinstance(second.statistics().role, Follower)
        third = await candidates.open(NODES[2])
        elected, _lease = await master_among(*candidates.opened)
        assert elected is third


@pytest.mark.requirement("G19")
async def test_a_hand_over_is_requested_again_after_the_request_was_lost(
    candidates: Candidates,
) -> None:
    first, _second, third = await candidates.all()
    with deaf(first):
        asking = asyncio.create_task(third.campaign(Campaign(CampaignKind.HAND_OVER)))
        await requested(first)
        await first._gateway.delete(first._keys.hand_over)
    await asking
    assert isinstance(third.statistics().role, Master)


@pytest.mark.requirement("G19")
async def test_one_hand_over_does_not_take_back_another(candidates: Candidates) -> None:
    first, second, third = await candidates.all()
    with deaf(first):
        asking = asyncio.create_task(second.campaign(Campaign(CampaignKind.HAND_OVER)))
        await requested(first)
        with pytest.raises(NotYet, match="is being handed over to node-2"):
            await third.campaign(Campaign(CampaignKind.HAND_OVER))
    await asking
    assert isinstance(second.statistics().role, Master)
    assert not (await first._gateway.range(first._keys.hand_over)).kvs


async def test_vote_is_refused_beside_a_master_and_force_names_a_remedy(
    candidates: Candidates,
) -> None:
    _first, second, _third = await candidates.all()
    await master_among(*candidates.opened)
    await asyncio.sleep(0.5)
    with pytest.raises(NotMaster, match="node-1"):
        await second.campaign(Campaign())
    with pytest.raises(NotMaster, match="forced campaign without etcd's quorum does not exist"):
        await second.campaign(Campaign(CampaignKind.FORCE))


@pytest.mark.requirement("G4")
async def test_epochs_are_greater_than_what_any_node_has_promised(candidates: Candidates) -> None:
    candidates.promised = 700
    backend = await candidates.open(NODES[0])
    assert (await become_master(backend)).epoch == 701
    await backend.step_down("a node has promised more")
    candidates.promised = 900
    _backend, lease = await master_among(backend)
    assert lease.epoch == 901


@pytest.mark.requirement("G4")
async def test_a_master_whose_key_is_gone_writes_nothing(candidates: Candidates) -> None:
    backend = await candidates.open(NODES[0])
    lease = await become_master(backend)
    await backend.commit(lease, put("before"))
    keys = Keys(candidates.cluster)
    # The watch is slower than the next request, or not: what counts is that nothing is written.
    await backend._gateway.delete(keys.leader)
    with pytest.raises(NotMaster):
        await backend.commit(lease, put("after"))
    assert set(await rows_of(backend)) == {"before"}
    _again, next_lease = await master_among(backend)
    assert next_lease.epoch > lease.epoch


async def test_a_candidate_that_is_none_any_more_is_not_elected(candidates: Candidates) -> None:
    first, *others = await candidates.all()
    lease = await become_master(first)
    await first.change_members(lease, MemberChange(NODES[2], is_voter=True, is_candidate=False))
    await first.close()
    elected, _lease = await master_among(*others)
    assert elected is others[0]


class Writers:
    """Writes numbered rows one after the other, and remembers what was acknowledged."""

    def __init__(self, backends: list[EtcdBackend]) -> None:
        self.backends = backends
        self.acknowledged: dict[int, Position] = {}
        self.absent: set[int] = set()
        self.numbers = iter(range(1_000_000))
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            backend, lease = await master_among(*self.backends)
            number = next(self.numbers)
            try:
                receipt = await backend.commit(lease, put(f"{number:06}"))
            except (NotMaster, Refused):
                self.absent.add(number)
                await asyncio.sleep(0.05)
            except CommitUnknown:
                await asyncio.sleep(0.05)
            else:
                self.acknowledged[number] = receipt.position

    async def under(self, trouble: Callable[[], Awaitable[None]]) -> None:
        tasks = [asyncio.create_task(self.run()) for _ in range(8)]
        try:
            await trouble()
        finally:
            self.stopped = True
            for task in tasks:
                with suppress(TimeoutError):
                    await asyncio.wait_for(task, LIMIT_S * patience())

    async def check_nothing_is_lost(self, apart_from: int = 1_000_000) -> None:
        """Nothing acknowledged is lost, nothing refused is there, positions name one write each."""
        backend, _lease = await master_among(*self.backends)
        written = {int(key) for key in await rows_of(backend) if int(key) < apart_from}
        assert set(self.acknowledged) <= written
        assert not self.absent & written
        positions = list(self.acknowledged.values())
        assert len(set(positions)) == len(positions)
        assert len(self.acknowledged) > 20


@pytest.mark.requirement("G1", "G2", "G4")
@pytest.mark.parametrize("fault", ["killed", "paused"])
@pytest.mark.leaks_allowed("the servers that were killed are others afterwards")
async def test_each_server_in_turn_is_lost_and_nothing_acknowledged_with_it(
    candidates: Candidates, servers: EtcdServers, fault: str
) -> None:
    writers = Writers(await candidates.all())

    async def trouble() -> None:
        for member in servers.members:
            await asyncio.sleep(0.5)
            if fault == "killed":
                member.kill()
                await asyncio.sleep(1.5)
                await asyncio.to_thread(servers.start, member)
            else:
                member.signal(signal.SIGSTOP)
                await asyncio.sleep(2.5)
                member.signal(signal.SIGCONT)
        await master_among(*candidates.opened)
        await asyncio.sleep(1.0)

    await writers.under(trouble)
    await writers.check_nothing_is_lost()


@pytest.mark.requirement("G1", "G2", "G4")
async def test_without_a_quorum_the_master_ends_and_with_it_one_is_elected(
    candidates: Candidates, servers: EtcdServers
) -> None:
    backends = await candidates.all()
    writers = Writers(backends)
    ended: list[bool] = []

    async def trouble() -> None:
        await asyncio.sleep(0.5)
        for member in servers.members[1:]:
            member.signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_S + 4)
        ended.extend(isinstance(one.statistics().role, Follower) for one in backends)
        for member in servers.members[1:]:
            member.signal(signal.SIGCONT)
        await master_among(*backends)
        await asyncio.sleep(1.0)

    await writers.under(trouble)
    assert ended == [True, True, True]
    await writers.check_nothing_is_lost()


@pytest.mark.requirement("G1", "G4")
async def test_masters_step_down_again_and_again_under_load(candidates: Candidates) -> None:
    backends = await candidates.all()
    writers = Writers(backends)

    async def trouble() -> None:
        for _ in range(5):
            backend, _lease = await master_among(*backends)
            await asyncio.sleep(0.3)
            await backend.step_down("a test asks for it")

    await writers.under(trouble)
    await writers.check_nothing_is_lost()
    _backend, lease = await master_among(*backends)
    assert lease.epoch >= 6


@pytest.mark.requirement("G1", "G2", "G16")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
async def test_server_with_a_full_disk_does_not_stop_the_others() -> None:
    with etcd_servers(last_disk_mib=200) as servers:
        candidates = Candidates(servers)
        backends = await candidates.all()
        writers, full = Writers(backends), servers.members[-1]
        ballast = full.directory / full.name / "ballast"

        async def trouble() -> None:
            await asyncio.sleep(0.5)
            with suppress(OSError):
                ballast.write_bytes(bytes(200 << 20))
            # etcd ends when its log cannot grow: it has some room of its own, so much is written.
            for number in range(80):
                # On a busy machine the writes of this size may cost the master its lease.
                backend, lease = await master_among(*backends)
                with suppress(NotMaster, Refused, CommitUnknown):
                    await backend.commit(lease, put(f"{900_000 + number}", bytes(900_000)))
                if full.process is None or full.process.poll() is not None:
                    break
            assert full.process is not None
            assert full.process.poll() is not None, "the server with the full disk goes on"
            await asyncio.sleep(1.0)
            ballast.unlink()
            await asyncio.to_thread(servers.start, full)

        await writers.under(trouble)
        await writers.check_nothing_is_lost(apart_from=900_000)
        for backend in backends:
            await backend.close()


@pytest.mark.requirement("G16")
async def test_a_full_etcd_refuses_reads_on_and_makes_room_by_itself() -> None:
    with etcd_servers(1, options=("--quota-backend-bytes", str(6 << 20))) as small:
        candidates = Candidates(small)
        backend = EtcdBackend(
            Gateway(Access(small.endpoints)), Identity(candidates.cluster, NODES[0])
        )
        await backend.start()
        lease = await become_master(backend)
        with pytest.raises(Refused, match="no room"):
            await asyncio.wait_for(overwritten_for_ever(backend, lease), 60 * patience())
        assert isinstance(backend.statistics().role, Master)
        assert set(await rows_of(backend)) == {"big"}
        async with asyncio.timeout(LIMIT_S * patience()):
            while backend.statistics().is_full:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.1)
        await backend.commit(lease, put("after"))
        assert set(await rows_of(backend)) == {"after", "big"}
        await backend.close()


async def overwritten_for_ever(backend: EtcdBackend, lease: Lease) -> None:
    while True:
        await backend.commit(lease, put("big", bytes(900_000)))
