"""Many who wait are woken some at a time, in order."""

import asyncio
from itertools import pairwise

from ganeti.base.staggered_waker import A_TURN, StaggeredWaker


async def test_a_large_batch_leaves_turns_to_others() -> None:
    loop, waking = asyncio.get_running_loop(), StaggeredWaker()
    futures = [loop.create_future() for _ in range(3 * A_TURN + 1)]
    for number, future in enumerate(futures):
        waking.resolve(future, number)
    done = []
    while not futures[-1].done():
        await asyncio.sleep(0)
        done.append(sum(future.done() for future in futures))
    assert done == [2 * A_TURN, 3 * A_TURN, 3 * A_TURN + 1]
    assert [future.result() for future in futures] == list(range(len(futures)))


async def test_what_comes_while_some_are_woken_comes_after_them() -> None:
    loop, waking = asyncio.get_running_loop(), StaggeredWaker()
    first = [loop.create_future() for _ in range(A_TURN + 1)]
    for future in first:
        waking.resolve(future, None)
    assert sum(future.done() for future in first) == A_TURN
    last = loop.create_future()
    waking.resolve(last, None)
    assert not last.done()
    await last
    assert first[-1].done()


async def test_cancelled_waiter_is_skipped() -> None:
    loop, waking = asyncio.get_running_loop(), StaggeredWaker()
    given_up, other = loop.create_future(), loop.create_future()
    waking.resolve(given_up, 1)
    waking.resolve(other, 2)
    given_up.cancel()
    assert await other == 2


async def test_turns_are_given_in_the_order_of_requests() -> None:
    waking, order = StaggeredWaker(), []

    async def ask(number: int) -> None:
        await waking.turn()
        order.append(number)

    tasks = [asyncio.create_task(ask(number)) for number in range(3 * A_TURN)]
    seen = []
    while len(order) < len(tasks):
        await asyncio.sleep(0)
        seen.append(len(order))
    assert order == list(range(len(tasks)))
    assert max(now - before for before, now in pairwise(seen)) <= A_TURN


async def test_a_few_in_quiet_turns_cause_no_further_turn_and_do_not_use_up_later_ones() -> None:
    loop, waking, calls = asyncio.get_running_loop(), StaggeredWaker(), list[object]()
    for _ in range(10 * A_TURN):
        future = loop.create_future()
        waking.resolve(future, None)
        calls.append(future.done())
        await asyncio.sleep(0)
    assert all(calls)
    for _ in range(A_TURN // 2 - 1):
        assert waking.may_continue()
    assert not loop._ready  # type: ignore[attr-defined] # no callback is due
