"""The store in memory: the conformance suite, its faults, and random histories."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.simulation.faulty_store import (
    Break,
    Crash,
    Delay,
    Fault,
    FaultyStore,
    MemoryDisk,
    Refuse,
    Unknown,
)
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.interface import (
    Follower,
    Identity,
    Lease,
    Lost,
    Position,
    Put,
    Transaction,
)
from tests.unit.store.conformance import (
    CLUSTER,
    NODE,
    VOTE,
    EmbeddedConformance,
    Harness,
    StoreConformance,
    keys_of,
    put,
)


class MemoryHarness(Harness):
    def __init__(self) -> None:
        self.disk = MemoryDisk(Identity(CLUSTER, NODE))

    async def open(self, *, log_entries: int = 20_000) -> StateBackend:
        self.disk.log_entries = log_entries
        return FaultyStore(self.disk)

    def fill(self, store: StateBackend) -> None:
        assert isinstance(store, FaultyStore)
        store.set_full(full=True)

    async def free(self, store: StateBackend) -> None:
        assert isinstance(store, FaultyStore)
        store.set_full(full=False)

    def hold_sync(self, store: StateBackend) -> None:
        assert isinstance(store, FaultyStore)
        store.inject(Delay(1.0))


@pytest.fixture
def harness() -> MemoryHarness:
    return MemoryHarness()


@pytest.mark.virtual_time
class TestFaultyStore(StoreConformance, EmbeddedConformance):
    """Both conformance suites, in virtual time: it stands for the embedded back end."""


async def opened() -> tuple[FaultyStore, Lease]:
    store = FaultyStore(MemoryDisk(Identity(CLUSTER, NODE)))
    return store, await become_master(store, VOTE)


async def test_a_refused_transaction_takes_those_behind_it_along() -> None:
    store, lease = await opened()
    store.inject(Refuse(), after=1)
    results = await asyncio.gather(
        *(store.commit(lease, put(key)) for key in "abc"), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["Receipt", "Refused", "Refused"]
    assert await keys_of(store) == ["a"]
    await store.commit(lease, put("d"))
    await store.close()


@pytest.mark.parametrize("written", [True, False])
async def test_after_an_unknown_commit_a_new_epoch_and_a_load_tell(written: bool) -> None:
    store, lease = await opened()
    store.inject(Unknown(written))
    with pytest.raises(CommitUnknown):
        await store.commit(lease, put("a"))
    assert isinstance(store.statistics().role, Follower)
    with pytest.raises(NotMaster):
        await store.commit(lease, put("b"))
    await become_master(store, VOTE)
    assert await keys_of(store) == (["a"] if written else [])
    await store.close()


@pytest.mark.requirement("G16")
async def test_a_broken_disk_ends_the_store_for_good() -> None:
    store, lease = await opened()
    store.inject(Break())
    with pytest.raises(CommitUnknown):
        await store.commit(lease, put("a"))
    assert isinstance(store.statistics().role, Lost)
    for call in (store.commit(lease, put("b")), become_master(store, VOTE)):
        with pytest.raises(NotMaster, match="closed permanently"):
            await call
    with pytest.raises(StoreError):
        await keys_of(store)
    await store.close()


@pytest.mark.requirement("G1", "G2")
async def test_a_crash_keeps_what_was_synced_and_nothing_else() -> None:
    store, lease = await opened()
    await store.commit(lease, put("synced"))
    pending = asyncio.create_task(store.commit(lease, put("pending")))
    await asyncio.sleep(0)
    disk = store.crash()
    with pytest.raises(CommitUnknown):
        await pending
    again = FaultyStore(disk)
    assert await keys_of(again) == ["synced"]
    assert (await become_master(again, VOTE)).epoch == lease.epoch + 1
    await again.close()


@pytest.mark.virtual_time
async def test_a_slow_sync_delays_everything_behind_it() -> None:
    store, lease = await opened()
    loop = asyncio.get_running_loop()
    started = loop.time()
    store.inject(Delay(5.0))
    first = asyncio.create_task(store.commit(lease, put("a")))
    await asyncio.sleep(1.0)
    await store.commit(lease, put("b"))
    assert first.done()
    assert loop.time() - started == pytest.approx(5.0)
    await store.close()


async def test_serials_do_not_overflow_into_the_next_epoch() -> None:
    disk = MemoryDisk(Identity(CLUSTER, NODE), position=Position(1, 2**32 - 1), epoch=1)
    assert disk.position.following(2) == Position(2, 1)
    with pytest.raises(Refused, match="no serials left"):
        disk.position.following(1)


class Historian:
    """Runs random histories, and knows what each transaction's fate may be."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.store = FaultyStore(disk)
        self.lease = Lease(0)
        self.next_number = 0
        self.acknowledged: dict[int, Position] = {}
        self.surely_absent: set[int] = set()

    async def campaign(self) -> None:
        if isinstance(self.store.statistics().role, Lost):
            self.store = FaultyStore(self.disk)
        self.lease = await become_master(self.store, VOTE)

    async def commit(self, number: int) -> None:
        txn = Transaction((Put("n", str(number), b""), Put("last", "n", str(number).encode())))
        try:
            receipt = await self.store.commit(self.lease, txn)
        except (Refused, NotMaster):
            self.surely_absent.add(number)
        except CommitUnknown:
            pass
        else:
            self.acknowledged[number] = receipt.position

    async def burst(self, count: int, faults: list[tuple[int, Fault]]) -> None:
        for after, fault in faults:
            self.store.inject(fault, after=after)
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        await asyncio.gather(*(self.commit(number) for number in numbers))

    def validate(self) -> None:
        written = [
            int(operation.key)
            for entry in self.disk.log
            for operation in entry.transaction.operations
            if isinstance(operation, Put) and operation.kind == "n"
        ]
        assert written == sorted(set(written)), "order is kept, and nothing is written twice"
        assert set(self.acknowledged) <= set(written)
        assert not self.surely_absent & set(written)
        positions = [entry.position for entry in self.disk.log]
        assert positions == sorted(set(positions))
        rows = {key for kind, key in self.disk.rows if kind == "n"}
        assert rows == {str(number) for number in written}
        if written:
            assert self.disk.rows["last", "n"] == str(written[-1]).encode()
        for number, position in self.acknowledged.items():
            (entry,) = [entry for entry in self.disk.log if entry.position == position]
            assert Put("n", str(number), b"") in entry.transaction.operations


FAULTS = st.one_of(
    st.just(Refuse()),
    st.builds(Unknown, st.booleans()),
    st.builds(Break, st.booleans()),
    st.builds(Crash, st.booleans()),
    st.just(Delay(0.0)),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["burst", "burst", "campaign", "step down", "crash", "full", "free"]),
        st.integers(1, 6),
        st.lists(st.tuples(st.integers(0, 7), FAULTS), max_size=2),
    ),
    max_size=25,
)


@pytest.mark.sampled(0)
@pytest.mark.requirement("G1", "G2", "G4")
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_random_histories_lose_nothing_acknowledged_and_keep_the_order(
    steps: list[tuple[str, int, list[tuple[int, Fault]]]],
) -> None:
    async def run() -> None:
        historian = Historian(MemoryDisk(Identity(CLUSTER, NODE)))
        await historian.campaign()
        for step, count, faults in steps:
            if step == "burst":
                await historian.burst(count, faults)
            elif step == "crash":
                historian.store.crash()
            elif step in {"full", "free"}:
                historian.store.set_full(full=step == "full")
            elif step == "step down" and not isinstance(historian.store.statistics().role, Lost):
                await historian.store.step_down("asked to")
            elif step == "campaign":
                historian.store.set_full(full=False)
                await historian.campaign()
            historian.validate()
        await historian.store.close()

    asyncio.run(run())
