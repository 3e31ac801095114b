"""Work that must not be interrupted, even if its task is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Carry out all of it; a cancelled caller ends only after the work has ended."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - raised by task.result() below
            break
    if cancelled:
        task.result()
        raise asyncio.CancelledError
    return task.result()
