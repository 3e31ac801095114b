"""Async tests in virtual time: `ganeti.simulation.virtual_time` with the checks of `strict_loop`.

For tests without real input or output.  Mark an async test, its class or its module with
`@pytest.mark.virtual_time`, or call `run_virtual(coroutine)` from a plain test (hypothesis).
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from ganeti.simulation.virtual_time import VirtualTimeLoop
from ganeti.store.worker import Worker, tell
from tests.support.strict_loop import StrictLoop

_T = TypeVar("_T")


class StrictVirtualTimeLoop(VirtualTimeLoop, StrictLoop):
    """Starts at 0 seconds."""


def wait_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let virtual time stand still while a `Worker` works, as it does for `run_in_executor`."""
    post = Worker.post

    def counted_post(worker: Worker, task: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualTimeLoop):
            post(worker, task)
            return

        def whole() -> None:
            try:
                task()
            finally:
                tell(loop, loop.thread_is_done)

        post(worker, whole)
        loop.thread_begins()

    monkeypatch.setattr(Worker, "post", counted_post)


def run_virtual(coroutine: Coroutine[Any, Any, _T], *, debug: bool = True) -> _T:
    """Run to the end in virtual time; left-over tasks are an error. `debug` makes it four times as slow."""
    with asyncio.Runner(debug=debug, loop_factory=StrictVirtualTimeLoop) as runner:
        result = runner.run(coroutine)
        left = asyncio.all_tasks(runner.get_loop())
        if left:
            raise AssertionError(f"the test leaves tasks behind: {left}")
        return result
