"""Locks, in process: the cost of an uncontended one, and whether a free one is ever left idle."""

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path

from machine import spin_ms, sync_ms

from ganeti.base.clock import SystemClock
from ganeti.locking.levels import Level, Mode
from ganeti.locking.manager import LockManager
from ganeti.locking.requests import lock
from ganeti.locking.shared_lock import SharedLock


async def shared_us(rounds: int) -> float:
    """Microseconds for one uncontended shared acquire and release."""
    one = SharedLock("instance/web1", SystemClock())
    begun = time.perf_counter()
    for _ in range(rounds):
        await one.acquire(7, Mode.SHARED)
        one.release(7)
    return (time.perf_counter() - begun) / rounds * 1e6


async def contention(jobs: int, names: int) -> tuple[int, float]:
    """(turns of the loop in which the head of a queue could have had its lock, jobs per second)."""
    manager = LockManager(SystemClock())
    known = [f"i{number:03}" for number in range(names)]
    manager.add_names(Level.INSTANCE, known)
    chooser = random.Random(1)  # noqa: S311 - a schedule, not a key
    wanted = [
        [
            lock(
                Level.INSTANCE,
                chooser.sample(known, chooser.randint(1, 3)),
                chooser.choice(list(Mode)),
            )
        ]
        for _ in range(jobs)
    ]
    left = jobs

    async def job(number: int) -> None:
        nonlocal left
        await manager.acquire(number, wanted[number])
        await asyncio.sleep(0)
        manager.release(number)
        left -= 1

    begun = time.perf_counter()
    tasks = [asyncio.create_task(job(number)) for number in range(jobs)]
    idle = 0
    while left:
        await asyncio.sleep(0)
        idle += sum(_is_idle_while_wanted(manager, name) for name in known)
    await asyncio.gather(*tasks)
    return idle, jobs / (time.perf_counter() - begun)


def _is_idle_while_wanted(manager: LockManager, name: str) -> bool:
    info = manager.info(Level.INSTANCE, name)
    return info is not None and bool(info.waiters) and not info.owners


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    idle, per_second = asyncio.run(contention(200 if quick else 1000, 200))
    with tempfile.TemporaryDirectory() as directory:
        figures = {
            "shared_acquire_release_us": round(
                asyncio.run(shared_us(20_000 if quick else 200_000)), 2
            ),
            "idle_while_wanted": idle,
            "contending_jobs_per_second": round(per_second),
            "sync_ms": sync_ms(Path(directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
