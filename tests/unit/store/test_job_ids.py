"""Job ids come in blocks, in order, and never twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import StoreError
from ganeti.store.job_ids import BLOCK_SIZE, JobIdAllocator


@pytest.mark.requirement("G8")
def test_no_id_is_taken_above_the_ceiling() -> None:
    ids = JobIdAllocator(0)
    with pytest.raises(StoreError):
        ids.take()
    assert ids.ceiling_for(1) == BLOCK_SIZE
    ids.raised(BLOCK_SIZE)
    assert ids.ceiling_for(BLOCK_SIZE) is None
    assert list(ids.take(BLOCK_SIZE)) == list(range(1, BLOCK_SIZE + 1))
    assert ids.ceiling_for(1) == 2 * BLOCK_SIZE
    assert ids.ceiling_for(2 * BLOCK_SIZE + 1) == 4 * BLOCK_SIZE


@pytest.mark.requirement("G8")
def test_a_new_master_starts_above_the_ceiling() -> None:
    ids = JobIdAllocator(3000)
    ids.raised(4000)
    assert list(ids.take(2)) == [3001, 3002]


def test_a_ceiling_is_never_lowered() -> None:
    ids = JobIdAllocator(3000, 2500)
    ids.raised(1000)
    assert ids.ceiling == 3000
    assert ids.take().start == 2500


@pytest.mark.parametrize("next_id", [0, 12])
def test_an_impossible_next_id_is_refused(next_id: int) -> None:
    with pytest.raises(StoreError):
        JobIdAllocator(10, next_id)


@pytest.mark.requirement("G8")
@given(st.lists(st.one_of(st.integers(1, 40), st.none()), max_size=40))
def test_ids_strictly_increase_over_restarts(steps: list[int | None]) -> None:
    registered = 0
    ids = JobIdAllocator(registered, block_size=10)
    taken: list[int] = []
    for count in steps:
        if count is None:  # a crash, or another master
            ids = JobIdAllocator(registered, block_size=10)
            continue
        if (ceiling := ids.ceiling_for(count)) is not None:
            registered = ceiling
            ids.raised(ceiling)
        taken += ids.take(count)
        ids.validate()
    assert taken == sorted(set(taken))
    assert not taken or taken[-1] <= registered
