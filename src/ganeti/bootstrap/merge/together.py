"""Runs one operation on many nodes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ganeti.base.errors import ExecError, GanetiError

NODES_AT_ONCE = 32

_Thing = TypeVar("_Thing")
_Result = TypeVar("_Result")


async def together(
    things: Iterable[_Thing],
    work: Callable[[_Thing], Awaitable[_Result]],
    *,
    most: int = NODES_AT_ONCE,
) -> list[_Result]:
    """Return the results of `work` for each, `most` at a time.

    All are attempted, and one error names all failures: a GanetiError or OSError unchanged if it is
    the only one, ExecError for several.
    """
    gate = asyncio.Semaphore(most)

    async def one(thing: _Thing) -> _Result:
        async with gate:
            return await work(thing)

    results = await asyncio.gather(*map(one, things), return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    for error in failed:
        if len(failed) == 1 or not isinstance(error, (GanetiError, OSError)):
            raise error
    if failed:
        raise ExecError("; ".join(str(error) for error in failed))
    return [result for result in results if not isinstance(result, BaseException)]
