"""One lock, with many shared owners or one exclusive owner (rows S11, S17-S27).

Waiters are in one queue per priority, as conditions. Each exclusive waiter has its own condition;
all shared waiters share the *active* one, at any position of the queue. When the active condition
is notified, it leaves the queue and the next shared waiter begins another, at the end.

A notification grants the lock at once: the waiters own it before their tasks run again. So no other
job can acquire it in between, and a free lock never has waiters.
"""

import asyncio
import enum
from collections import OrderedDict
from dataclasses import dataclass, field

from ganeti.base.clock import Clock
from ganeti.base.errors import LockDeleted, LockError
from ganeti.locking.levels import Mode, Owner


class _Outcome(enum.Enum):
    GRANTED = enum.auto()
    EXPIRED = enum.auto()
    DELETED = enum.auto()


@dataclass(eq=False, slots=True)
class _Waiter:
    owner: Owner
    mode: Mode
    since: float
    outcome: asyncio.Future[_Outcome]
    condition: "_Condition | None" = None


@dataclass(eq=False, slots=True)
class _Condition:
    """A position in the queue: of one exclusive waiter, or of any number of shared ones."""

    mode: Mode
    priority: int
    waiters: dict[Owner, _Waiter] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Queue:
    """The conditions of one priority, the oldest first."""

    conditions: OrderedDict[_Condition, None] = field(default_factory=OrderedDict)
    active: _Condition | None = None  # where shared waiters join


@dataclass(frozen=True, slots=True)
class PendingAcquire:
    """One condition of a queue: its waiters, and their start (seconds since the epoch)."""

    mode: Mode
    owners: tuple[Owner, ...]
    since: float
    priority: int


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """A lock at one moment; `mode` is None while it is free, `pending` is in the order of grants."""

    name: str
    mode: Mode | None
    owners: frozenset[Owner]
    pending: tuple[PendingAcquire, ...]


class SharedLock:
    """A lock with many shared owners or one exclusive owner; every method may be called at any moment."""

    __slots__ = ("_clock", "_is_deleted", "_is_exclusive", "_owners", "_queues", "_waiting", "name")

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._is_deleted = False
        self._is_exclusive = False
        self._owners: set[Owner] = set()
        self._queues: dict[int, _Queue] = {}  # by priority; no queue is ever empty
        self._waiting: dict[Owner, _Waiter] = {}

    @property
    def mode(self) -> Mode | None:
        """The mode in which the lock is held; None while it is free."""
        if not self._owners:
            return None
        return Mode.EXCLUSIVE if self._is_exclusive else Mode.SHARED

    @property
    def owners(self) -> frozenset[Owner]:
        return frozenset(self._owners)

    @property
    def is_deleted(self) -> bool:
        return self._is_deleted

    def is_owned_by(self, owner: Owner) -> bool:
        return owner in self._owners

    def try_acquire(self, owner: Owner, mode: Mode, *, priority: int = 0) -> bool:
        """Acquire the lock if it can be granted at once; never touches the queue (S24)."""
        if self._is_deleted:
            raise self._deleted_error(owner)
        if owner in self._owners or owner in self._waiting:
            raise LockError(f"job {owner} already owns lock {self.name}, or waits for it")
        if self._owners and (self._is_exclusive or mode is Mode.EXCLUSIVE):
            return False
        if self._queues and min(self._queues) <= priority:
            return False
        self._owners.add(owner)
        self._is_exclusive = mode is Mode.EXCLUSIVE
        return True

    async def acquire(
        self, owner: Owner, mode: Mode, *, timeout_s: float | None = None, priority: int = 0
    ) -> bool:
        """Wait for the lock; return False after `timeout_s`. LockDeleted if it is deleted. Safe to cancel."""
        if self.try_acquire(owner, mode, priority=priority):
            return True
        if timeout_s is not None and timeout_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        waiter = _Waiter(owner, mode, self._clock.time(), loop.create_future())
        self._enqueue(waiter, priority)
        timer = None if timeout_s is None else loop.call_later(timeout_s, self._expire, waiter)
        try:
            outcome = await waiter.outcome
        except BaseException:
            self._abandon(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if outcome is _Outcome.DELETED:
            raise self._deleted_error(owner)
        return outcome is _Outcome.GRANTED

    def release(self, owner: Owner) -> None:
        """Release the lock; LockError if `owner` does not own it."""
        if owner not in self._owners:
            raise LockError(f"job {owner} cannot release lock {self.name}: it does not own it")
        self._owners.remove(owner)
        self._is_exclusive = False
        if self._queues:
            self._wake()

    def downgrade(self, owner: Owner) -> None:
        """Turn an exclusive lock into a shared one without ever freeing it."""
        self._require_exclusive(owner, "downgrade")
        self._is_exclusive = False
        self._wake()

    async def delete(
        self, owner: Owner, *, timeout_s: float | None = None, priority: int = 0
    ) -> bool:
        """Acquire the lock exclusively unless owned so, then delete it.

        Return False after `timeout_s` (S26).
        """
        if owner not in self._owners and not await self.acquire(
            owner, Mode.EXCLUSIVE, timeout_s=timeout_s, priority=priority
        ):
            return False
        self.delete_owned(owner)
        return True

    def delete_owned(self, owner: Owner) -> None:
        """Delete the lock, which `owner` owns exclusively; its waiters get LockDeleted."""
        self._require_exclusive(owner, "delete")
        self._is_deleted = True
        self._is_exclusive = False
        self._owners.clear()
        self._queues.clear()
        for waiter in self._waiting.values():
            waiter.condition = None
            if not waiter.outcome.done():
                waiter.outcome.set_result(_Outcome.DELETED)
        self._waiting.clear()

    def set_priority(self, owner: Owner, priority: int) -> bool:
        """Move a waiting owner to the end of another priority's queue; return False if nothing changed."""
        waiter = self._waiting.get(owner)
        if waiter is None or waiter.condition is None or waiter.condition.priority == priority:
            return False
        self._leave(waiter)
        self._enqueue(waiter, priority)
        self._wake()
        return True

    def ahead_of(self, owner: Owner) -> tuple[Owner, ...]:
        """Return the waiters before `owner`, the next to be served first; empty if `owner` does not wait."""
        waiter = self._waiting.get(owner)
        ahead: list[Owner] = []
        for condition in self._conditions() if waiter else ():
            if waiter is not None and waiter.condition is condition:
                break
            ahead.extend(condition.waiters)
        return tuple(ahead)

    def statistics(self) -> LockStatistics:
        """Return the holders of the lock, and its waiters."""
        pending = tuple(
            PendingAcquire(
                condition.mode,
                tuple(condition.waiters),
                min(waiter.since for waiter in condition.waiters.values()),
                condition.priority,
            )
            for condition in self._conditions()
        )
        return LockStatistics(self.name, self.mode, self.owners, pending)

    def validate(self) -> None:
        """Raise LockError if a rule of this module is broken; run after every step in tests."""
        conditions = self._conditions()
        shared = [c for c in conditions if c.mode is Mode.SHARED]
        exclusive = [c for c in conditions if c.mode is Mode.EXCLUSIVE]
        queued = [waiter for c in conditions for waiter in c.waiters.values()]
        top = conditions[0] if conditions else None
        rules = {
            "an exclusive owner is alone": not self._is_exclusive or len(self._owners) == 1,
            "a free lock has no waiters": bool(self._owners) or not conditions,
            "an owner does not wait": not self._owners & self._waiting.keys(),
            "no grantable waiter is left": top is None or not self._may_grant(top.mode),
            "no condition is empty": all(c.waiters for c in conditions),
            "no queue is empty": all(queue.conditions for queue in self._queues.values()),
            "one exclusive waiter a condition": all(len(c.waiters) == 1 for c in exclusive),
            "at most two shared conditions a priority": len(shared) <= 2 * len(self._queues),
            "shared waiters stand in the active condition": all(
                self._queues[c.priority].active is c for c in shared
            ),
            "waiters are those of the queue": (
                {id(w) for w in queued} == {id(w) for w in self._waiting.values()}
            ),
            "a deleted lock is empty": not self._is_deleted or not (self._owners or queued),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise LockError(f"lock {self.name} breaks: {'; '.join(broken)}")

    def _conditions(self) -> list[_Condition]:
        return [c for priority in sorted(self._queues) for c in self._queues[priority].conditions]

    def _may_grant(self, mode: Mode) -> bool:
        """Return whether the holders admit one more (S22), regardless of the queue."""
        return not self._owners or (mode is Mode.SHARED and not self._is_exclusive)

    def _enqueue(self, waiter: _Waiter, priority: int) -> None:
        queue = self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = _Queue()
        condition = queue.active if waiter.mode is Mode.SHARED else None
        if condition is None:
            condition = _Condition(waiter.mode, priority)
            queue.conditions[condition] = None
            if waiter.mode is Mode.SHARED:
                queue.active = condition
        condition.waiters[waiter.owner] = waiter
        waiter.condition = condition
        self._waiting[waiter.owner] = waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Remove one waiter; the last one removes the condition (S23)."""
        condition = waiter.condition
        if condition is None:
            return
        waiter.condition = None
        del self._waiting[waiter.owner]
        del condition.waiters[waiter.owner]
        if not condition.waiters:
            self._remove(condition)

    def _remove(self, condition: _Condition) -> None:
        queue = self._queues[condition.priority]
        del queue.conditions[condition]
        if queue.active is condition:
            queue.active = None
        if not queue.conditions:
            del self._queues[condition.priority]

    def _wake(self) -> None:
        """Notify the first condition as long as its waiters may have the lock (S22, S25)."""
        while self._queues:
            condition = next(iter(self._queues[min(self._queues)].conditions))
            if not self._may_grant(condition.mode):
                return
            self._remove(condition)
            for waiter in condition.waiters.values():
                waiter.condition = None
                del self._waiting[waiter.owner]
                if waiter.outcome.done():  # cancelled, and its task has not run since
                    continue
                self._owners.add(waiter.owner)
                self._is_exclusive = waiter.mode is Mode.EXCLUSIVE
                waiter.outcome.set_result(_Outcome.GRANTED)

    def _expire(self, waiter: _Waiter) -> None:
        if waiter.outcome.done():
            return
        self._leave(waiter)
        waiter.outcome.set_result(_Outcome.EXPIRED)
        self._wake()

    def _abandon(self, waiter: _Waiter) -> None:
        """Undo a wait that was cancelled, even after the grant but before its task ran."""
        outcome = waiter.outcome
        if outcome.done() and not outcome.cancelled() and outcome.result() is _Outcome.GRANTED:
            if waiter.owner in self._owners:
                self.release(waiter.owner)
            return
        self._leave(waiter)
        self._wake()

    def _require_exclusive(self, owner: Owner, act: str) -> None:
        if self._is_deleted:
            raise self._deleted_error(owner)
        if not self._is_exclusive or owner not in self._owners:
            raise LockError(
                f"job {owner} cannot {act} lock {self.name}: it does not own it exclusively"
            )

    def _deleted_error(self, owner: Owner) -> LockDeleted:
        return LockDeleted(
            f"job {owner} cannot have lock {self.name}: it was deleted, because its object was "
            "removed; list the present objects and submit the job again if it is still needed"
        )
