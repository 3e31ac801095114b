"""Long work on the loop lets others run."""

import asyncio

from ganeti.base.yield_every import YieldEvery


async def test_others_run_after_so_many_rounds_and_again_after_as_many() -> None:
    done: list[int] = []

    async def work() -> None:
        pause = YieldEvery(3)
        for number in range(8):
            done.append(number)
            await pause()

    task = asyncio.create_task(work())
    seen = []
    while not task.done():
        await asyncio.sleep(0)
        seen.append(len(done))
    assert seen[:3] == [3, 6, 8]
