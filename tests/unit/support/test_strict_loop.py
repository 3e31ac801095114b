"""What the loop of the tests finds, although it keeps no stacks."""

import asyncio
import gc
import threading

import pytest

from tests.support.strict_loop import StrictLoop
from tests.support.virtual_time import StrictVirtualTimeLoop


@pytest.fixture(params=[StrictLoop, StrictVirtualTimeLoop])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(debug=True, loop_factory=request.param)


async def nothing() -> None:
    """Do nothing."""


def test_coroutine_that_is_never_awaited_is_found(runner: asyncio.Runner) -> None:
    async def forget() -> None:
        nothing()  # type: ignore[unused-coroutine]  # this is what must be found
        gc.collect()

    with runner, pytest.warns(RuntimeWarning, match="'nothing' was never awaited"):
        runner.run(forget())


def test_coroutine_function_is_no_callback(runner: asyncio.Runner) -> None:
    async def schedule() -> None:
        with pytest.raises(TypeError, match="coroutines cannot be used with call_soon"):
            asyncio.get_running_loop().call_soon(nothing)

    with runner:
        runner.run(schedule())


def test_call_from_another_thread_is_refused(runner: asyncio.Runner) -> None:
    found: list[BaseException] = []

    def call(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon(print)
        except RuntimeError as err:
            found.append(err)

    async def start() -> None:
        thread = threading.Thread(target=call, args=(asyncio.get_running_loop(),))
        thread.start()
        thread.join()

    with runner:
        runner.run(start())
    assert "Non-thread-safe operation" in str(found)
