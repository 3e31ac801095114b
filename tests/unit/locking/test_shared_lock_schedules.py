"""SharedLock under thousands of random schedules (rows S17, S21-S23, G10).

A schedule is a list of steps: (what, which job, a number that says how).  What is impossible at
the time is left out.  After each step the lock's own rules are checked, and a list of holders that
the test keeps by itself.
"""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import LockDeleted
from ganeti.locking.levels import Mode
from ganeti.locking.shared_lock import SharedLock
from ganeti.simulation.virtual_time import LoopClock
from tests.support.virtual_time import run_virtual

SHARED, EXCLUSIVE = Mode.SHARED, Mode.EXCLUSIVE

JOBS = 7
ACTS = ("acquire", "release", "cancel", "downgrade", "priority", "tick", "time", "delete")
WEIGHTS = (30, 20, 8, 4, 5, 15, 8, 1)
HOW = 60

Step = tuple[str, int, int]


class Play:
    """One lock, and what its jobs believe."""

    def __init__(self) -> None:
        self.lock = SharedLock("node/n1", LoopClock())
        self.holders: dict[int, Mode] = {}  # by the answers that the jobs got
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.arrivals: list[int] = []
        self.grants: list[int] = []

    async def job(self, owner: int, mode: Mode, timeout_s: float | None, priority: int) -> None:
        try:
            if await self.lock.acquire(owner, mode, timeout_s=timeout_s, priority=priority):
                self.holders[owner] = mode
                self.grants.append(owner)
        except LockDeleted:
            pass

    def acquire(self, owner: int, how: int) -> None:
        mode = EXCLUSIVE if how % 2 else SHARED
        timeout_s = (None, None, 0.0, 1.0, 3.0)[how % 5]
        priority = (0, -1, 5)[how % 3]
        self.tasks[owner] = asyncio.create_task(self.job(owner, mode, timeout_s, priority))

    def is_busy(self, owner: int) -> bool:
        return owner in self.tasks and not self.tasks[owner].done()

    async def step(self, act: str, owner: int, how: int) -> None:
        held = self.holders.get(owner)
        match act:
            case "acquire" if held is None and not self.is_busy(owner):
                self.acquire(owner, how)
            case "release" if held is not None:
                del self.holders[owner]
                self.lock.release(owner)
            case "cancel" if self.is_busy(owner):
                self.tasks[owner].cancel()
            case "downgrade" if held is EXCLUSIVE:
                self.lock.downgrade(owner)
                self.holders[owner] = SHARED
            case "priority":
                self.lock.set_priority(owner, how % 7 - 3)
            case "tick":
                await asyncio.sleep(0)
            case "time":
                await asyncio.sleep(how / 20)
            case "delete" if held is EXCLUSIVE:
                self.lock.delete_owned(owner)
                del self.holders[owner]

    def check(self) -> None:
        self.lock.validate()
        modes = list(self.holders.values())
        assert EXCLUSIVE not in modes or len(modes) == 1, self.holders
        assert self.holders.keys() <= self.lock.owners
        pending = self.lock.statistics().pending
        exclusive = sum(entry.mode is EXCLUSIVE for entry in pending)
        priorities = {entry.priority for entry in pending}
        assert len(pending) <= exclusive + 2 * len(priorities)

    async def finish(self) -> None:
        """Everybody who holds gives back, until nobody waits."""
        async with asyncio.timeout(1000):
            while any(self.is_busy(owner) for owner in self.tasks) or self.holders:
                for owner in list(self.holders):
                    del self.holders[owner]
                    self.lock.release(owner)
                await asyncio.sleep(0)
                self.check()
        assert not self.lock.owners
        assert self.lock.statistics().pending == ()
        for task in self.tasks.values():
            if not task.cancelled():
                task.result()


async def play(schedule: list[Step]) -> Play:
    stage = Play()
    for act, owner, how in schedule:
        await stage.step(act, owner, how)
        stage.check()
    await stage.finish()
    return stage


def random_schedule(source: random.Random) -> list[Step]:
    acts = source.choices(ACTS, WEIGHTS, k=source.randint(10, 80))
    return [(act, source.randrange(JOBS), source.randrange(HOW)) for act in acts]


@pytest.mark.requirement("S17", "S22", "S23", "G10")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(ACTS), st.integers(0, JOBS - 1), st.integers(0, HOW - 1)),
        max_size=60,
    )
)
def test_any_schedule_keeps_the_rules_and_serves_all(schedule: list[Step]) -> None:
    run_virtual(play(schedule))


@pytest.mark.sampled(0)
@pytest.mark.requirement("S17", "S21", "S22", "S23", "G10")
@pytest.mark.parametrize(
    "seeds",
    [range(1000), pytest.param(range(1000, 10_000), marks=pytest.mark.soak)],
    ids=["few", "many"],
)
def test_many_random_schedules_keep_the_rules(seeds: range) -> None:
    async def plays() -> int:
        asyncio.get_running_loop().set_debug(False)
        grants = 0
        for seed in seeds:
            try:
                grants += len((await play(random_schedule(random.Random(seed)))).grants)
            except Exception as error:
                error.add_note(f"schedule of seed {seed}")
                raise
        return grants

    assert run_virtual(plays()) > 4 * len(seeds)  # the schedules do something


@pytest.mark.requirement("S20", "S25", "G10")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=30))
def test_writers_go_in_order_and_wait_for_one_group_of_readers_at_most(
    arrivals: list[tuple[bool, int]],
) -> None:
    """However many writers and readers come, before and after."""
    log = run_virtual(readers_and_writers(arrivals))
    granted = [owner for event, owner, _ in log if event == "granted"]
    writers = [owner for owner, (is_writer, _) in enumerate(arrivals) if is_writer]
    assert sorted(granted) == list(range(len(arrivals)))
    assert [owner for owner in granted if owner in writers] == writers
    for writer in writers:
        places = [place for place, entry in enumerate(log) if entry[1] == writer]
        meanwhile = log[places[0] : places[1]]
        groups = {
            at for event, owner, at in meanwhile if event == "granted" and owner not in writers
        }
        assert len(groups) <= 1


async def readers_and_writers(arrivals: list[tuple[bool, int]]) -> list[tuple[str, int, float]]:
    """What happens, in order, when each holds the lock for ten seconds."""
    loop = asyncio.get_running_loop()
    loop.set_debug(False)
    lock = SharedLock("node/n1", LoopClock())
    log: list[tuple[str, int, float]] = []

    async def job(owner: int, start: float, *, is_writer: bool) -> None:
        await asyncio.sleep(start)
        log.append(("asks", owner, loop.time()))
        await lock.acquire(owner, EXCLUSIVE if is_writer else SHARED)
        log.append(("granted", owner, loop.time()))
        await asyncio.sleep(10)
        lock.release(owner)

    start = 0.0
    async with asyncio.TaskGroup() as jobs:
        for owner, (is_writer, gap) in enumerate(arrivals):
            start += gap + 0.001  # nobody comes in the moment of a release
            jobs.create_task(job(owner, start, is_writer=is_writer))
    return log
