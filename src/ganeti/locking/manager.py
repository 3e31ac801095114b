"""All locks of the cluster, level by level (rows S13-S16, G10).

A job acquires all locks of an opcode at once. While it waits for one lock it holds the others only
for a limited time: after 1, 2, 4, ... seconds it releases all, pauses, and starts again; after a
few such attempts it keeps its position for as long as necessary. A job that needs only one lock
blocks no other job, so it stays in the queue from the start.

The longer a job waits, the more urgent it becomes, so that none starves behind more urgent ones.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ganeti.base.clock import Clock
from ganeti.base.errors import LockError
from ganeti.locking.levels import CLUSTER_LOCK, HIGHEST_PRIORITY, Level, Mode, Owner
from ganeti.locking.lock_set import LockSet
from ganeti.locking.requests import ALL, LockRequest, Names, in_order
from ganeti.locking.shared_lock import PendingAcquire, SharedLock

TIMED_TRIES = 5  # with timeouts of 1, 2, 4, 8, 16 s; about half a minute in all
PAUSE_SHARE = 0.1  # fraction of the last timeout
AGING_S = 10.0  # seconds of waiting that make a job more urgent by one


@dataclass(frozen=True, slots=True)
class LockInfo:
    """One lock as `gnt-debug locks` lists it; `mode` is None while it is free."""

    level: Level
    name: str
    mode: Mode | None
    owners: frozenset[Owner]
    waiters: tuple[PendingAcquire, ...]

    @property
    def full_name(self) -> str:
        return f"{self.level.label}/{self.name}"


@dataclass(frozen=True, slots=True)
class LockWait:
    """The lock that a job waits for, and the jobs before it.

    `since` is the start (seconds since the epoch).
    """

    lock: str
    mode: Mode
    holders: frozenset[Owner]
    ahead: tuple[Owner, ...]  # jobs that are served before it
    since: float
    tries: int  # number of attempts after which it released everything

    def __str__(self) -> str:
        parts = [f"waiting for {self.lock} ({self.mode.value})"]
        if self.holders:
            parts.append(f"held by {_jobs(self.holders)}")
        if self.ahead:
            parts.append(f"behind {_jobs(self.ahead)}")
        return ", ".join(parts)


WaitReporter = Callable[[LockWait], None]


@dataclass(frozen=True, slots=True)
class LockManagerStatistics:
    """Counts for metrics."""

    owners: int  # jobs that own locks and wait for none
    waiting: int  # jobs that wait
    locks: int


class _Acquisition:
    """The progress of one job's acquisition."""

    def __init__(self, owner: Owner, priority: int, since: float) -> None:
        self.owner = owner
        self.base_priority = priority
        self.since = since
        self.age = 0
        self.tries = 0
        self.level_set: LockSet | None = None  # None while it pauses
        self.wanted: tuple[SharedLock, Mode] | None = None  # the last lock that was not free
        self.aging: asyncio.TimerHandle | None = None

    @property
    def priority(self) -> int:
        return max(min(HIGHEST_PRIORITY, self.base_priority), self.base_priority - self.age)

    def apply_priority(self) -> None:
        if self.level_set is not None:
            self.level_set.set_priority(self.owner, self.priority)

    def start_aging(self) -> None:
        if self.aging is None:
            self._age_later()

    def stop_aging(self) -> None:
        if self.aging is not None:
            self.aging.cancel()

    def _age_later(self) -> None:
        self.aging = asyncio.get_running_loop().call_later(AGING_S, self._grow_older)

    def _grow_older(self) -> None:
        self.age += 1
        self.apply_priority()
        if self.priority > HIGHEST_PRIORITY:
            self._age_later()


class LockManager:
    """A LockSet per level, and the order and timeouts of acquisitions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sets = {level: LockSet(level, clock) for level in Level}
        self._acquisitions: dict[Owner, _Acquisition] = {}
        self._users: set[Owner] = set()
        """Owners with locks or requests: for others no level needs to be searched."""
        self.add_names(Level.CLUSTER, [CLUSTER_LOCK])

    async def acquire(
        self,
        owner: Owner,
        requests: Iterable[LockRequest],
        *,
        priority: int = 0,
        on_wait: WaitReporter | None = None,
    ) -> None:
        """Acquire all requested locks, however long it takes; holds none if this raises.

        LockError if `owner` has locks already. Safe to cancel. `on_wait` is called whenever a lock
        is not free.
        """
        wanted = in_order(requests)
        if owner in self._acquisitions or owner in self._users:
            raise LockError(
                f"job {owner} already owns locks, or waits for them; it must release them before "
                "it acquires others"
            )
        acquisition = _Acquisition(owner, priority, self._clock.time())
        self._acquisitions[owner] = acquisition
        try:
            while not await self._attempt(acquisition, wanted, on_wait):
                await asyncio.sleep(PAUSE_SHARE * 2**acquisition.tries)
                acquisition.tries += 1
        finally:
            acquisition.stop_aging()
            del self._acquisitions[owner]

    @asynccontextmanager
    async def holding(
        self,
        owner: Owner,
        requests: Iterable[LockRequest],
        *,
        priority: int = 0,
        on_wait: WaitReporter | None = None,
    ) -> AsyncIterator[None]:
        """`acquire` as a block that ends with `release`, however it ends."""
        await self.acquire(owner, requests, priority=priority, on_wait=on_wait)
        try:
            yield
        finally:
            self.release(owner)

    def release(self, owner: Owner) -> None:
        """Release all locks that `owner` holds.

        Does nothing without any. LockError while its `acquire` runs.
        """
        if owner in self._acquisitions:
            raise LockError(f"job {owner} is still acquiring its locks; cancel its task instead")
        self._give_back(owner)

    def keep_only(self, owner: Owner, level: Level, names: Iterable[str]) -> None:
        """Release the locks that `owner` holds of one level, except `names`."""
        self._sets[level].keep_only(owner, names)

    def downgrade(self, owner: Owner, level: Level, names: Names = ALL) -> None:
        """Turn exclusive locks of one level into shared ones without ever freeing them."""
        self._sets[level].downgrade(owner, names)

    def set_priority(self, owner: Owner, priority: int) -> bool:
        """Change the priority of a waiting job; return False if it does not wait."""
        acquisition = self._acquisitions.get(owner)
        if acquisition is None:
            return False
        acquisition.base_priority = priority
        acquisition.apply_priority()
        return True

    def add_names(self, level: Level, names: Iterable[str], *, owner: Owner | None = None) -> None:
        """Register names of existing objects, or of those that `owner` has just created under their locks."""
        self._sets[level].add(names, owner=owner)

    def owned(self, owner: Owner) -> dict[Level, dict[str, Mode]]:
        """Return the locks that `owner` holds, by level, without empty levels."""
        by_level = {level: locks.owned(owner) for level, locks in self._sets.items()}
        return {level: names for level, names in by_level.items() if names}

    def owners(self) -> frozenset[Owner]:
        """Return all jobs that own locks or wait for them, for comparison with the live jobs."""
        used = [locks.owners() for locks in self._sets.values()]
        return frozenset(self._acquisitions).union(*used)

    def waits_of(self, owner: Owner) -> LockWait | None:
        """Return what `owner` waits for; None if it does not wait."""
        acquisition = self._acquisitions.get(owner)
        if acquisition is None or acquisition.wanted is None:
            return None
        lock, mode = acquisition.wanted
        return LockWait(
            lock.name,
            mode,
            lock.owners,
            lock.ahead_of(owner),
            acquisition.since,
            acquisition.tries,
        )

    def names(self, level: Level) -> list[str]:
        """Return the names of the locks of one level, the set-wide one first."""
        return self._sets[level].names()

    def info(self, level: Level, name: str) -> LockInfo | None:
        """Return one lock; None if it no longer exists."""
        found = self._sets[level].statistics(name)
        if found is None:
            return None
        return LockInfo(level, name, found.mode, found.owners, found.pending)

    def snapshot(self) -> list[LockInfo]:
        """Return every lock, in the order in which jobs acquire them; for thousands, slice with `names`."""
        every = (self.info(level, name) for level in Level for name in self.names(level))
        return [info for info in every if info is not None]

    def statistics(self) -> LockManagerStatistics:
        waiting = len(self._acquisitions)
        locks = sum(len(locks.names()) for locks in self._sets.values())
        return LockManagerStatistics(len(self.owners()) - waiting, waiting, locks)

    def validate(self) -> None:
        """Raise LockError if a rule of this package is broken; run after every step in tests."""
        for locks in self._sets.values():
            locks.validate()
            if strangers := locks.owners() - self._users:
                raise LockError(f"jobs {sorted(map(str, strangers))} have locks unnoticed")

    async def _attempt(
        self, acquisition: _Acquisition, wanted: list[LockRequest], on_wait: WaitReporter | None
    ) -> bool:
        """Acquire all levels in order, or release all when this attempt times out."""
        owner = acquisition.owner
        timeout_s = _timeout_s(acquisition.tries, wanted)
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s

        def begin_wait(lock: SharedLock, mode: Mode) -> None:
            acquisition.wanted = (lock, mode)
            acquisition.start_aging()
            report = self.waits_of(owner)
            if on_wait is not None and report is not None:
                on_wait(report)

        self._users.add(owner)
        is_complete = False
        try:
            for request in wanted:
                acquisition.level_set = locks = self._sets[request.level]
                left_s = None if deadline is None else _left_s(deadline)
                if not await locks.acquire(
                    owner,
                    request.names,
                    request.mode,
                    timeout_s=left_s,
                    priority=acquisition.priority,
                    on_wait=begin_wait,
                ):
                    return False
            is_complete = True
        finally:
            acquisition.level_set = None
            if not is_complete:
                self._give_back(owner)
        return True

    def _give_back(self, owner: Owner) -> None:
        if owner not in self._users:
            return
        for locks in self._sets.values():
            locks.release(owner)
        self._users.discard(owner)


def _timeout_s(tries: int, wanted: list[LockRequest]) -> float | None:
    """Return the time limit of one attempt: 2**tries seconds (S14), then unlimited (S15)."""
    if tries >= TIMED_TRIES or (len(wanted) == 1 and wanted[0].is_single):
        return None
    return float(2**tries)


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())


def _jobs(owners: Iterable[Owner]) -> str:
    names = sorted((str(owner) for owner in owners), key=lambda name: (len(name), name))
    return f"job{'s' if len(names) > 1 else ''} {', '.join(names)}"
