"""The loop of simulations: time alone, the same in each run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ganeti.simulation.simulation_loop import MOST_CANCELLED, SimulationLoop


def simulate(scenario: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        return await scenario()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(whole())


def test_timers_of_one_time_are_called_in_the_order_of_their_calls() -> None:
    called: list[int] = []

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        for number in (1, 2, 3):
            loop.call_later(5, called.append, number)
        loop.call_later(4, called.append, 0)
        loop.call_soon(called.append, -1)
        await asyncio.sleep(5)
        return loop.time()

    assert simulate(scenario) == 5
    assert called == [-1, 0, 1, 2, 3]


def test_timer_that_is_due_now_waits_for_no_other() -> None:
    async def scenario() -> float:
        asyncio.get_running_loop().call_later(60, int)
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.sleep(1), 2)
        return asyncio.get_running_loop().time()

    assert simulate(scenario) == 1


def test_cancelled_callbacks_are_not_called() -> None:
    called: list[str] = []

    async def scenario() -> list[bool]:
        loop = asyncio.get_running_loop()
        calls = [
            loop.call_soon(called.append, "soon"),
            loop.call_later(1, called.append, "later"),
            loop.call_later(1, called.append, "kept"),
        ]
        for one in calls[:2]:
            one.cancel()
            one.cancel()
        await asyncio.sleep(2)
        calls[2].cancel()
        return [one.cancelled() for one in calls]

    assert simulate(scenario) == [True, True, True]
    assert called == ["kept"]


def test_cancelled_timers_are_forgotten_long_before_their_time() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        kept = loop.create_future()
        loop.call_later(7, kept.set_result, None)
        for _ in range(3 * MOST_CANCELLED):
            loop.call_later(1e6, int).cancel()
        assert loop.waiting_timers <= MOST_CANCELLED + 1
        await kept
        return loop.time()

    assert simulate(scenario) == 7


def test_failed_callback_is_reported_and_others_are_called() -> None:
    async def scenario() -> list[str]:
        loop, said, called = asyncio.get_running_loop(), list[str](), list[str]()
        loop.set_exception_handler(lambda _loop, what: said.append(str(what["exception"])))
        loop.call_soon(int, "x")
        loop.call_soon(called.append, "next")
        await asyncio.sleep(1)
        return [*said, *called]

    assert simulate(scenario) == ["invalid literal for int() with base 10: 'x'", "next"]


def test_work_for_a_thread_is_done_at_once() -> None:
    def fail() -> None:
        raise OSError("no")

    async def scenario() -> int:
        with pytest.raises(OSError, match="no"):
            await asyncio.to_thread(fail)
        return await asyncio.to_thread(len, "four")

    assert simulate(scenario) == 4


def test_wait_for_what_never_happens_is_an_error() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="never happens"):
        simulate(scenario)


def test_future_of_a_time_is_done_then_or_cancelled_with_its_task() -> None:
    async def scenario() -> tuple[float, float]:
        loop = SimulationLoop.running()
        loop.call_later(3, int)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.after(60), 1)
        at = loop.now
        await asyncio.gather(loop.after(1), loop.after(1.5))
        return at, loop.now

    assert simulate(scenario) == (1, 2.5)


async def test_simulated_nodes_refuse_real_time() -> None:
    with pytest.raises(TypeError, match="simulated time"):
        SimulationLoop.running()
