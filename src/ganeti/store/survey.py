"""Questions to the registers of nodes without a vote, which may be a thousand."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from ganeti.base.yield_every import YieldEvery
from ganeti.model.objects import NodeUuid
from ganeti.store.election import NoVote, Vote

BEGUN_AT_ONCE = 20
"""Questions that begin in one turn of the loop."""


async def answers_within(
    limit_s: float | None,
    nodes: Collection[NodeUuid],
    read: Callable[[NodeUuid], Awaitable[Vote | NoVote]],
) -> dict[NodeUuid, Vote | NoVote]:
    """Return the answers that arrive within the limit; the other questions are cancelled.

    To be asked after the voters: a thousand questions at once would delay the answers that decide.
    """
    pause, asking = YieldEvery(BEGUN_AT_ONCE), dict[NodeUuid, asyncio.Task[Vote | NoVote]]()
    try:
        for node in sorted(nodes):
            asking[node] = asyncio.create_task(_read(node, read), name=f"ask {node}")
            await pause()
        if asking:
            await asyncio.wait(asking.values(), timeout=limit_s)
        answers = {node: task.result() for node, task in asking.items() if task.done()}
    finally:
        pending = [task for task in asking.values() if task.cancel()]
        await asyncio.gather(*pending, return_exceptions=True)
    return {**dict.fromkeys(nodes, NoVote("no answer yet")), **answers}


async def _read(
    node: NodeUuid, read: Callable[[NodeUuid], Awaitable[Vote | NoVote]]
) -> Vote | NoVote:
    return await read(node)
