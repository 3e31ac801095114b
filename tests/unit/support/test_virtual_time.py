import asyncio
import time

import pytest

from ganeti.simulation import virtual_time
from ganeti.simulation.virtual_time import WALL_START, LoopClock, VirtualTimeLoop
from ganeti.store.worker import Worker
from tests.support.virtual_time import run_virtual


@pytest.mark.virtual_time
async def test_an_hour_of_sleep_beside_a_timeout_takes_no_real_time() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await asyncio.Event().wait()
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() == pytest.approx(3700)
    assert time.monotonic() - begun < 30


@pytest.mark.virtual_time
async def test_timers_fire_in_the_order_of_their_times() -> None:
    fired: list[int] = []

    async def after(delay_s: int) -> None:
        await asyncio.sleep(delay_s)
        fired.append(delay_s)

    async with asyncio.TaskGroup() as group:
        for delay_s in (300, 1, 86_400 * 30, 20):
            group.create_task(after(delay_s))
    assert fired == [1, 20, 300, 86_400 * 30]


@pytest.mark.virtual_time
async def test_no_jump_while_a_thread_works() -> None:
    async with asyncio.timeout(0.001):
        await asyncio.to_thread(time.sleep, 0.02)
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.virtual_time
async def test_no_jump_while_a_worker_works() -> None:
    """The jump ended waits for the database of a store on a busy machine."""
    worker = Worker("test")
    async with asyncio.timeout(0.001):
        await worker.call(lambda: time.sleep(0.02))
    await worker.close()
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.virtual_time
async def test_loop_clock_follows_the_loop() -> None:
    clock = LoopClock()
    await asyncio.sleep(5)
    assert (clock.monotonic(), clock.time()) == (5, WALL_START + 5)


async def test_without_the_marker_time_is_real() -> None:
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


def test_run_virtual_gives_the_result_back() -> None:
    assert run_virtual(asyncio.sleep(3600, "slept")) == "slept"


def test_run_virtual_reports_tasks_left_behind() -> None:
    kept: list[asyncio.Task[None]] = []

    async def leave_one() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(9), name="forgotten"))

    with pytest.raises(AssertionError, match="forgotten"):
        run_virtual(leave_one())


def test_a_task_that_repeats_itself_without_a_wait_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual_time, "MOST_TURNS", 50)

    async def turns(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    async def enough() -> None:
        for _ in range(5):
            await turns(40)
            await asyncio.sleep(1)

    run_virtual(enough())
    with pytest.raises(RuntimeError, match="time stands still at 0 s"):
        run_virtual(turns(60))
