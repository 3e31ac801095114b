"""The back end on an etcd in memory: the suite of all back ends, elections, and faults at each moment."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from ganeti.base.errors import CommitUnknown, NotMaster, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.etcd.backend import STAND_BACK_S, EtcdBackend
from ganeti.store.etcd.keys import Keys, LeaderKey
from ganeti.store.etcd.messages import delete
from ganeti.store.etcd.messages import put as put_key
from ganeti.store.etcd.upkeep import LEASE_S, EtcdOptions
from ganeti.store.interface import (
    Campaign,
    CampaignKind,
    Follower,
    Identity,
    Lease,
    Lost,
    Master,
    MemberChange,
    Position,
)
from tests.support.memory_etcd import MemoryEtcd, MemoryGateway
from tests.unit.store.conformance import (
    CLUSTER,
    NODE,
    OTHER,
    Harness,
    StoreConformance,
    keys_of,
    put,
)

pytestmark = pytest.mark.virtual_time

KEYS = Keys(CLUSTER)
OPTIONS = EtcdOptions(is_managed=False)


class MemoryHarness(Harness):
    def __init__(self) -> None:
        self.etcd = MemoryEtcd()
        self.opened: list[EtcdBackend] = []
        self.promised = 0
        self.fault: Exception | None = None

    async def _promised(self, _taken: int) -> int:
        if self.fault is not None:
            raise self.fault
        return self.promised

    async def open(self, *, log_entries: int = 20_000, node: NodeUuid = NODE) -> EtcdBackend:
        backend = EtcdBackend(
            MemoryGateway(self.etcd),
            Identity(CLUSTER, node),
            highest_promised=self._promised,
            options=OPTIONS,
        )
        self.opened.append(backend)
        await backend.start()
        return backend

    async def two(self) -> tuple[EtcdBackend, Lease, EtcdBackend]:
        """A master with its lease, and another candidate."""
        first = await self.open()
        lease = await become_master(first)
        await first.change_members(lease, MemberChange(OTHER, is_voter=True, is_candidate=True))
        return first, lease, await self.open(node=OTHER)

    def fill(self, store: StateBackend) -> None:
        line(store).is_full = True

    async def free(self, store: StateBackend) -> None:
        line(store).is_full = False
        while store.statistics().is_full:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)

    def hold_sync(self, store: StateBackend) -> None:
        line(store).late_once_s = 0.2


def line(store: StateBackend) -> MemoryGateway:
    assert isinstance(store, EtcdBackend)
    assert isinstance(store._gateway, MemoryGateway)
    return store._gateway


@pytest.fixture
async def harness() -> AsyncIterator[MemoryHarness]:
    made = MemoryHarness()
    yield made
    for backend in made.opened:
        await backend.close()


class TestEtcdBackend(StoreConformance):
    """What every back end does."""


# It is elected a moment after it is opened, without being asked.
for name in ("test_a_new_store_is_empty_and_follows", "test_role_changes_are_reported_in_order"):
    assert hasattr(StoreConformance, name), f"{name} is not in the suite any more"
    setattr(TestEtcdBackend, name, None)


def is_master(store: EtcdBackend) -> bool:
    return isinstance(store.statistics().role, Master)


async def until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)


async def never_two_masters(*stores: EtcdBackend) -> None:
    """Watch; fails when two believe to be the master at the same moment."""
    while True:
        assert sum(is_master(one) for one in stores) <= 1
        await asyncio.sleep(0.01)


@pytest.mark.requirement("G4", "G19")
@pytest.mark.sampled(15)
@pytest.mark.parametrize("moment_s", [0.0, 0.4, 0.9, 1.4, 1.9])
@pytest.mark.parametrize("late_s", [0.0, 0.5, 1.0])
async def test_a_master_that_is_cut_off_ends_before_another_begins(
    harness: MemoryHarness, moment_s: float, late_s: float
) -> None:
    first, lease, second = await harness.two()
    watch = asyncio.create_task(never_two_masters(first, second))
    line(first).late_s = late_s
    await asyncio.sleep(10 + moment_s)
    assert is_master(first), "late answers are no reason to end"
    line(first).is_cut = True
    await until(lambda: is_master(second), LEASE_S + 5)
    with pytest.raises((NotMaster, CommitUnknown)):
        await first.commit(lease, put("late"))
    assert not watch.done()
    watch.cancel()
    assert await keys_of(second) == []
    line(first).is_cut, line(first).late_s = False, 0.0


@pytest.mark.requirement("G4")
async def test_the_lease_of_an_election_counts_from_the_request_not_from_the_answer(
    harness: MemoryHarness,
) -> None:
    first, lease, second = await harness.two()
    await second.close()
    await first.step_down("the test")
    line(first).late_once_s = 0.0
    line(first).late_s = 1.0
    await until(lambda: is_master(first))
    line(first).is_cut = True
    ends_at = min(one.ends_at for one in harness.etcd.leases.values())
    await until(lambda: not is_master(first), LEASE_S + 5)
    assert asyncio.get_running_loop().time() < ends_at
    assert isinstance(lease, Lease)
    line(first).is_cut, line(first).late_s = False, 0.0


@pytest.mark.requirement("G4", "A26")
async def test_an_epoch_is_greater_than_what_any_register_has_promised(
    harness: MemoryHarness,
) -> None:
    harness.promised = 41
    store = await harness.open()
    assert (await become_master(store)).epoch == 42
    harness.promised = 7
    await store.step_down("the test")
    await until(lambda: is_master(store))
    assert (await become_master(store)).epoch == 43


@pytest.mark.requirement("G4")
@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_master_whose_key_is_gone_writes_nothing_however_soon_it_tries(
    harness: MemoryHarness, taken_over: bool
) -> None:
    first = await harness.open()
    lease = await become_master(first)
    await first.commit(lease, put("before"))
    gone = [delete(KEYS.leader)]
    harness.etcd.txn([], gone, [])
    if taken_over:
        harness.etcd.txn([], [put_key(KEYS.leader, LeaderKey(OTHER, 9).encode())], [])
    with pytest.raises(NotMaster):
        await first.commit(lease, put("after"))
    assert await keys_of(first) == ["before"]
    assert not is_master(first)


@pytest.mark.requirement("G1", "G4")
@pytest.mark.parametrize("what", ["lost call", "lost answer"])
async def test_a_commit_is_unknown_only_where_it_was_perhaps_written(
    harness: MemoryHarness, what: str
) -> None:
    first = await harness.open()
    lease = await become_master(first)
    if what == "lost call":
        line(first).is_cut = True
        expected: type[Exception] = NotMaster
    else:
        line(first).loses_answers = True
        expected = CommitUnknown
    with pytest.raises(expected):
        await first.commit(lease, put("a"))
    line(first).is_cut = line(first).loses_answers = False
    await until(lambda: is_master(first))
    assert await keys_of(first) == ([] if what == "lost call" else ["a"])


@pytest.mark.requirement("G1", "G4")
async def test_a_request_whose_answer_was_lost_is_written_once_and_acknowledged(
    harness: MemoryHarness,
) -> None:
    first = await harness.open()
    lease = await become_master(first)
    line(first).loses_answers = True
    writing = asyncio.create_task(first.commit(lease, put("a")))
    await asyncio.sleep(0.3)
    line(first).loses_answers = False
    position = (await writing).position
    assert position == Position(lease.epoch, 1)
    assert (await first.commit(lease, put("b"))).position == Position(lease.epoch, 2)
    assert await keys_of(first) == ["a", "b"]


@pytest.mark.requirement("G4")
async def test_another_master_while_an_answer_is_lost_makes_the_outcome_unknown(
    harness: MemoryHarness,
) -> None:
    first, lease, second = await harness.two()
    line(first).loses_answers = True
    writing = asyncio.create_task(first.commit(lease, put("a")))
    await asyncio.sleep(0.05)
    leader = next(one for one in harness.etcd.leases.values() if KEYS.leader in one.keys)
    leader.ends_at = 0.0
    line(first).is_cut = True
    await until(lambda: is_master(second))
    await second.commit(await become_master(second), put("b"))
    line(first).loses_answers = line(first).is_cut = False
    with pytest.raises(CommitUnknown):
        await writing
    assert await keys_of(second) == ["a", "b"]


@pytest.mark.requirement("G19")
async def test_hand_over_makes_only_the_requesting_node_the_master(
    harness: MemoryHarness,
) -> None:
    first, lease, second = await harness.two()
    third = NodeUuid("node-3")
    await first.change_members(lease, MemberChange(third, is_voter=True, is_candidate=True))
    other = await harness.open(node=third)
    await first.commit(lease, put("a"))
    begun = asyncio.get_running_loop().time()
    await become_master(second, Campaign(CampaignKind.HAND_OVER))
    assert asyncio.get_running_loop().time() - begun < LEASE_S
    assert [is_master(one) for one in (first, second, other)] == [False, True, False]
    with pytest.raises(NotMaster):
        await first.commit(lease, put("b"))
    await asyncio.sleep(20)
    assert is_master(second), "the hand-over request is withdrawn"


@pytest.mark.requirement("G19")
async def test_a_candidate_that_is_none_any_more_is_not_elected(harness: MemoryHarness) -> None:
    first, lease, second = await harness.two()
    await first.change_members(lease, MemberChange(OTHER, is_voter=True, is_candidate=False))
    line(first).is_cut = True
    await asyncio.sleep(3 * LEASE_S)
    role = second.statistics().role
    assert isinstance(role, Follower)
    assert "not a master candidate" in role.reason
    line(first).is_cut = False


@pytest.mark.requirement("G19")
@pytest.mark.parametrize("mark", [KEYS.incomplete, KEYS.moved], ids=["incomplete", "moved"])
async def test_incomplete_or_moved_state_prevents_elections(
    harness: MemoryHarness, mark: bytes
) -> None:
    harness.etcd.txn([], [put_key(mark, b"node-9")], [])
    store = await harness.open()
    await asyncio.sleep(3 * LEASE_S)
    assert not is_master(store)
    harness.etcd.txn([], [delete(mark)], [])
    await until(lambda: is_master(store))


@pytest.mark.requirement("G3")
async def test_a_damaged_row_is_never_given_out(harness: MemoryHarness) -> None:
    store = await harness.open()
    lease = await become_master(store)
    await store.commit(lease, put("a"))
    row = KEYS.row("instance", "a")
    kept = harness.etcd.at(row)
    assert kept is not None
    harness.etcd.txn([], [put_key(row, kept.value[:-1] + b"x")], [])
    with pytest.raises(StoreError, match="damaged"):
        await keys_of(store)


@pytest.mark.requirement("G8")
async def test_the_ceiling_of_job_ids_is_there_for_the_next_master(harness: MemoryHarness) -> None:
    first, lease, second = await harness.two()
    await first.raise_job_id_ceiling(lease, 3000)
    await first.raise_job_id_ceiling(lease, 1000)
    assert (await first.members()).job_id_ceiling == 3000
    await first.close()
    await until(lambda: is_master(second))
    assert (await second.members()).job_id_ceiling == 3000


async def test_a_damaged_head_ends_the_back_end_for_good(harness: MemoryHarness) -> None:
    store = await harness.open()
    lease = await become_master(store)
    await store.commit(lease, put("a"))
    harness.etcd.txn([], [put_key(KEYS.head, b"?")], [])
    await until(lambda: isinstance(store.statistics().role, Lost))


@pytest.mark.requirement("G19")
async def test_a_master_that_steps_down_leaves_the_election_to_others(
    harness: MemoryHarness,
) -> None:
    first, _lease, second = await harness.two()
    for _ in range(5):
        await asyncio.sleep(2 * STAND_BACK_S)
        await first.step_down("the test")
        await until(lambda: is_master(first) or is_master(second))
        assert is_master(second)
        await asyncio.sleep(2 * STAND_BACK_S)
        await second.step_down("the test")
        await until(lambda: is_master(first) or is_master(second))
        assert is_master(first)


async def test_an_election_that_fails_by_a_fault_of_our_own_ends_the_back_end(
    harness: MemoryHarness,
) -> None:
    harness.fault = ZeroDivisionError("a fault of our own")
    store = await harness.open()
    await until(lambda: isinstance(store.statistics().role, Lost))
    with pytest.raises(NotMaster, match="fault of our own"):
        await become_master(store)
