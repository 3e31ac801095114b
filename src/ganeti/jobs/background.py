"""Work of the queue that continues without a waiting caller."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Background:
    """Tasks that belong to the queue, so that it can cancel all of them at its end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a coroutine without waiting; a failure is logged."""
        self._start(work, name).add_done_callback(_report)

    async def shielded(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run a coroutine to its end even if the caller is cancelled."""
        return await asyncio.shield(self._start(work, name))

    async def close(self) -> None:
        """Cancel the remaining tasks, and wait for their end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (err := task.exception()) is not None:
        _log.warning("%s failed: %s", task.get_name(), err)
