"""LockManager under random loads: exclusion, no deadlock, nothing left behind (G10, S13-S15)."""

import asyncio
import random

import pytest

from ganeti.locking.levels import CLUSTER_LOCK, HIGHEST_PRIORITY, Level, Mode
from ganeti.locking.manager import LockManager
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.opcodes.base import PRIORITY_LOWEST
from ganeti.simulation.virtual_time import LoopClock
from tests.support.virtual_time import run_virtual

SHARED, EXCLUSIVE = Mode.SHARED, Mode.EXCLUSIVE
NAMES = ["a", "b", "c", "d"]
NEW_NAMES = ["aa", "bb", "z"]
HOURS = 24


class Load:
    """Jobs that ask for random locks, and an account of who has what, kept by the test."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.manager = LockManager(LoopClock())
        for level in list(Level)[1:]:
            self.manager.add_names(level, NAMES)
        self.held: dict[int, list[LockRequest]] = {}
        self.outcomes: dict[int, str] = {}

    def requests(self) -> list[LockRequest]:
        source = self.random
        chosen = [lock(Level.CLUSTER, CLUSTER_LOCK, source.choices([SHARED, EXCLUSIVE], [9, 1])[0])]
        for level in source.sample(list(Level)[1:], source.randint(0, 4)):
            mode = source.choice([SHARED, EXCLUSIVE])
            names = source.sample(NAMES + NEW_NAMES, source.randint(1, 3))
            chosen.append(lock(level, ALL if source.random() < 0.15 else names, mode))
        return chosen

    def enter(self, owner: int, requests: list[LockRequest]) -> None:
        for other, theirs in self.held.items():
            for mine in requests:
                for request in theirs:
                    assert not conflict(mine, request), f"{owner} {mine} and {other} {request}"
        self.held[owner] = requests
        self.manager.validate()

    async def job(self, owner: int) -> None:
        source = self.random
        await asyncio.sleep(source.uniform(0, 20))
        requests = self.requests()
        priority = source.randint(HIGHEST_PRIORITY, PRIORITY_LOWEST)
        self.outcomes[owner] = "cancelled"
        async with self.manager.holding(owner, requests, priority=priority):
            self.enter(owner, requests)
            try:
                await self.work(owner, requests)
            finally:
                self.held.pop(owner, None)
        self.outcomes[owner] = "done"
        self.manager.validate()

    async def work(self, owner: int, requests: list[LockRequest]) -> None:
        source, manager = self.random, self.manager
        await asyncio.sleep(source.choice([0, 0.5, 3, 20]))
        request = source.choice(requests)
        act = source.choice(["nothing", "downgrade", "keep_only", "add", "priority"])
        if act == "downgrade" and request.mode is EXCLUSIVE:
            manager.downgrade(owner, request.level)
            requests[requests.index(request)] = lock(request.level, request.names, SHARED)
        elif act == "keep_only":
            kept = sorted(manager.owned(owner).get(request.level, {}))[:1]
            manager.keep_only(owner, request.level, kept)
            requests[requests.index(request)] = lock(request.level, kept, request.mode)
        elif act == "add" and isinstance(request.names, frozenset):
            manager.add_names(request.level, request.names, owner=owner)
        elif act == "priority":
            for other in manager.owners():
                manager.set_priority(other, source.randint(HIGHEST_PRIORITY, PRIORITY_LOWEST))
        manager.validate()
        await asyncio.sleep(source.choice([0, 1, 5]))

    async def killer(self, jobs: list[asyncio.Task[None]]) -> None:
        for job in self.random.sample(jobs, len(jobs) // 5):
            await asyncio.sleep(self.random.uniform(0, 15))
            job.cancel()

    async def run(self, count: int) -> None:
        async with asyncio.timeout(HOURS * 3600):
            jobs = [asyncio.create_task(self.job(owner)) for owner in range(count)]
            await self.killer(jobs)
            for ended in await asyncio.gather(*jobs, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended
        assert self.manager.owners() == frozenset()
        assert all(info.mode is None and not info.waiters for info in self.manager.snapshot())


def conflict(one: LockRequest, other: LockRequest) -> bool:
    if one.level is not other.level or one.mode is other.mode is SHARED:
        return False
    if not isinstance(one.names, frozenset):
        return not isinstance(other.names, frozenset) or bool(other.names)
    if not isinstance(other.names, frozenset):
        return bool(one.names)
    return bool(one.names & other.names)


@pytest.mark.sampled(0)
@pytest.mark.requirement("S13", "S15", "G10")
@pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 400), marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_random_jobs_exclude_each_other_and_all_come_to_an_end(seeds: range) -> None:
    async def loads() -> dict[str, int]:
        asyncio.get_running_loop().set_debug(False)
        counts = {"done": 0, "cancelled": 0}
        for seed in seeds:
            load = Load(seed)
            try:
                await load.run(40)
            except Exception as error:
                error.add_note(f"load of seed {seed}")
                raise
            for outcome in load.outcomes.values():
                counts[outcome] += 1
        return counts

    counts = run_virtual(loads())
    assert counts["done"] > 500
    assert counts["cancelled"] > 50
