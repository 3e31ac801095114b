"""What the master archives is in the archives of its followers, sooner or later and mostly at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ganeti.base.errors import ProtocolError, Refused
from ganeti.model.objects import NodeUuid
from ganeti.store import archive_feed
from ganeti.store import leader as leader_module
from ganeti.store.archive import JobArchive, ranges_of
from ganeti.store.archive_feed import ArchiveFeed, ReplicatedArchive, serve_archive
from ganeti.store.backend import become_master
from ganeti.store.interface import Delete, Identity, Lease, MemberChange, Membership, Transaction
from ganeti.store.stream import (
    ArchiveHave,
    ArchiveJobs,
    ArchiveMissing,
    Channel,
    ChannelClosed,
    Ping,
)
from ganeti.store.worker import Worker
from tests.support.replicas import MemoryChannel, Replicas
from tests.unit.store.conformance import VOTE, keys_of, put
from tests.unit.store.test_replicated import all_in_set, eventually, take_over

N1, N2, N3 = (NodeUuid(f"n{number}") for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times only decide when to ask (R14)."""
    monkeypatch.setattr(leader_module, "TICK_S", 0.01)
    monkeypatch.setattr(leader_module, "RETRY_S", 0.02)
    monkeypatch.setattr(archive_feed, "RETRY_S", 0.02)


class Candidates:
    """Three candidates with archives."""

    def __init__(self, directory: Path, worker: Worker) -> None:
        self.replicas = Replicas(directory, (N1, N2, N3))
        self.directory, self.worker = directory, worker
        self.archives: dict[NodeUuid, JobArchive] = {}
        self.lease = Lease(0)
        self.feeds: list[ArchiveFeed] = []
        self.is_any_next = False
        """As with a back end that elects any candidate."""

    async def open(self, node: NodeUuid) -> None:
        path = self.directory / f"{node}-archive.db"
        self.archives[node] = await JobArchive.open(path, self.worker)
        await self.replicas.open(node, archive=self.archives[node])

    async def begin(self) -> ReplicatedArchive:
        for node in (N1, N2, N3):
            await self.open(node)
        store = self.replicas.stores[N1]
        self.lease = await become_master(store, VOTE)
        for node in (N2, N3):
            await store.change_members(self.lease, MemberChange(node, True, True))
        await all_in_set(store)
        return await self.of(N1)

    async def of(self, node: NodeUuid) -> ReplicatedArchive:
        """The archive of this node as the master, fed to the other candidates from now on."""
        store = self.replicas.stores[node]
        members = await store.members()
        identity, links = Identity(self.replicas.cluster, node), self.replicas.links(node)
        feed = ArchiveFeed(identity, members.epoch, links, self.archives[node])
        self.feeds.append(feed)

        async def shown() -> Membership:
            return replace(await store.members(), is_any_next=self.is_any_next)

        archive = ReplicatedArchive(self.archives[node], feed, shown)
        archive.candidates_are(members.candidates)
        return archive

    async def are_fed(self) -> None:
        """All followers are fed."""

        def is_so() -> bool:
            found = self.feeds[-1].statistics()
            return len(found) == 2 and all(found.values())

        await eventually(is_so)

    async def close(self) -> None:
        for feed in self.feeds:
            await feed.close()
        await self.replicas.close()
        for archive in self.archives.values():
            await archive.close()


@pytest.fixture
async def candidates(tmp_path: Path) -> AsyncIterator[Candidates]:
    worker = Worker("archives")
    made = Candidates(tmp_path, worker)
    yield made
    await made.close()
    await worker.close()


def jobs(first: int, last: int, size: int = 10) -> list[tuple[int, bytes]]:
    return [(number, f"{number}".encode().ljust(size)) for number in range(first, last + 1)]


async def has(archive: JobArchive, count: int) -> None:
    async with asyncio.timeout(8):
        while await archive.count() != count:  # noqa: ASYNC110 - looks from outside
            await asyncio.sleep(0.01)


@pytest.mark.requirement("F10", "G1")
async def test_followers_have_what_was_archived_before_it_leaves_the_state(
    candidates: Candidates,
) -> None:
    archive = await candidates.begin()
    await candidates.are_fed()
    await archive.append(jobs(1, 50))
    for node in (N2, N3):
        assert await candidates.archives[node].get(50) == jobs(50, 50)[0][1]
        assert await candidates.archives[node].greatest_id() == 50


@pytest.mark.requirement("F10", "G1", "F4")
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_wherever_the_master_dies_the_next_one_has_each_job_live_or_archived(
    candidates: Candidates, steps: int
) -> None:
    archive = await candidates.begin()
    await candidates.are_fed()
    store = candidates.replicas.stores[N1]
    await store.commit(candidates.lease, put("7", "done", "job"))
    if steps >= 1:
        await candidates.archives[N1].append(jobs(7, 7))
    if steps >= 2:
        await archive.append(jobs(7, 7))
    if steps >= 3:
        await store.commit(candidates.lease, Transaction((Delete("job", "7"),)))
    candidates.replicas.cut_off(N1)
    await take_over(candidates.replicas, N2)
    live = "7" in await keys_of(candidates.replicas.stores[N2])
    archived = await candidates.archives[N2].get(7) is not None
    assert live or archived
    assert (live, archived) == (steps < 3, steps >= 2)
    # Archived again by the next master, which may have another content of it by then.
    await (await candidates.of(N2)).append(jobs(8, 8))
    candidates.replicas.repair()
    await has(candidates.archives[N1], 2 if steps else 1 + archived)


async def test_a_follower_that_was_away_gets_what_it_lacks_and_keeps_what_it_has(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_feed, "CHUNK_BYTES", 10_000)
    archive = await candidates.begin()
    await candidates.are_fed()
    candidates.replicas.cut_off(N3)
    await candidates.archives[N3].append([(5, b"its own")])
    await archive.append(jobs(1, 700, 100))
    assert await candidates.archives[N2].count() == 700
    candidates.replicas.repair()
    await has(candidates.archives[N3], 700)
    assert await candidates.archives[N3].get(5) == b"its own"


@pytest.mark.requirement("G1", "G17")
async def test_jobs_stay_in_the_state_while_a_holder_of_it_does_not_archive_them(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_feed, "DELIVERY_S", 0.05)
    archive = await candidates.begin()
    await candidates.are_fed()
    gate = asyncio.Event()
    real = candidates.archives[N3].add

    async def slow(given: list[tuple[int, bytes]]) -> None:
        await gate.wait()
        await real(given)

    monkeypatch.setattr(candidates.archives[N3], "add", slow)
    try:
        for given in (jobs(1, 10), []):
            with pytest.raises(Refused, match="node n3 does not have them"):
                await archive.append(given)
        assert await candidates.archives[N2].count() == 10
        assert await candidates.archives[N3].count() == 0
    finally:
        gate.set()
    await has(candidates.archives[N3], 10)
    await archive.append([])


@pytest.mark.requirement("G1", "F10")
async def test_archiving_waits_for_a_follower_whose_link_is_down(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = await candidates.begin()
    await candidates.are_fed()
    connected = asyncio.Event()
    serve = archive_feed.serve_archive

    async def down_at_first(channel: Channel, kept: JobArchive) -> None:
        await connected.wait()
        await serve(channel, kept)

    monkeypatch.setattr(archive_feed, "serve_archive", down_at_first)
    for one, two, channel in candidates.replicas.channels:
        if {one, two} == {N1, N3}:
            channel.close()
    await all_in_set(candidates.replicas.stores[N1])
    archiving = asyncio.create_task(archive.append(jobs(1, 5)))
    await has(candidates.archives[N2], 5)
    is_over = archiving.done()
    connected.set()
    await archiving
    assert not is_over
    assert await candidates.archives[N3].count() == 5


@pytest.mark.requirement("G1", "G17")
async def test_where_any_candidate_is_next_half_of_them_and_all_that_are_connected_archive(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_feed, "DELIVERY_S", 0.2)
    candidates.is_any_next = True
    archive = await candidates.begin()
    await candidates.are_fed()
    gate, real = asyncio.Event(), candidates.archives[N3].add

    async def slow(given: list[tuple[int, bytes]]) -> None:
        await gate.wait()
        await real(given)

    monkeypatch.setattr(candidates.archives[N3], "add", slow)
    with pytest.raises(Refused, match="node n3 does not have them"):
        await archive.append(jobs(1, 5))
    gate.set()
    await archive.append([])
    # One that is away is not waited for, whatever the sync set of this store says.
    candidates.replicas.cut_off(N3)
    await archive.append(jobs(6, 9))
    assert await candidates.archives[N2].count() == 9
    candidates.replicas.cut_off(N2)
    with pytest.raises(Refused, match="node n2 does not have them; node n3 does not have them"):
        await archive.append(jobs(10, 10))
    candidates.replicas.repair()
    await has(candidates.archives[N3], 10)
    await archive.append([])


@pytest.mark.requirement("G17")
async def test_node_with_a_damaged_archive_delays_no_other(candidates: Candidates) -> None:
    """It cannot be the master until it has all of this one's."""
    archive = await candidates.begin()
    await candidates.are_fed()
    await candidates.replicas.stores.pop(N3).close()
    await candidates.replicas.open(N3)
    await all_in_set(candidates.replicas.stores[N1])
    await archive.append(jobs(1, 5))
    assert await candidates.archives[N2].count() == 5


@pytest.mark.requirement("F18")
async def test_what_waits_for_a_slow_archive_is_bounded_in_bytes(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_feed, "QUEUED_BYTES", 1_000)
    archive = await candidates.begin()
    await candidates.are_fed()
    await archive.append(jobs(1, 100, 100))
    for node in (N2, N3):
        assert await candidates.archives[node].count() == 100


async def test_ten_thousand_equal_ids_take_few_and_small_messages(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    send = MemoryChannel.send

    async def noted(self: MemoryChannel, message: object) -> None:
        if isinstance(message, ArchiveHave | ArchiveMissing | ArchiveJobs):
            sent.append(message)
        await send(self, message)  # type: ignore[arg-type] # passed on

    monkeypatch.setattr(MemoryChannel, "send", noted)
    monkeypatch.setattr(archive_feed, "MOST_IDS", 1_000)  # ten questions, as 100,000 ids take
    for node in (N1, N2, N3):
        await candidates.open(node)
        await candidates.archives[node].append([(n, b"") for n in range(1, 10_001)])
    store = candidates.replicas.stores[N1]
    lease = await become_master(store, VOTE)
    await store.change_members(lease, MemberChange(N2, True, True))
    archive = await candidates.of(N1)
    await eventually(lambda: len(sent) >= 20)
    await archive.append([(10_001, b"")])
    await has(candidates.archives[N2], 10_001)
    assert len(sent) <= 25
    assert sum(len(m.ranges) for m in sent if isinstance(m, ArchiveHave)) <= 11


async def test_messages_that_are_none_of_this_conversation_end_it(candidates: Candidates) -> None:
    await candidates.open(N1)
    archive = candidates.archives[N1]
    for message, error in (
        (ArchiveHave([(1, 1 << 62)]), ProtocolError),
        (Ping(), ChannelClosed),
    ):
        channel = MemoryChannel(is_hushed=lambda: False)
        channel.incoming.put_nowait(message)
        with pytest.raises(error):
            await serve_archive(channel, archive)


def test_ranges_are_as_few_as_can_be() -> None:
    assert ranges_of([]) == []
    assert ranges_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]


@pytest.mark.requirement("F10")
async def test_what_a_follower_has_forgotten_is_not_given_back_by_master_or_successor(
    candidates: Candidates,
) -> None:
    archive = await candidates.begin()
    await candidates.are_fed()
    await archive.append(jobs(1, 20))
    candidates.replicas.cut_off(N3)
    assert await candidates.archives[N3].forget(lambda content: int(content) <= 15) == 15
    await archive.append(jobs(21, 22))
    candidates.replicas.repair()
    await has(candidates.archives[N3], 7)
    await candidates.are_fed()
    await archive.append(jobs(23, 23))
    assert await candidates.archives[N3].ids() == [23, 22, 21, 20, 19, 18, 17, 16]
    candidates.replicas.cut_off(N1)
    await take_over(candidates.replicas, N3)
    assert await (await candidates.of(N3)).greatest_id() == 23
    await candidates.archives[N2].forget(lambda content: int(content) <= 15)
    candidates.replicas.repair()
    await has(candidates.archives[N2], 8)
