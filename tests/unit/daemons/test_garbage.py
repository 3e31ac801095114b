"""Old objects are left alone by the collector, and garbage among them is found all the same."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ganeti.daemons.garbage import GROWTH, LONGEST_WAIT_S, LOOK_EVERY_S, SWEEP_EVERY_S, GcPolicy
from tests.support.apart import apart


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@asynccontextmanager
async def begun(objects: GcPolicy) -> AsyncIterator[GcPolicy]:
    before = gc.get_threshold()
    objects.start()
    yield objects
    await objects.stop()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def swept(objects: GcPolicy) -> None:
    objects.sweep_soon()
    await asyncio.sleep(2 * LOOK_EVERY_S)


@pytest.mark.requirement("S202")
@apart
async def test_what_survived_a_collection_is_not_looked_at_again() -> None:
    async with begun(GcPolicy()):
        kept = [[number] for number in range(50_000)]
        gc.collect()
        assert len(gc.get_objects()) < 10_000
        assert gc.get_freeze_count() > len(kept)


@apart
async def test_new_garbage_is_found_by_an_ordinary_collection() -> None:
    async with begun(GcPolicy()):
        gone = weakref.ref(Knot())
        gc.collect()
        assert gone() is None


@apart
async def test_old_garbage_is_found_by_a_sweep() -> None:
    async with begun(GcPolicy()) as objects:
        knot = Knot()
        gone = weakref.ref(knot)
        gc.collect()
        del knot
        gc.collect()
        assert gone() is not None  # set aside
        await swept(objects)
        assert gone() is None


@apart
async def test_a_start_does_not_visit_what_is_frozen() -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.freeze()
    del knot
    async with begun(GcPolicy()) as objects:
        assert gone() is not None
        await swept(objects)
        assert gone() is None


@apart
async def test_a_sweep_comes_by_itself_once_there_is_much_more_than_before() -> None:
    async with begun(GcPolicy()):
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


@pytest.mark.sampled(1)
@pytest.mark.requirement("S202")
@pytest.mark.parametrize("busy_s", [600.0, 10 * LONGEST_WAIT_S])
@apart
async def test_a_sweep_that_is_due_waits_until_nothing_is_to_be_done_but_not_for_ever(
    busy_s: float,
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with begun(GcPolicy(lambda: min(loop.time() - began, SWEEP_EVERY_S + busy_s))):
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
