"""The port fits a back end that elects by itself: the suite of all back ends, and what elections are."""

import asyncio

import pytest

from ganeti.base.errors import NotMaster
from ganeti.simulation.faulty_store import Delay, MemoryDisk
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.interface import Campaign, CampaignKind, Follower, Identity, Master, NotYet
from tests.support.electing_store import ElectingStore, Engine
from tests.unit.store.conformance import (
    CLUSTER,
    FORCE,
    NODE,
    VOTE,
    Harness,
    StoreConformance,
    keys_of,
    put,
)

pytestmark = pytest.mark.virtual_time


class ElectingHarness(Harness):
    def __init__(self) -> None:
        self.engine = Engine(MemoryDisk(Identity(CLUSTER, NODE)))

    async def open(self, *, log_entries: int = 20_000) -> StateBackend:
        self.engine.disk.log_entries = log_entries
        return ElectingStore(self.engine)

    def fill(self, store: StateBackend) -> None:
        assert isinstance(store, ElectingStore)
        store.inner.set_full(full=True)

    async def free(self, store: StateBackend) -> None:
        assert isinstance(store, ElectingStore)
        store.inner.set_full(full=False)

    def hold_sync(self, store: StateBackend) -> None:
        assert isinstance(store, ElectingStore)
        store.inner.inject(Delay(1.0))


@pytest.fixture
def harness() -> ElectingHarness:
    return ElectingHarness()


class TestElectingStore(StoreConformance):
    """What every back end does."""


async def two() -> tuple[ElectingStore, ElectingStore]:
    """The first is elected."""
    engine = Engine(MemoryDisk(Identity(CLUSTER, NODE)))
    first, second = ElectingStore(engine), ElectingStore(engine)
    await asyncio.sleep(1)
    assert isinstance(first.statistics().role, Master)
    return first, second


@pytest.mark.requirement("G4")
async def test_stepping_down_lets_another_candidate_be_elected() -> None:
    first, second = await two()
    role = first.statistics().role
    assert isinstance(role, Master)
    await first.commit(role.lease, put("a"))
    await first.step_down("a commit of unknown outcome")
    await asyncio.sleep(1)
    assert isinstance(first.statistics().role, Follower)
    assert isinstance(second.statistics().role, Master)
    assert await keys_of(second) == ["a"]
    with pytest.raises(NotMaster):
        await first.commit(role.lease, put("b"))
    for store in (first, second):
        await store.close()


async def test_a_vote_waits_a_hand_over_asks_and_force_is_refused() -> None:
    first, second = await two()
    with pytest.raises(NotYet):
        await become_master(second, VOTE)
    with pytest.raises(NotMaster, match="recover"):
        await become_master(second, FORCE)
    lease = await become_master(second, Campaign(CampaignKind.HAND_OVER))
    await second.commit(lease, put("b"))
    assert await become_master(second, VOTE) == lease
    assert isinstance(first.statistics().role, Follower)
    for store in (first, second):
        await store.close()
