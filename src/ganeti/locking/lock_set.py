"""The locks of one level, by name (rows S9, S10, S12).

A job acquires its names in alphabetical order. An unknown name is created for the job and removed
with its last user, unless it is added; so an instance is locked before it exists. A request for ALL
first acquires a set-wide lock in the requested mode, and then every name. A new name is created
under that lock held exclusively, so none appears while ALL is held.

A job waits for the set-wide lock only before any name of the level. Together with the order of
names and levels, this rules out deadlock.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ganeti.base.clock import Clock
from ganeti.base.errors import LockDeleted, LockError
from ganeti.locking.levels import Level, Mode, Owner
from ganeti.locking.requests import ALL, AllNames, Names
from ganeti.locking.shared_lock import LockStatistics, SharedLock

WHOLE_SET = "[lockset]"  # the name under which Ganeti lists the set-wide lock

WaitObserver = Callable[[SharedLock, Mode], None]


@dataclass(eq=False, slots=True)
class _Entry:
    name: str
    lock: SharedLock
    is_registered: bool
    users: int = 0  # claims that refer to it; an unregistered entry is removed with the last


@dataclass(eq=False, slots=True)
class _Claim:
    """The request of one owner and its progress; ends when the owner releases everything."""

    owner: Owner
    mode: Mode
    priority: int
    deadline: float | None  # of the loop's time
    on_wait: WaitObserver | None
    wants_all: bool
    entries: dict[str, _Entry] = field(default_factory=dict)
    waiting: SharedLock | None = None


class LockSet:
    """Named locks of one level; an owner acquires any subset at once, and only once at a time."""

    def __init__(self, level: Level, clock: Clock) -> None:
        self.level = level
        self._clock = clock
        self._whole = self._new_lock(WHOLE_SET)
        self._entries: dict[str, _Entry] = {}
        self._claims: dict[Owner, _Claim] = {}

    async def acquire(
        self,
        owner: Owner,
        names: Names,
        mode: Mode,
        *,
        timeout_s: float | None = None,
        priority: int = 0,
        on_wait: WaitObserver | None = None,
    ) -> bool:
        """Acquire all of `names`; return False, owning none, after `timeout_s`. Safe to cancel.

        LockDeleted, owning none, if a name is removed meanwhile. `on_wait` is called with each lock
        at the start of a wait for it.
        """
        if owner in self._claims:
            raise LockError(
                f"job {owner} already owns {self.level.label} locks, or waits for them; it must "
                "release them before it acquires others"
            )
        now = 0.0 if timeout_s is None else asyncio.get_running_loop().time()
        deadline = None if timeout_s is None else now + timeout_s
        claim = _Claim(owner, mode, priority, deadline, on_wait, names is ALL)
        self._claims[owner] = claim
        is_complete = False
        try:
            is_complete = await self._take_all(claim, names)
        finally:
            if not is_complete:
                self.release(owner)
        return is_complete

    def release(self, owner: Owner) -> None:
        """Release all locks of this level that `owner` holds; does nothing without any."""
        claim = self._claims.pop(owner, None)
        if claim is None:
            return
        if claim.waiting is not None:
            self._claims[owner] = claim
            raise LockError(f"job {owner} still waits for {claim.waiting.name}; cancel its task")
        for entry in claim.entries.values():
            self._give_back(owner, entry)
        self._release_whole(owner)

    def keep_only(self, owner: Owner, names: Iterable[str]) -> None:
        """Release the locks of this level that `owner` holds, except `names`; a hold of ALL ends."""
        claim = self._settled_claim(owner)
        kept = frozenset(names)
        for name in [name for name in claim.entries if name not in kept]:
            self._give_back(owner, claim.entries.pop(name))
        self._release_whole(owner)

    def downgrade(self, owner: Owner, names: Names = ALL) -> None:
        """Turn exclusive locks into shared ones: `names`, or all that `owner` holds of this level."""
        claim = self._settled_claim(owner)
        if not isinstance(names, AllNames) and not names <= claim.entries.keys():
            strange = ", ".join(sorted(names - claim.entries.keys()))
            raise LockError(f"job {owner} does not own {self.level.label} locks: {strange}")
        if names is ALL:
            _downgrade_if_exclusive(self._whole, owner)
        for entry in claim.entries.values():
            if isinstance(names, AllNames) or entry.name in names:
                _downgrade_if_exclusive(entry.lock, owner)

    def add(self, names: Iterable[str], *, owner: Owner | None = None) -> None:
        """Register names, so that they stay without a user; known names are ignored.

        LockError, adding none, if a name is new while another owner holds ALL. If `owner` itself
        holds ALL, it gets the new names too.
        """
        wanted = sorted(set(names))
        new = [name for name in wanted if name not in self._entries]
        holders = [o for o in self._whole.owners if self._claims[o].wants_all]
        strangers = [holder for holder in holders if holder != owner]
        if new and strangers:
            raise LockError(
                f"cannot add {self.level.label} locks {', '.join(new)}: job {strangers[0]} holds"
                " the whole level; take the lock of a new name before adding it"
            )
        for name in wanted:
            entry = self._entries.get(name) or self._make(name)
            entry.is_registered = True
            if name in new and holders:
                claim = self._claims[holders[0]]
                self._refer(claim, name)
                entry.lock.try_acquire(claim.owner, claim.mode)

    def remove(self, names: Iterable[str], *, owner: Owner | None = None) -> None:
        """Remove names that `owner` holds exclusively or that are free; waiters get LockDeleted.

        LockError, removing none, if another owner holds one of them. Unknown names are ignored.
        """
        entries = [self._entries[name] for name in set(names) if name in self._entries]
        for entry in entries:
            is_own = entry.lock.is_owned_by(owner) and entry.lock.mode is Mode.EXCLUSIVE
            if entry.lock.owners and not is_own:
                holders = ", ".join(sorted(str(holder) for holder in entry.lock.owners))
                raise LockError(
                    f"cannot remove lock {entry.lock.name}: job {holders} holds it;"
                    " take it exclusively first"
                )
        for entry in entries:
            if not entry.lock.owners:
                entry.lock.try_acquire(owner, Mode.EXCLUSIVE)
            entry.lock.delete_owned(owner)
            del self._entries[entry.name]
            if owner in self._claims:
                self._claims[owner].entries.pop(entry.name, None)

    def set_priority(self, owner: Owner, priority: int) -> bool:
        """Change the priority of a waiting `owner`.

        Return False if it acquires no locks of this level now.
        """
        claim = self._claims.get(owner)
        if claim is None:
            return False
        claim.priority = priority
        if claim.waiting is not None:
            claim.waiting.set_priority(owner, priority)
        return True

    def owned(self, owner: Owner) -> dict[str, Mode]:
        """Return the names that `owner` holds, with the mode of each, in alphabetical order."""
        claim = self._claims.get(owner)
        entries = [] if claim is None else sorted(claim.entries.items())
        return {
            name: entry.lock.mode
            for name, entry in entries
            if entry.lock.mode is not None and entry.lock.is_owned_by(owner)
        }

    def owners(self) -> frozenset[Owner]:
        """Return all owners of locks of this level and all waiting ones."""
        return frozenset(self._claims)

    def names(self) -> list[str]:
        """Return the set-wide lock, then all names in alphabetical order."""
        return [WHOLE_SET, *sorted(self._entries)]

    def statistics(self, name: str) -> LockStatistics | None:
        """Return the figures of one lock; None if it does not exist."""
        if name == WHOLE_SET:
            return self._whole.statistics()
        entry = self._entries.get(name)
        return None if entry is None else entry.lock.statistics()

    def validate(self) -> None:
        """Raise LockError if a rule of this module is broken; run after every step in tests."""
        self._whole.validate()
        for name, entry in self._entries.items():
            entry.lock.validate()
            claims = [c for c in self._claims.values() if c.entries.get(name) is entry]
            if entry.users != len(claims) or not (entry.users or entry.is_registered):
                raise LockError(f"lock {entry.lock.name} counts {entry.users} of {len(claims)}")
            if not entry.lock.owners <= {claim.owner for claim in claims}:
                raise LockError(f"lock {entry.lock.name} is owned outside any claim")
        if not self._whole.owners <= self._claims.keys():
            raise LockError(f"lock {self._whole.name} is owned outside any claim")

    async def _take_all(self, claim: _Claim, names: Names) -> bool:
        if isinstance(names, AllNames):
            if not await self._take(claim, self._whole, claim.mode):
                return False
            wanted = sorted(self._entries)
        else:
            wanted = sorted(names)
            if not all(name in self._entries for name in wanted):
                if not await self._take(claim, self._whole, Mode.EXCLUSIVE):
                    return False
                for name in wanted:
                    if name not in self._entries:
                        self._make(name)
        for name in wanted:
            self._refer(claim, name)
        if not claim.wants_all:
            self._release_whole(claim.owner)
        return await self._take_names(claim)

    async def _take_names(self, claim: _Claim) -> bool:
        for entry in list(claim.entries.values()):
            try:
                if not await self._take(claim, entry.lock, claim.mode):
                    return False
            except LockDeleted:
                if not claim.wants_all:  # ALL covers the names that exist when it is reached
                    raise
        return True

    async def _take(self, claim: _Claim, lock: SharedLock, mode: Mode) -> bool:
        if lock.try_acquire(claim.owner, mode, priority=claim.priority):
            return True
        timeout_s = None
        if claim.deadline is not None:
            timeout_s = claim.deadline - asyncio.get_running_loop().time()
            if timeout_s <= 0:
                return False
        if claim.on_wait is not None:
            claim.on_wait(lock, mode)
        claim.waiting = lock
        try:
            return await lock.acquire(
                claim.owner, mode, timeout_s=timeout_s, priority=claim.priority
            )
        finally:
            claim.waiting = None

    def _make(self, name: str) -> _Entry:
        entry = self._entries[name] = _Entry(name, self._new_lock(name), is_registered=False)
        return entry

    def _new_lock(self, name: str) -> SharedLock:
        return SharedLock(f"{self.level.label}/{name}", self._clock)

    def _refer(self, claim: _Claim, name: str) -> None:
        entry = self._entries[name]
        entry.users += 1
        claim.entries[name] = entry

    def _give_back(self, owner: Owner, entry: _Entry) -> None:
        if entry.lock.is_owned_by(owner):
            entry.lock.release(owner)
        entry.users -= 1
        is_current = self._entries.get(entry.name) is entry
        if is_current and not entry.users and not entry.is_registered:
            del self._entries[entry.name]

    def _release_whole(self, owner: Owner) -> None:
        if self._whole.is_owned_by(owner):
            self._whole.release(owner)

    def _settled_claim(self, owner: Owner) -> _Claim:
        claim = self._claims.get(owner)
        if claim is None or claim.waiting is not None:
            raise LockError(f"job {owner} does not own {self.level.label} locks")
        return claim


def _downgrade_if_exclusive(lock: SharedLock, owner: Owner) -> None:
    if lock.is_owned_by(owner) and lock.mode is Mode.EXCLUSIVE:
        lock.downgrade(owner)
