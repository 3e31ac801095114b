"""LockManager: all levels, retries and what is said about waiting (rows S13-S16, G10)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ganeti.base.errors import LockError
from ganeti.locking.levels import CLUSTER_LOCK, Level, Mode
from ganeti.locking.lock_set import LockSet
from ganeti.locking.manager import LockManager, LockWait
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.simulation.virtual_time import WALL_START, LoopClock

pytestmark = pytest.mark.virtual_time

SHARED, EXCLUSIVE = Mode.SHARED, Mode.EXCLUSIVE


@pytest.fixture
async def manager() -> LockManager:
    manager = LockManager(LoopClock())
    manager.add_names(Level.INSTANCE, ["inst1", "inst2", "inst3", "inst4"])
    manager.add_names(Level.NODE, ["n1", "n2"])
    return manager


def now() -> float:
    return asyncio.get_running_loop().time()


def instance(*names: str) -> LockRequest:
    return lock(Level.INSTANCE, names)


def begin(
    manager: LockManager, owner: int, *requests: LockRequest, **how: Any
) -> asyncio.Task[None]:
    return asyncio.create_task(manager.acquire(owner, requests, **how))


async def settle(manager: LockManager) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
        manager.validate()


async def test_a_job_gets_all_its_levels_and_gives_all_back(manager: LockManager) -> None:
    await manager.acquire(
        1,
        [
            lock(Level.NODE, ALL, SHARED),
            lock(Level.CLUSTER, CLUSTER_LOCK, SHARED),
            instance("inst1"),
            lock(Level.NETWORK, None),
        ],
    )
    assert manager.owned(1) == {
        Level.CLUSTER: {"BGL": SHARED},
        Level.INSTANCE: {"inst1": EXCLUSIVE},
        Level.NODE: {"n1": SHARED, "n2": SHARED},
    }
    assert manager.owners() == {1}
    manager.release(1)
    assert manager.owned(1) == {}
    assert manager.owners() == frozenset()
    manager.release(1)  # nothing is fine


@pytest.mark.requirement("S16", "S13")
async def test_the_demonstration_with_three_operations(manager: LockManager) -> None:
    log: list[tuple[str, float]] = []

    async def operation(owner: int, name: str, request: LockRequest, hold_s: float) -> None:
        async with manager.holding(owner, [request]):
            log.append((f"{name} has it", now()))
            await asyncio.sleep(hold_s)
        log.append((f"{name} is done", now()))

    a = asyncio.create_task(operation(1, "A", instance("inst4"), 20))
    await settle(manager)
    b = asyncio.create_task(operation(2, "B", lock(Level.INSTANCE, ALL), 1))
    await settle(manager)
    assert manager.owned(2) == {
        Level.INSTANCE: dict.fromkeys(("inst1", "inst2", "inst3"), EXCLUSIVE)
    }
    c = asyncio.create_task(operation(3, "C", instance("inst1"), 0.5))
    await asyncio.gather(a, b, c)
    events = [event for event, _ in log]
    assert events.index("C is done") < events.index("A is done") < events.index("B has it")
    assert dict(log)["C has it"] == pytest.approx(1)  # B's first timeout


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float | None]]:
    """Filled with the time and the timeout of each acquire of instance locks by job 2."""
    seen: list[tuple[float, float | None]] = []
    real = LockSet.acquire

    async def spy(self: LockSet, owner: object, *args: Any, **kwargs: Any) -> bool:
        if owner == 2 and self.level is Level.INSTANCE:
            seen.append((now(), kwargs["timeout_s"]))
        return await real(self, owner, *args, **kwargs)

    monkeypatch.setattr(LockSet, "acquire", spy)
    return seen


@pytest.mark.requirement("S13", "S14", "S15")
async def test_timeouts_double_and_then_it_waits_for_as_long_as_it_takes(
    manager: LockManager, timeouts: list[tuple[float, float | None]]
) -> None:
    await manager.acquire(1, [instance("inst4")])
    waiting = begin(manager, 2, instance("inst1", "inst4"))
    await asyncio.sleep(1000)
    assert [timeout for _, timeout in timeouts] == [1, 2, 4, 8, 16, None]
    starts = [start for start, _ in timeouts]
    pauses = [
        later - start - timeout
        for (start, timeout), later in zip(timeouts, starts[1:], strict=False)
        if timeout is not None
    ]
    assert pauses == [pytest.approx(timeout / 10) for timeout in (1, 2, 4, 8, 16)]
    assert not waiting.done()
    manager.release(1)
    await waiting
    assert manager.owned(2)[Level.INSTANCE].keys() == {"inst1", "inst4"}


@pytest.mark.requirement("S13")
async def test_a_timeout_at_any_level_gives_back_the_locks_of_all_levels(
    manager: LockManager,
) -> None:
    await manager.acquire(1, [lock(Level.NODE_RES, "n2")])
    waiting = begin(
        manager, 2, instance("inst1"), lock(Level.NODE, ALL), lock(Level.NODE_RES, "n2")
    )
    await asyncio.sleep(0.99)
    assert manager.owned(2).keys() == {Level.INSTANCE, Level.NODE}
    await asyncio.sleep(0.05)
    assert manager.owned(2) == {}
    wait = manager.waits_of(2)
    assert wait is not None
    assert wait.ahead == ()
    assert wait.lock == "node-res/n2"
    await asyncio.sleep(0.1)
    assert manager.owned(2).keys() == {Level.INSTANCE, Level.NODE}
    manager.release(1)
    await waiting


@pytest.mark.requirement("S13", "S14")
async def test_partial_holds_end_at_each_timeout(manager: LockManager) -> None:
    """Others get inst1 in each pause, for as long as job 2 makes timed tries."""
    await manager.acquire(1, [instance("inst4")])
    waiting = begin(manager, 2, instance("inst1", "inst4"))
    got_it_at: list[float] = []
    for owner, idle_s in enumerate((0.5, 0.5, 0.5, 0.5, 2), start=10):
        await asyncio.sleep(idle_s)
        async with manager.holding(owner, [instance("inst1")]):
            got_it_at.append(now())
    assert got_it_at == [pytest.approx(at) for at in (1.0, 3.1, 7.3, 15.7, 32.5)]
    manager.release(1)
    await waiting


@pytest.mark.requirement("S15", "G10")
async def test_a_job_with_many_locks_is_not_starved_by_a_stream_of_small_ones(
    manager: LockManager,
) -> None:
    is_over = False

    async def stream(name: str, first: int) -> None:
        owner = first
        while not is_over:
            owner += 2
            async with manager.holding(owner, [instance(name)]):
                await asyncio.sleep(3)

    streams = [
        asyncio.create_task(stream(name, 10_000 * index + offset))
        for index, name in enumerate(("inst1", "inst2", "inst3", "inst4"), start=1)
        for offset in (0, 1)
    ]
    await settle(manager)
    await asyncio.wait_for(manager.acquire(2, [lock(Level.INSTANCE, ALL)]), 120)
    is_over = True
    manager.release(2)
    await asyncio.gather(*streams)


@pytest.mark.requirement("G10")
async def test_waiting_makes_a_job_more_urgent_so_that_none_starves(manager: LockManager) -> None:
    is_over = False

    async def urgent(first: int) -> None:
        owner = first
        while not is_over:
            owner += 2
            async with manager.holding(owner, [instance("inst1")], priority=-20):
                await asyncio.sleep(3)

    streams = [asyncio.create_task(urgent(first)) for first in (1000, 1001)]
    await settle(manager)
    await asyncio.wait_for(manager.acquire(2, [instance("inst1")], priority=19), 450)
    assert now() > 380  # 39 steps of ten seconds
    is_over = True
    manager.release(2)
    await asyncio.gather(*streams)


@pytest.mark.requirement("G10")
async def test_jobs_that_need_one_lock_are_served_in_order_however_long_they_wait(
    manager: LockManager,
) -> None:
    served: list[int] = []

    async def job(owner: int) -> None:
        await asyncio.sleep(0.3 * owner)
        async with manager.holding(owner, [instance("inst1")]):
            served.append(owner)
            await asyncio.sleep(7)

    await asyncio.gather(*(job(owner) for owner in range(20)))
    assert served == list(range(20))


async def test_jobs_that_take_the_same_locks_in_any_order_all_end(manager: LockManager) -> None:
    names = ["inst1", "inst2", "inst3", "inst4"]

    async def job(owner: int) -> None:
        requests = [lock(Level.NODE, ["n2", "n1"]), instance(*reversed(names[owner % 3 :]))]
        async with manager.holding(owner, requests):
            await asyncio.sleep(owner % 4)

    async with asyncio.timeout(1000):
        await asyncio.gather(*(job(owner) for owner in range(40)))
    assert manager.owners() == frozenset()


@pytest.mark.requirement("F12", "G10")
@pytest.mark.parametrize("kill", ["error", "cancel"])
async def test_locks_of_a_job_that_dies_are_free_at_once(manager: LockManager, kill: str) -> None:
    async def job() -> None:
        async with manager.holding(1, [instance("inst1"), lock(Level.NODE, ALL)]):
            await asyncio.sleep(5)
            raise ValueError("the job is broken")

    dying = asyncio.create_task(job())
    waiting = begin(manager, 2, instance("inst1", "inst2"))
    await asyncio.sleep(4.9)
    if kill == "cancel":
        dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    died_at = now()
    await waiting
    assert now() - died_at <= 5
    assert manager.owners() == {2}


@pytest.mark.requirement("G10")
async def test_cancelling_at_any_point_leaves_nothing_behind(manager: LockManager) -> None:
    before = manager.snapshot()

    async def blocked() -> None:
        for owner, request in enumerate(
            [lock(Level.CLUSTER, CLUSTER_LOCK), instance("inst2"), lock(Level.NODE, "n2", SHARED)],
            start=100,
        ):
            await manager.acquire(owner, [request])
            asyncio.get_running_loop().call_later(1.5 * (owner - 99), manager.release, owner)

    wanted = [
        lock(Level.CLUSTER, CLUSTER_LOCK, SHARED),
        instance("inst1", "inst2", "new"),
        lock(Level.NODE, ALL),
    ]
    ends: set[bool] = set()
    for step in range(60):
        await blocked()
        waiting = begin(manager, 1, *wanted)
        for _ in range(step % 6):
            await asyncio.sleep(0)
        await asyncio.sleep(0.1 * step)
        ends.add(waiting.done())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        manager.release(1)
        manager.validate()
        await asyncio.sleep(10)
        assert manager.snapshot() == before
        assert manager.statistics().waiting == 0
    assert ends == {False, True}


async def test_an_instance_is_locked_before_it_exists(manager: LockManager) -> None:
    await manager.acquire(1, [instance("web1"), lock(Level.NODE, ALL)])
    rival = begin(manager, 2, instance("web1"))
    await settle(manager)
    manager.keep_only(1, Level.NODE, ["n1"])
    assert manager.owned(1)[Level.NODE] == {"n1": EXCLUSIVE}
    manager.add_names(Level.INSTANCE, ["web1"], owner=1)
    manager.release(1)
    await rival
    manager.release(2)
    assert "web1" in manager.names(Level.INSTANCE)


async def test_a_name_that_its_job_did_not_add_vanishes(manager: LockManager) -> None:
    await manager.acquire(1, [instance("web1")])
    assert "web1" in manager.names(Level.INSTANCE)
    manager.release(1)
    assert "web1" not in manager.names(Level.INSTANCE)
    assert manager.info(Level.INSTANCE, "web1") is None


async def test_downgrading_lets_readers_of_that_level_in(manager: LockManager) -> None:
    await manager.acquire(1, [lock(Level.NODE, "n1"), instance("inst1")])
    reader = begin(manager, 2, lock(Level.NODE, "n1", SHARED))
    await settle(manager)
    manager.downgrade(1, Level.NODE)
    await reader
    assert manager.owned(1) == {
        Level.INSTANCE: {"inst1": EXCLUSIVE},
        Level.NODE: {"n1": SHARED},
    }


async def test_a_job_takes_locks_once_at_a_time(manager: LockManager) -> None:
    await manager.acquire(1, [instance("inst1")])
    with pytest.raises(LockError, match="job 1 already owns locks"):
        await manager.acquire(1, [lock(Level.NODE, "n1")])
    waiting = begin(manager, 2, instance("inst1"))
    await settle(manager)
    with pytest.raises(LockError, match="still acquiring its locks; cancel its task"):
        manager.release(2)
    manager.release(1)
    await waiting


async def test_a_waiting_job_knows_what_it_waits_for(manager: LockManager) -> None:
    reports: list[LockWait] = []
    await manager.acquire(7, [instance("inst1")])
    await asyncio.sleep(3)
    ahead = begin(manager, 8, instance("inst1"))
    await settle(manager)
    waiting = begin(manager, 9, instance("inst1"), on_wait=reports.append)
    await settle(manager)
    wait = manager.waits_of(9)
    assert wait is not None
    assert str(wait) == "waiting for instance/inst1 (exclusive), held by job 7, behind job 8"
    assert wait.since == pytest.approx(WALL_START + 3)
    assert [(report.lock, report.holders) for report in reports] == [
        ("instance/inst1", frozenset({7}))
    ]
    manager.release(7)
    await ahead
    assert manager.waits_of(8) is None
    manager.release(8)
    await waiting
    assert manager.waits_of(9) is None


async def test_each_try_reports_its_wait(manager: LockManager) -> None:
    reports: list[tuple[str, int]] = []
    await manager.acquire(1, [instance("inst4"), lock(Level.NODE, "n1")])
    waiting = begin(
        manager,
        2,
        instance("inst1", "inst4"),
        on_wait=lambda wait: reports.append((str(wait), wait.tries)),
    )
    await asyncio.sleep(4)
    text = "waiting for instance/inst4 (exclusive), held by job 1"
    assert reports == [(text, 0), (text, 1), (text, 2)]
    manager.release(1)
    await waiting


async def test_the_priority_of_a_waiting_job_can_be_changed(manager: LockManager) -> None:
    await manager.acquire(1, [instance("inst1")])
    first = begin(manager, 2, instance("inst1"))
    await settle(manager)
    second = begin(manager, 3, instance("inst1"), priority=10)
    await settle(manager)
    assert manager.set_priority(3, -10)
    assert not manager.set_priority(1, -10)
    manager.release(1)
    await second
    assert not first.done()
    manager.release(3)
    await first


async def test_the_snapshot_lists_locks_owners_and_waiters(manager: LockManager) -> None:
    await manager.acquire(1, [instance("inst1"), lock(Level.NODE, ALL, SHARED)])
    waiting = begin(manager, 2, lock(Level.NODE, "n1"))
    await settle(manager)
    rows = {info.full_name: info for info in manager.snapshot()}
    assert list(rows) == [
        "cluster/[lockset]",
        "cluster/BGL",
        "instance/[lockset]",
        "instance/inst1",
        "instance/inst2",
        "instance/inst3",
        "instance/inst4",
        "nodegroup/[lockset]",
        "node/[lockset]",
        "node/n1",
        "node/n2",
        "node-res/[lockset]",
        "network/[lockset]",
        "image/[lockset]",
    ]
    assert rows["instance/inst1"].mode is EXCLUSIVE
    assert rows["instance/inst1"].owners == {1}
    assert rows["instance/inst2"].mode is None
    assert rows["node/[lockset]"].mode is SHARED
    assert [(w.mode, w.owners) for w in rows["node/n1"].waiters] == [(EXCLUSIVE, (2,))]
    statistics = manager.statistics()
    assert (statistics.owners, statistics.waiting, statistics.locks) == (1, 1, 14)
    manager.release(1)
    await waiting


async def test_a_job_that_has_its_locks_leaves_no_timer(manager: LockManager) -> None:
    def timers() -> int:
        loop = asyncio.get_running_loop()
        scheduled = loop._scheduled  # type: ignore[attr-defined]  # nothing public counts timers
        return sum(not handle.cancelled() for handle in scheduled)

    before = timers()
    await manager.acquire(1, [instance("inst1"), lock(Level.NODE, "n1")])
    waiting = begin(manager, 2, instance("inst1", "inst2"))
    await settle(manager)
    assert timers() == before + 2  # the timeout of its try, and its age
    manager.release(1)
    await waiting
    assert timers() == before


@pytest.mark.parametrize("breaks", ["owners", "users"])
async def test_validate_finds_broken_rules(manager: LockManager, breaks: str) -> None:
    await manager.acquire(1, [instance("inst1")])
    entry = manager._sets[Level.INSTANCE]._entries["inst1"]
    harm: dict[str, Callable[[], object]] = {
        "owners": lambda: entry.lock._owners.add(2),
        "users": lambda: setattr(entry, "users", 3),
    }
    manager.validate()
    harm[breaks]()
    with pytest.raises(LockError):
        manager.validate()
