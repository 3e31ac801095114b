"""SharedLock by the examples of the seed (rows S11, S17-S27)."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from ganeti.base.errors import LockDeleted, LockError
from ganeti.locking.levels import Mode
from ganeti.locking.shared_lock import SharedLock
from ganeti.simulation.virtual_time import WALL_START, LoopClock

pytestmark = pytest.mark.virtual_time

SHARED, EXCLUSIVE = Mode.SHARED, Mode.EXCLUSIVE


class Scene:
    """A lock, jobs that try to get it, and the order in which they got it."""

    def __init__(self) -> None:
        self.lock = SharedLock("instance/web1", LoopClock())
        self.granted: list[int] = []
        self.tasks: dict[int, asyncio.Task[bool]] = {}

    async def start(self, owner: int, mode: Mode, **how: Any) -> None:
        """Let a job ask, and run until it has the lock or waits."""

        async def job() -> bool:
            has_it = await self.lock.acquire(owner, mode, **how)
            if has_it:
                self.granted.append(owner)
            return has_it

        self.tasks[owner] = asyncio.create_task(job())
        await self.settle()

    async def end(self) -> None:
        """End the jobs that a test leaves waiting."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.lock.validate()
        assert self.queue == []

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            self.lock.validate()

    async def release(self, owner: int) -> None:
        self.lock.release(owner)
        await self.settle()

    @property
    def queue(self) -> list[tuple[Mode, tuple[object, ...]]]:
        return [(entry.mode, entry.owners) for entry in self.lock.statistics().pending]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    await scene.end()


def elapsed() -> float:
    return asyncio.get_running_loop().time()


async def test_shared_owners_share_and_exclusive_ones_do_not(scene: Scene) -> None:
    lock = scene.lock
    assert lock.try_acquire(1, SHARED)
    assert lock.try_acquire(2, SHARED)
    assert not lock.try_acquire(3, EXCLUSIVE)
    lock.release(1)
    lock.release(2)
    assert lock.mode is None
    assert lock.try_acquire(3, EXCLUSIVE)
    assert not lock.try_acquire(4, SHARED)
    assert not lock.try_acquire(5, EXCLUSIVE)
    assert lock.owners == {3}


@pytest.mark.requirement("S11")
async def test_nonblocking_acquire_returns_at_once(scene: Scene) -> None:
    scene.lock.try_acquire(1, EXCLUSIVE)
    assert not await scene.lock.acquire(2, SHARED, timeout_s=0)
    assert elapsed() == 0
    assert scene.queue == []


@pytest.mark.requirement("S11")
@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
async def test_acquire_returns_after_its_timeout(scene: Scene, mode: Mode) -> None:
    scene.lock.try_acquire(1, EXCLUSIVE)
    assert not await scene.lock.acquire(2, mode, timeout_s=0.2)
    assert elapsed() == pytest.approx(0.2)
    assert scene.queue == []
    assert scene.lock.owners == {1}


async def test_a_lock_freed_before_the_timeout_is_taken(scene: Scene) -> None:
    scene.lock.try_acquire(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE, timeout_s=5)
    waiting = scene.tasks[2]
    await asyncio.sleep(4)
    scene.lock.release(1)
    assert await waiting
    await asyncio.sleep(10)  # past the timeout: the timer must be gone
    assert scene.lock.owners == {2}


@pytest.mark.requirement("S17", "S18", "S19", "S25")
async def test_later_readers_join_the_active_condition_and_pass_the_writer(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(11, SHARED)
    await scene.start(2, EXCLUSIVE)
    await scene.start(12, SHARED)
    assert scene.queue == [(SHARED, (11, 12)), (EXCLUSIVE, (2,))]
    await scene.release(1)
    assert scene.lock.owners == {11, 12}
    await scene.start(13, SHARED)  # after the swap: behind the writer
    await scene.start(14, SHARED)
    assert scene.queue == [(EXCLUSIVE, (2,)), (SHARED, (13, 14))]
    await scene.release(11)
    assert scene.granted == [1, 11, 12]
    await scene.release(12)
    assert scene.lock.owners == {2}
    await scene.release(2)
    assert scene.granted == [1, 11, 12, 2, 13, 14]


@pytest.mark.requirement("S18")
async def test_the_active_condition_is_appended_behind_waiting_writers(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE)
    await scene.start(11, SHARED)
    await scene.start(3, EXCLUSIVE)
    await scene.start(12, SHARED)
    assert scene.queue == [(EXCLUSIVE, (2,)), (SHARED, (11, 12)), (EXCLUSIVE, (3,))]


@pytest.mark.requirement("S17", "S20", "G10")
async def test_each_writer_has_its_own_condition_and_is_served_in_order(scene: Scene) -> None:
    for owner in (1, 2, 3, 4):
        await scene.start(owner, EXCLUSIVE)
    assert scene.queue == [(EXCLUSIVE, (2,)), (EXCLUSIVE, (3,)), (EXCLUSIVE, (4,))]
    for owner in (1, 2, 3):
        await scene.release(owner)
    assert scene.granted == [1, 2, 3, 4]


@pytest.mark.requirement("S21", "S23")
async def test_the_queue_is_empty_after_all_waiters_timed_out(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    for owner, mode in ((2, SHARED), (3, EXCLUSIVE), (4, SHARED), (5, EXCLUSIVE)):
        await scene.start(owner, mode, timeout_s=owner)
    await asyncio.sleep(10)
    assert scene.queue == []
    assert [scene.tasks[owner].result() for owner in (2, 3, 4, 5)] == [False] * 4
    await scene.release(1)
    assert scene.lock.mode is None


@pytest.mark.requirement("S23")
async def test_a_condition_stays_until_its_last_waiter_leaves(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, SHARED, timeout_s=1)
    await scene.start(3, SHARED, timeout_s=2)
    await asyncio.sleep(1.5)
    assert scene.queue == [(SHARED, (3,))]
    await asyncio.sleep(1)
    assert scene.queue == []


@pytest.mark.requirement("S21")
async def test_no_waiter_is_served_before_its_condition_is_first(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, EXCLUSIVE)
    await scene.start(3, SHARED)  # the holders would admit it
    assert scene.granted == [1]
    assert scene.queue == [(EXCLUSIVE, (2,)), (SHARED, (3,))]


@pytest.mark.requirement("S21", "S23")
async def test_timeout_of_a_writer_releases_the_readers_behind_it(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, EXCLUSIVE, timeout_s=3)
    await scene.start(3, SHARED)
    await asyncio.sleep(3.5)
    assert scene.lock.owners == {1, 3}


@pytest.mark.requirement("S22")
async def test_a_lock_is_granted_only_to_what_the_holders_admit(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, SHARED)
    await scene.start(3, EXCLUSIVE)
    await scene.release(1)
    assert scene.granted == [1, 2]
    await scene.release(2)
    assert scene.granted == [1, 2, 3]
    await scene.start(4, SHARED)
    assert scene.granted == [1, 2, 3]


@pytest.mark.requirement("S24")
async def test_an_uncontended_lock_never_touches_the_queue(scene: Scene) -> None:
    queued: list[object] = []

    class Spied(SharedLock):
        def _enqueue(self, waiter: Any, priority: int) -> None:
            queued.append(waiter.owner)
            super()._enqueue(waiter, priority)

    lock = Spied("node/n1", LoopClock())
    assert await lock.acquire(1, EXCLUSIVE)
    lock.release(1)
    assert await lock.acquire(2, SHARED, timeout_s=0)
    assert await lock.acquire(3, SHARED)
    assert queued == []
    assert not await lock.acquire(4, EXCLUSIVE, timeout_s=1)
    assert queued == [4]


async def delete_held(lock: SharedLock) -> None:
    await lock.delete(1)


async def delete_by_acquiring(lock: SharedLock) -> None:
    asyncio.get_running_loop().call_later(5, lock.release, 1)
    assert await lock.delete(9, priority=-20)


@pytest.mark.requirement("S21", "S26")
@pytest.mark.parametrize("delete", [delete_held, delete_by_acquiring])
async def test_every_waiter_of_a_deleted_lock_gets_an_error(
    scene: Scene, delete: Callable[[SharedLock], Coroutine[Any, Any, None]]
) -> None:
    await scene.start(1, EXCLUSIVE)
    modes = [SHARED, EXCLUSIVE, SHARED, EXCLUSIVE, SHARED]
    for owner, mode in enumerate(modes, start=2):
        await scene.start(owner, mode)
    await delete(scene.lock)
    waiting = [scene.tasks[owner] for owner in range(2, 7)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LockDeleted] * 5
    assert scene.queue == []
    assert scene.lock.is_deleted
    scene.lock.validate()
    with pytest.raises(LockDeleted):
        await scene.lock.acquire(7, SHARED)
    with pytest.raises(LockDeleted):
        await scene.lock.delete(7)


@pytest.mark.requirement("S26")
async def test_a_lock_held_shared_cannot_be_deleted_by_its_holder(scene: Scene) -> None:
    await scene.start(1, SHARED)
    with pytest.raises(LockError, match="does not own it exclusively"):
        await scene.lock.delete(1)
    assert not scene.lock.is_deleted


@pytest.mark.requirement("S26")
async def test_delete_waits_for_readers_until_its_timeout(
    scene: Scene,
) -> None:
    await scene.start(1, SHARED)
    assert not await scene.lock.delete(2, timeout_s=1)
    assert elapsed() == pytest.approx(1)
    assert not scene.lock.is_deleted
    assert scene.queue == []


async def test_waiter_deleted_and_cancelled_at_once_is_simply_cancelled(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE)
    waiting = scene.tasks[2]
    scene.lock.delete_owned(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    scene.lock.validate()


async def test_downgrading_lets_readers_in_and_keeps_writers_out(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, SHARED)
    await scene.start(3, EXCLUSIVE)
    scene.lock.downgrade(1)
    await scene.settle()
    assert scene.lock.owners == {1, 2}
    assert scene.lock.mode is SHARED
    with pytest.raises(LockError, match="downgrade"):
        scene.lock.downgrade(1)


async def test_a_more_urgent_waiter_is_served_first(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE, priority=0)
    await scene.start(3, EXCLUSIVE, priority=10)
    await scene.start(4, EXCLUSIVE, priority=-20)
    await scene.start(5, SHARED, priority=0)
    assert scene.queue == [
        (EXCLUSIVE, (4,)),
        (EXCLUSIVE, (2,)),
        (SHARED, (5,)),
        (EXCLUSIVE, (3,)),
    ]
    for owner in (1, 4, 2, 5):
        await scene.release(owner)
    assert scene.granted == [1, 4, 2, 5, 3]


async def test_a_more_urgent_reader_joins_readers_before_a_waiting_writer(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, EXCLUSIVE, priority=0)
    await scene.start(3, SHARED, priority=-1)
    assert scene.lock.owners == {1, 3}
    assert not scene.lock.try_acquire(4, SHARED, priority=0)


async def test_readers_of_two_priorities_do_not_share_a_condition(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, SHARED, priority=5)
    await scene.start(3, SHARED, priority=-5)
    await scene.start(4, EXCLUSIVE, priority=0)
    assert scene.queue == [(SHARED, (3,)), (EXCLUSIVE, (4,)), (SHARED, (2,))]


async def test_a_waiting_job_can_be_made_more_and_less_urgent(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, EXCLUSIVE)
    await scene.start(3, EXCLUSIVE)
    await scene.start(4, SHARED)
    assert scene.lock.set_priority(3, -1)
    assert [owners for _, owners in scene.queue] == [(3,), (2,), (4,)]
    assert scene.lock.ahead_of(4) == (3, 2)
    assert not scene.lock.set_priority(3, -1)
    assert not scene.lock.set_priority(1, -1)
    scene.lock.set_priority(4, -20)  # the holder admits it, and nobody is before it now
    await scene.settle()
    assert scene.lock.owners == {1, 4}


async def test_moving_the_writer_on_top_away_lets_the_reader_behind_it_in(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, EXCLUSIVE)
    await scene.start(3, SHARED)
    scene.lock.set_priority(2, 7)
    await scene.settle()
    assert scene.lock.owners == {1, 3}


async def test_cancelling_a_waiter_takes_it_out_of_the_queue(scene: Scene) -> None:
    await scene.start(1, SHARED)
    await scene.start(2, EXCLUSIVE)
    writer = scene.tasks[2]
    await scene.start(3, SHARED)
    writer.cancel()
    await scene.settle()
    assert scene.lock.owners == {1, 3}
    assert scene.queue == []


@pytest.mark.requirement("G10")
async def test_a_waiter_cancelled_after_its_grant_gives_the_lock_back(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE)
    second = scene.tasks[2]
    await scene.start(3, EXCLUSIVE)
    third = scene.tasks[3]
    scene.lock.release(1)
    assert scene.lock.owners == {2}  # it owns the lock, but its task has not run
    second.cancel()
    await scene.settle()
    assert second.cancelled()
    assert third.done()
    assert scene.lock.owners == {3}


async def test_a_waiter_cancelled_just_before_its_grant_is_passed_over(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE)
    second = scene.tasks[2]
    await scene.start(3, EXCLUSIVE)
    second.cancel()  # its task has not run when the lock is released
    scene.lock.release(1)
    assert scene.lock.owners == {3}
    await scene.settle()
    assert second.cancelled()


async def test_timeout_and_grant_in_one_moment_leave_nothing_behind(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await scene.start(2, EXCLUSIVE, timeout_s=1)
    waiting = scene.tasks[2]
    asyncio.get_running_loop().call_later(1, scene.lock.release, 1)
    has_it = await waiting
    assert scene.lock.owners == ({2} if has_it else set())
    scene.lock.validate()


@pytest.mark.requirement("G10", "S19")
async def test_writer_is_not_starved_by_later_readers(scene: Scene) -> None:
    got_it_at: list[float] = []

    async def reader(owner: int) -> None:
        await asyncio.sleep(owner)
        await scene.lock.acquire(owner, SHARED)
        await asyncio.sleep(3)  # so there is always some reader
        scene.lock.release(owner)

    async def writer() -> None:
        await asyncio.sleep(10.5)
        await scene.lock.acquire(1000, EXCLUSIVE)
        got_it_at.append(elapsed())
        scene.lock.release(1000)

    await asyncio.gather(writer(), *(reader(owner) for owner in range(100)))
    assert got_it_at == [pytest.approx(13.0)]  # as soon as the readers of 10.5 are done


@pytest.mark.requirement("S27")
async def test_a_long_wait_makes_no_system_calls_on_the_way(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    selector = loop._selector  # type: ignore[attr-defined]  # asyncio offers no other place to count
    selects: list[float] = []
    real_select = selector.select

    def select(timeout: float | None = None) -> Any:
        selects.append(loop.time())
        return real_select(timeout)

    scene.lock.try_acquire(1, EXCLUSIVE)
    selector.select = select
    assert not await scene.lock.acquire(2, EXCLUSIVE, timeout_s=5)
    del selector.select
    assert elapsed() == pytest.approx(5)
    assert len(selects) < 5


@pytest.mark.requirement("S27")
async def test_notifying_uses_no_descriptors(scene: Scene) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # counted, not opened

    asyncio.get_running_loop().set_debug(False)  # 10,000 stack traces take seconds
    before = descriptors()
    scene.lock.try_acquire(0, EXCLUSIVE)
    for owner in range(1, 10_001):
        waiting = asyncio.ensure_future(scene.lock.acquire(owner, EXCLUSIVE))
        await asyncio.sleep(0)
        scene.lock.release(owner - 1)
        assert await waiting
    assert descriptors() == before


@pytest.mark.requirement("S27")
async def test_many_waiters_cause_no_wakeup_for_an_hour(scene: Scene) -> None:
    await scene.start(0, EXCLUSIVE)
    for owner in range(1, 200):
        await scene.start(owner, SHARED if owner % 2 else EXCLUSIVE)
    await asyncio.sleep(3600)
    assert scene.granted == [0]
    await scene.release(0)
    assert len(scene.granted) == 101


async def test_one_job_cannot_own_or_wait_twice(scene: Scene) -> None:
    await scene.start(1, SHARED)
    with pytest.raises(LockError, match="already owns lock instance/web1"):
        await scene.lock.acquire(1, SHARED)
    await scene.start(2, EXCLUSIVE)
    with pytest.raises(LockError, match="job 2 already owns lock"):
        await scene.lock.acquire(2, EXCLUSIVE)
    with pytest.raises(LockError, match="cannot release"):
        scene.lock.release(2)
    assert scene.lock.owners == {1}


async def test_statistics_list_holders_and_waiters(scene: Scene) -> None:
    await scene.start(1, EXCLUSIVE)
    await asyncio.sleep(7)
    await scene.start(2, SHARED)
    await asyncio.sleep(1)
    await scene.start(3, SHARED, priority=0)
    await scene.start(4, EXCLUSIVE, priority=-3)
    statistics = scene.lock.statistics()
    assert (statistics.name, statistics.mode, statistics.owners) == (
        "instance/web1",
        EXCLUSIVE,
        frozenset({1}),
    )
    assert [(p.owners, p.priority) for p in statistics.pending] == [((4,), -3), ((2, 3), 0)]
    since = [p.since - WALL_START for p in statistics.pending]
    assert since == [pytest.approx(8), pytest.approx(7)]


@pytest.mark.sampled(0)
async def test_ten_thousand_waiters_are_served_without_trouble(scene: Scene) -> None:
    asyncio.get_running_loop().set_debug(False)
    scene.lock.try_acquire(-1, EXCLUSIVE)

    async def job(owner: int) -> None:
        await scene.lock.acquire(owner, EXCLUSIVE, timeout_s=100)
        scene.granted.append(owner)
        scene.lock.release(owner)

    jobs = [asyncio.ensure_future(job(owner)) for owner in range(10_000)]
    await asyncio.sleep(0)
    scene.lock.release(-1)
    await asyncio.gather(*jobs)
    assert scene.granted == list(range(10_000))
