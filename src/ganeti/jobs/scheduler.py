"""Decides which queued jobs may start now. Pure: events in, decisions out.

More urgent jobs (lower numbers) come first, then earlier ones (lower ids). A job waits for three
conditions: its dependencies have ended in an accepted state, a slot is free, and no rule holds it
back. A rule may pause it, or limit the running jobs of its bucket.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from ganeti.base.errors import GanetiError
from ganeti.model.job_filter import FREE, Limit, Ruling
from ganeti.model.names import JobStatus

FINAL_STATES = frozenset(status for status in JobStatus if status.is_final)

Dependencies = Mapping[int, frozenset[JobStatus]]
"""Job id -> its accepted final states."""


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """A queued job that can never start, because a dependency ended in another state."""

    job_id: int
    dependency: int
    status: JobStatus


@dataclass(slots=True)
class _Queued:
    priority: int
    needs: dict[int, frozenset[JobStatus]] = field(default_factory=dict)
    held: tuple[str, int] | None = None
    """The bucket in whose heap the job has an entry, and the entry's priority."""

    @property
    def is_ready(self) -> bool:
        """Return whether no dependency is open."""
        return not self.needs


class Scheduler:
    """Queued jobs, what they wait for, and the jobs that have a slot."""

    def __init__(self) -> None:
        self._queued: dict[int, _Queued] = {}
        self._ready: list[tuple[int, int]] = []  # heap; outdated entries are skipped
        self._dependents: dict[int, set[int]] = {}
        self._running: set[int] = set()
        self._limit = 0
        self._rulings: dict[int, Ruling] = {}  # of queued and running jobs, if any
        self._used: Counter[str] = Counter()  # running jobs of each bucket
        self._held: dict[
            str, list[tuple[int, int]]
        ] = {}  # heaps: the jobs that wait for a slot in a bucket

    def add(self, job_id: int, priority: int, needs: Dependencies, ruling: Ruling = FREE) -> None:
        """Add a submitted job; `needs` are its dependencies that have not ended."""
        if ruling != FREE:
            self._rulings[job_id] = ruling
        self._queued[job_id] = _Queued(priority, dict(needs))
        for dependency in needs:
            self._dependents.setdefault(dependency, set()).add(job_id)
        if not needs:
            heapq.heappush(self._ready, (priority, job_id))

    def start_at_once(self, job_id: int, limit: int) -> bool:
        """Give a job that nothing holds back a slot, if no other job waits for one."""
        if self._ready or len(self._running) >= limit:
            return False
        self._running.add(job_id)
        return True

    def remove(self, job_id: int) -> bool:
        """Remove a queued job; return False if it is not queued."""
        queued = self._queued.pop(job_id, None)
        if queued is None:
            return False
        for dependency in queued.needs:
            self._forget_dependent(dependency, job_id)
        self._wake(self._rulings.pop(job_id, FREE))
        return True

    def rule(self, job_id: int, ruling: Ruling) -> None:
        """Set the present ruling of a queued or running job."""
        before = self._rulings.pop(job_id, FREE)
        if ruling != FREE:
            self._rulings[job_id] = ruling
        if job_id in self._running:
            self._count(before, -1)
            self._count(ruling, 1)
        queued = self._queued.get(job_id)
        if queued is not None and queued.is_ready:
            heapq.heappush(self._ready, (queued.priority, job_id))
        self._wake(before)

    def set_priority(self, job_id: int, priority: int) -> None:
        """Change the priority of a queued job; do nothing for any other job."""
        queued = self._queued.get(job_id)
        if queued is not None and queued.priority != priority:
            queued.priority = priority
            if not queued.needs:
                heapq.heappush(self._ready, (priority, job_id))

    @property
    def unended(self) -> Iterator[int]:
        """Return the jobs that are queued or running."""
        return chain(self._queued, self._running)

    def is_queued(self, job_id: int) -> bool:
        """Return whether a job has not started."""
        return job_id in self._queued

    def ended(self, job_id: int, status: JobStatus) -> list[Unsatisfiable]:
        """Record a job's final state, which frees its slot; return the jobs that can never start.

        Unsatisfiable jobs are no longer queued.
        """
        if job_id in self._running:
            self._running.discard(job_id)
            ruling = self._rulings.pop(job_id, FREE)
            self._count(ruling, -1)
            self._wake(ruling)
        unsatisfiable: list[Unsatisfiable] = []
        for dependent in sorted(self._dependents.pop(job_id, ())):
            queued = self._queued[dependent]
            if status in queued.needs.pop(job_id):
                if not queued.needs:
                    heapq.heappush(self._ready, (queued.priority, dependent))
            else:
                self.remove(dependent)
                unsatisfiable.append(Unsatisfiable(dependent, job_id, status))
        return unsatisfiable

    def take(self, limit: int, *, most: int = 2**31) -> list[int]:
        """Return the jobs to start now, so that at most `limit` run; at most `most` at once."""
        self._limit = limit
        taken: list[int] = []
        while self._ready and len(self._running) < limit and len(taken) < most:
            priority, job_id = heapq.heappop(self._ready)
            queued = self._queued.get(job_id)
            if queued is None or not self._could_start(priority, job_id):
                continue  # `rule` puts a paused job back later
            ruling = self._rulings.get(job_id, FREE)
            full = self._full(ruling)
            if full is not None:
                if queued.held != (full.bucket, priority):
                    queued.held = full.bucket, priority
                    heapq.heappush(self._held.setdefault(full.bucket, []), (priority, job_id))
                self._wake(ruling)
                continue
            del self._queued[job_id]
            self._running.add(job_id)
            self._count(ruling, 1)
            taken.append(job_id)
        return taken

    def _could_start(self, priority: int, job_id: int) -> bool:
        """Return whether only a bucket holds the job back, and this is its entry."""
        queued = self._queued.get(job_id)
        is_current = queued is not None and queued.is_ready and queued.priority == priority
        return is_current and self._rulings.get(job_id, FREE).paused is None

    def _full(self, ruling: Ruling) -> Limit | None:
        """Return a full bucket of the job, or None."""
        limits = ruling.limits
        return next((one for one in limits if self._used[one.bucket] >= one.most), None)

    def _buckets(self, job_id: int) -> set[str]:
        return {limit.bucket for limit in self._rulings.get(job_id, FREE).limits}

    def _count(self, ruling: Ruling, change: int) -> None:
        for limit in ruling.limits:
            self._used[limit.bucket] += change
            if not self._used[limit.bucket]:
                del self._used[limit.bucket]

    def _wake(self, ruling: Ruling) -> None:
        """Recheck as many waiting jobs as there are slots in the buckets of a job that does not use its own."""
        for limit in ruling.limits:
            held = self._held.get(limit.bucket, [])
            free = limit.most - self._used[limit.bucket]
            while held and free > 0:
                priority, job_id = heapq.heappop(held)
                queued = self._queued.get(job_id)
                if queued is None or queued.held != (limit.bucket, priority):
                    continue
                queued.held = None
                # A job that does not need the bucket any more has an entry in `_ready` already.
                if limit.bucket in self._buckets(job_id) and self._could_start(priority, job_id):
                    heapq.heappush(self._ready, (priority, job_id))
                    free -= 1
            if not held:
                self._held.pop(limit.bucket, None)

    def reason(self, job_id: int) -> str | None:
        """Return why a queued job does not start, as text; None if it is not queued."""
        queued = self._queued.get(job_id)
        if queued is None:
            return None
        if queued.needs:
            jobs = ", ".join(str(dependency) for dependency in sorted(queued.needs))
            return f"waiting for job{'s' if len(queued.needs) > 1 else ''} {jobs} to end"
        ruling = self._rulings.get(job_id, FREE)
        if ruling.paused is not None:
            return f"paused by {ruling.paused}"
        full = self._full(ruling)
        if full is not None:
            return f"waiting until fewer than {full.most} jobs run, as required by {full.what}"
        if len(self._running) >= self._limit:
            return f"waiting for a free slot: {len(self._running)} jobs run, the maximum"
        return "about to start"

    @property
    def queued(self) -> int:
        return len(self._queued)

    @property
    def running(self) -> int:
        return len(self._running)

    def validate(self) -> None:
        """Raise GanetiError if a rule of this class is broken; run after every step in tests."""
        waiting = {job_id for job_id, queued in self._queued.items() if queued.needs}
        ready = {(queued.priority, job_id) for job_id, queued in self._queued.items()}
        ready = {entry for entry in ready if self._could_start(*entry)}
        held = {entry for heap in self._held.values() for entry in heap}
        stuck = [bucket for bucket in self._held if self._is_stuck(bucket, ready)]
        used = Counter(
            limit.bucket
            for job_id in self._running
            for limit in self._rulings.get(job_id, FREE).limits
        )
        pairs = {(need, job_id) for job_id in waiting for need in self._queued[job_id].needs}
        rules = {
            "no job is both queued and running": not self._queued.keys() & self._running,
            "jobs that need nothing are in the heap": ready - held <= set(self._ready),
            "jobs that wait for a slot wait for an occupied one": not stuck,
            "slots in buckets are counted": used == self._used,
            "rulings belong to known jobs": self._rulings.keys()
            <= self._queued.keys() | self._running,
            "dependents are known from both sides": pairs
            == {(need, job_id) for need, jobs in self._dependents.items() for job_id in jobs},
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise GanetiError(f"the scheduler breaks: {'; '.join(broken)}")

    def _is_stuck(self, bucket: str, ready: set[tuple[int, int]]) -> bool:
        """Return whether a job is held at a bucket with more free slots than jobs to recheck."""
        looking = ready & set(self._ready)
        waiting = [
            entry
            for entry in ready & set(self._held[bucket])
            if entry not in looking and self._full(self._rulings.get(entry[1], FREE)) is None
        ]
        if not waiting:
            return False
        most = {limit.bucket: limit.most for limit in self._rulings[waiting[0][1]].limits}
        takers = [job_id for _, job_id in looking if bucket in self._buckets(job_id)]
        return len(takers) < most.get(bucket, 0) - self._used[bucket]

    def _forget_dependent(self, dependency: int, job_id: int) -> None:
        dependents = self._dependents[dependency]
        dependents.discard(job_id)
        if not dependents:
            del self._dependents[dependency]
