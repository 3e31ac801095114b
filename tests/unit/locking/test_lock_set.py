"""LockSet: many names of one level (rows S9, S10, S12)."""

import asyncio

import pytest

from ganeti.base.errors import LockDeleted, LockError
from ganeti.locking.levels import Level, Mode
from ganeti.locking.lock_set import WHOLE_SET, LockSet
from ganeti.locking.requests import ALL, Names
from ganeti.locking.shared_lock import SharedLock
from ganeti.simulation.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time

SHARED, EXCLUSIVE = Mode.SHARED, Mode.EXCLUSIVE


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.fixture
async def locks() -> LockSet:
    locks = LockSet(Level.INSTANCE, LoopClock())
    locks.add(["a", "b", "c"])
    return locks


def begin(locks: LockSet, owner: int, names: Names, mode: Mode = EXCLUSIVE) -> asyncio.Task[bool]:
    return asyncio.create_task(locks.acquire(owner, names, mode))


async def settle(locks: LockSet) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
        locks.validate()


@pytest.mark.requirement("S9")
async def test_any_subset_is_taken_and_given_back(locks: LockSet) -> None:
    assert await locks.acquire(1, some("a", "c"), EXCLUSIVE)
    assert await locks.acquire(2, some("b"), SHARED)
    assert locks.owned(1) == {"a": EXCLUSIVE, "c": EXCLUSIVE}
    assert locks.owned(2) == {"b": SHARED}
    locks.release(1)
    assert locks.owned(1) == {}
    assert await locks.acquire(3, some("a", "b"), SHARED)
    assert locks.owners() == {2, 3}
    locks.validate()


@pytest.mark.requirement("S9")
async def test_names_are_added_and_removed(locks: LockSet) -> None:
    locks.add(["d", "a"])
    assert locks.names() == [WHOLE_SET, "a", "b", "c", "d"]
    locks.remove(["b", "d", "unknown"])
    assert locks.names() == [WHOLE_SET, "a", "c"]


@pytest.mark.requirement("S10")
async def test_names_are_taken_in_alphabetical_order(
    locks: LockSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = SharedLock.try_acquire

    def spy(self: SharedLock, owner: object, mode: Mode, *, priority: int = 0) -> bool:
        order.append(self.name)
        return real(self, owner, mode, priority=priority)

    monkeypatch.setattr(SharedLock, "try_acquire", spy)
    assert await locks.acquire(1, some("b", "a", "c"), EXCLUSIVE)
    assert order == ["instance/a", "instance/b", "instance/c"]


@pytest.mark.requirement("S12")
@pytest.mark.parametrize("held", ["a", "b", "c"])
@pytest.mark.parametrize("names", [some("a", "b", "c"), ALL])
async def test_after_a_timeout_nothing_of_the_set_is_owned(
    locks: LockSet, held: str, names: Names
) -> None:
    await locks.acquire(1, some(held), EXCLUSIVE)
    started = asyncio.get_running_loop().time()
    assert not await locks.acquire(2, names, EXCLUSIVE, timeout_s=0.2)
    assert asyncio.get_running_loop().time() - started == pytest.approx(0.2)
    assert locks.owned(2) == {}
    assert locks.owners() == {1}
    locks.validate()


@pytest.mark.requirement("S12")
async def test_the_timeout_is_for_all_names_together(locks: LockSet) -> None:
    for owner, name in enumerate("abc"):
        await locks.acquire(owner, some(name), EXCLUSIVE)
        asyncio.get_running_loop().call_later(0.8 * (owner + 1), locks.release, owner)
    assert not await locks.acquire(9, some("a", "b", "c"), EXCLUSIVE, timeout_s=2)
    assert asyncio.get_running_loop().time() == pytest.approx(2)


@pytest.mark.requirement("S12")
async def test_a_timeout_of_zero_does_not_wait(locks: LockSet) -> None:
    await locks.acquire(1, some("b"), SHARED)
    assert not await locks.acquire(2, some("a", "b"), EXCLUSIVE, timeout_s=0)
    assert await locks.acquire(2, some("a", "b"), SHARED, timeout_s=0)


async def test_an_unknown_name_is_made_for_the_job_and_goes_with_it(locks: LockSet) -> None:
    assert await locks.acquire(1, some("new"), EXCLUSIVE)
    assert locks.owned(1) == {"new": EXCLUSIVE}
    second = begin(locks, 2, some("new"))
    await settle(locks)
    assert not second.done()
    locks.release(1)
    assert await second
    locks.release(2)
    assert "new" not in locks.names()


async def test_a_new_name_stays_if_the_job_adds_it(locks: LockSet) -> None:
    await locks.acquire(1, some("new"), EXCLUSIVE)
    locks.add(["new"])
    locks.release(1)
    assert "new" in locks.names()


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
async def test_no_name_is_made_while_all_is_held(locks: LockSet, mode: Mode) -> None:
    assert await locks.acquire(1, ALL, mode)
    assert locks.owned(1) == {"a": mode, "b": mode, "c": mode}
    creator = begin(locks, 2, some("a-new"))
    await settle(locks)
    assert not creator.done()
    assert "a-new" not in locks.names()
    with pytest.raises(LockError, match="job 1 holds the whole level"):
        locks.add(["other"])
    locks.release(1)
    assert await creator
    assert locks.owned(2) == {"a-new": EXCLUSIVE}


async def test_two_jobs_never_hold_all_of_an_empty_level_exclusively() -> None:
    locks = LockSet(Level.NETWORK, LoopClock())
    assert await locks.acquire(1, ALL, EXCLUSIVE)
    assert not await locks.acquire(2, ALL, SHARED, timeout_s=1)
    locks.release(1)
    assert await locks.acquire(2, ALL, SHARED)
    assert await locks.acquire(3, ALL, SHARED, timeout_s=0)
    assert not await locks.acquire(4, ALL, EXCLUSIVE, timeout_s=1)


async def test_all_waits_for_a_name_that_is_being_made(locks: LockSet) -> None:
    await locks.acquire(1, some("a"), EXCLUSIVE)
    creator = begin(locks, 2, some("a", "z-new"))  # has not reached z-new
    await settle(locks)
    everything = begin(locks, 3, ALL)
    await settle(locks)
    locks.release(1)
    assert await creator
    await settle(locks)
    assert not everything.done()
    locks.release(2)
    assert await everything
    assert locks.owned(3).keys() == {"a", "b", "c", "z-new"}
    locks.release(3)
    assert "z-new" not in locks.names()


async def test_the_holder_of_all_may_add_names_and_owns_them(locks: LockSet) -> None:
    await locks.acquire(1, ALL, EXCLUSIVE)
    locks.add(["new"], owner=1)
    assert locks.owned(1)["new"] is EXCLUSIVE
    locks.validate()
    assert not await locks.acquire(2, some("new"), SHARED, timeout_s=0)
    locks.release(1)
    assert await locks.acquire(2, some("new"), SHARED, timeout_s=0)


async def test_removing_a_held_name_ends_the_waits_for_it(locks: LockSet) -> None:
    await locks.acquire(1, some("b"), EXCLUSIVE)
    one = begin(locks, 2, some("a", "b"))
    every = begin(locks, 3, ALL)
    later = begin(locks, 4, some("a", "c", "b"), SHARED)
    await settle(locks)
    locks.remove(["b"], owner=1)
    assert locks.owned(1) == {}
    with pytest.raises(LockDeleted, match="job 2 cannot have lock instance/b"):
        await one
    assert await every  # ALL is what there is
    assert locks.owned(3).keys() == {"a", "c"}
    locks.release(3)
    with pytest.raises(LockDeleted):
        await later
    assert locks.owners() == {1}
    locks.release(1)
    locks.validate()


async def test_a_name_that_another_job_holds_cannot_be_removed(locks: LockSet) -> None:
    await locks.acquire(1, some("b"), SHARED)
    with pytest.raises(LockError, match="instance/b: job 1 holds it"):
        locks.remove(["a", "b"])
    with pytest.raises(LockError, match="take it exclusively first"):
        locks.remove(["b"], owner=1)
    assert locks.names() == [WHOLE_SET, "a", "b", "c"]


async def test_a_name_removed_before_it_is_reached_is_an_error(locks: LockSet) -> None:
    await locks.acquire(1, some("a"), EXCLUSIVE)
    waiting = begin(locks, 2, some("a", "b"))
    await settle(locks)
    locks.remove(["b"])
    locks.add(["b"])  # another one of the same name
    locks.release(1)
    with pytest.raises(LockDeleted):
        await waiting
    assert locks.owners() == frozenset()
    locks.validate()


async def test_a_job_may_keep_some_names_only(locks: LockSet) -> None:
    await locks.acquire(1, ALL, EXCLUSIVE)
    waiting = begin(locks, 2, some("a", "new"))
    locks.keep_only(1, ["b"])
    assert locks.owned(1) == {"b": EXCLUSIVE}
    assert await waiting
    with pytest.raises(LockError, match="job 7 does not own"):
        locks.keep_only(7, ["b"])


async def test_downgrading_all_or_some(locks: LockSet) -> None:
    await locks.acquire(1, some("a", "b"), EXCLUSIVE)
    locks.downgrade(1, some("a"))
    assert locks.owned(1) == {"a": SHARED, "b": EXCLUSIVE}
    with pytest.raises(LockError, match="does not own instance locks: c"):
        locks.downgrade(1, some("c"))
    locks.downgrade(1)
    assert locks.owned(1) == {"a": SHARED, "b": SHARED}
    locks.downgrade(1)
    locks.release(1)
    await locks.acquire(1, ALL, EXCLUSIVE)
    locks.downgrade(1)
    assert await locks.acquire(2, ALL, SHARED, timeout_s=0)


async def test_a_job_takes_from_a_set_once_at_a_time(locks: LockSet) -> None:
    await locks.acquire(1, some("a"), EXCLUSIVE)
    with pytest.raises(LockError, match="already owns instance locks"):
        await locks.acquire(1, some("b"), EXCLUSIVE)
    waiting = begin(locks, 2, some("a", "b"))
    await settle(locks)
    with pytest.raises(LockError, match="still waits for instance/a"):
        locks.release(2)
    locks.release(1)
    assert await waiting


async def test_a_new_priority_holds_for_the_names_still_to_come(locks: LockSet) -> None:
    await locks.acquire(1, some("a"), EXCLUSIVE)
    await locks.acquire(2, some("b"), EXCLUSIVE)
    rival = begin(locks, 3, some("b"))
    waiting = begin(locks, 4, some("a", "b"))
    await settle(locks)
    assert locks.set_priority(4, -5)
    assert not locks.set_priority(99, -5)
    locks.release(1)
    await settle(locks)
    locks.release(2)
    assert await waiting
    assert not rival.done()
    locks.release(4)
    assert await rival


async def test_an_observer_that_fails_leaves_nothing_behind(locks: LockSet) -> None:
    def observer(_lock: SharedLock, _mode: Mode) -> None:
        raise RuntimeError("no")

    await locks.acquire(1, some("b"), EXCLUSIVE)
    with pytest.raises(RuntimeError):
        await locks.acquire(2, some("a", "b", "new"), EXCLUSIVE, on_wait=observer)
    assert locks.owners() == {1}
    assert "new" not in locks.names()


async def test_statistics_of_a_name_and_of_the_set(locks: LockSet) -> None:
    await locks.acquire(1, ALL, SHARED)
    whole = locks.statistics(WHOLE_SET)
    one = locks.statistics("a")
    assert whole is not None
    assert one is not None
    assert (whole.name, whole.mode) == ("instance/[lockset]", SHARED)
    assert (one.name, one.owners) == ("instance/a", frozenset({1}))
    assert locks.statistics("unknown") is None
