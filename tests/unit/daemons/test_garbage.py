"""Old objects are left alone by the collector, and garbage among them is found all the same."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from ganeti.daemons.garbage import GROWTH, LONGEST_WAIT_S, SWEEP_EVERY_S, GcPolicy


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
async def old_objects() -> AsyncIterator[GcPolicy]:
    before = gc.get_threshold()
    objects = GcPolicy()
    objects.start()
    yield objects
    await objects.stop()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


@pytest.mark.requirement("S202")
async def test_what_survived_a_collection_is_not_looked_at_again(old_objects: GcPolicy) -> None:
    kept = [[number] for number in range(50_000)]
    gc.collect()
    assert len(gc.get_objects()) < 10_000
    assert gc.get_freeze_count() > len(kept)


async def test_new_garbage_is_found_by_an_ordinary_collection(old_objects: GcPolicy) -> None:
    gone = weakref.ref(Knot())
    gc.collect()
    assert gone() is None


async def test_old_garbage_is_found_by_a_sweep(old_objects: GcPolicy) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect()
    del knot
    gc.collect()
    assert gone() is not None  # set aside
    old_objects.sweep()
    assert gone() is None


@pytest.mark.virtual_time
async def test_a_sweep_comes_by_itself_once_there_is_much_more_than_before() -> None:
    objects = GcPolicy()
    objects.start()
    try:
        kept: list[Knot] = [Knot()]
        gone = weakref.ref(kept[0])
        gc.collect()
        kept.clear()
        await asyncio.sleep(SWEEP_EVERY_S * 1.5)
        assert gone() is not None
        crowd = [[number] for number in range(int(gc.get_freeze_count() * GROWTH))]
        gc.collect()
        await asyncio.sleep(SWEEP_EVERY_S)
        assert crowd
        assert gone() is None
    finally:
        await objects.stop()


@pytest.mark.virtual_time
@pytest.mark.requirement("S202")
@pytest.mark.parametrize("busy_s", [600.0, 10 * LONGEST_WAIT_S])
async def test_a_sweep_that_is_due_waits_until_nothing_is_to_be_done_but_not_for_ever(
    busy_s: float,
) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    objects = GcPolicy(lambda: min(loop.time() - begun, SWEEP_EVERY_S + busy_s))
    objects.start()
    try:
        kept: list[Knot] = [Knot()]
        gone = weakref.ref(kept[0])
        gc.collect()
        kept.clear()
        crowd = [[number] for number in range(int(gc.get_freeze_count() * GROWTH))]
        gc.collect()
        await asyncio.sleep(SWEEP_EVERY_S + min(busy_s, LONGEST_WAIT_S) - 5)
        assert gone() is not None
        await asyncio.sleep(10)
        assert gone() is None
        assert crowd
    finally:
        await objects.stop()
