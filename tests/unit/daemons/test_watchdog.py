"""The loop watchdog: it names what blocks, and is silent otherwise."""

import asyncio
import time

from ganeti.daemons.watchdog import LoopWatchdog


async def test_what_blocks_the_loop_is_named() -> None:
    watchdog = LoopWatchdog()
    watchdog.start()

    async def greedy() -> None:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass

    await asyncio.create_task(greedy(), name="job-7")
    await asyncio.sleep(0.05)
    await watchdog.stop()
    seen = watchdog.statistics()
    assert seen.blocked >= 1
    assert seen.last_culprit.startswith("job-7: greedy")
    assert seen.longest_ms > 100


async def test_a_loop_that_only_waits_is_not_blamed() -> None:
    watchdog = LoopWatchdog()
    watchdog.start()
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.2)
    await watchdog.stop()
    assert watchdog.statistics().blocked == 0
    assert watchdog.statistics().longest_ms == 0
