"""The state leaves etcd: no candidate is elected there meanwhile, and a cancelled move ends that."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED
from ganeti.store.etcd import moving
from ganeti.store.etcd.upkeep import LEASE_S
from ganeti.store.interface import Identity
from ganeti.store.settings import StateSettings, keep_state_settings
from tests.support.memory_etcd import MemoryGateway
from tests.unit.store.conformance import CLUSTER, NODE, OTHER
from tests.unit.store.etcd.test_backend import MemoryHarness, is_master, until

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G4")]

IN_ETCD = StateSettings(kind="etcd")
ME = Identity(CLUSTER, NODE)


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryHarness]:
    made = MemoryHarness()
    monkeypatch.setattr(moving, "open_gateway", lambda *_words: MemoryGateway(made.etcd))
    yield made
    for backend in made.opened:
        await backend.close()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.state_settings.parent.mkdir(parents=True, exist_ok=True)
    keep_state_settings(made, IN_ETCD)
    return made


async def test_no_candidate_is_elected_before_a_move_has_ended(
    harness: MemoryHarness, paths: Paths
) -> None:
    first, _lease, second = await harness.two()
    async with moving.leaving(paths, ME, IN_ETCD):
        await first.step_down("the test")
        await asyncio.sleep(3 * LEASE_S)
        assert not is_master(first)
        assert not is_master(second)
    await until(lambda: is_master(first) or is_master(second))


async def test_elections_stay_closed_where_the_state_has_left(
    harness: MemoryHarness, paths: Paths
) -> None:
    first, _lease, second = await harness.two()
    async with moving.leaving(paths, ME, IN_ETCD):
        keep_state_settings(paths, StateSettings(kind=EMBEDDED))
    await first.step_down("the test")
    await asyncio.sleep(3 * LEASE_S)
    assert not is_master(first)
    assert not is_master(second)


async def test_a_cancelled_move_makes_its_node_the_next_master(
    harness: MemoryHarness, paths: Paths
) -> None:
    first, _lease, second = await harness.two()
    async with moving.leaving(paths, ME, IN_ETCD):
        keep_state_settings(paths, StateSettings(kind=EMBEDDED))
        await first.step_down("the test")
    await moving.resume(paths, Identity(CLUSTER, OTHER), IN_ETCD)
    await until(lambda: is_master(first) or is_master(second))
    assert is_master(second)
