"""Which queued jobs may start now. Pure: told what happens, it answers what to do.

More urgent jobs first (lower numbers), then those that came first (lower ids); a job waits until
the jobs that it depends on have ended as it wants, and until a place is free.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from ganeti.base.errors import GanetiError
from ganeti.model.names import JobStatus

FINAL_STATES = frozenset(status for status in JobStatus if status.is_final)

Dependencies = Mapping[int, frozenset[JobStatus]]
"""Job id -> the final states that are wanted of it."""


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """A queued job that can never start, because another one ended otherwise than it wants."""

    job_id: int
    dependency: int
    status: JobStatus


@dataclass(slots=True)
class _Queued:
    priority: int
    needs: dict[int, frozenset[JobStatus]] = field(default_factory=dict)


class Scheduler:
    """Queued jobs, what they wait for, and which jobs have a place."""

    def __init__(self) -> None:
        self._queued: dict[int, _Queued] = {}
        self._ready: list[tuple[int, int]] = []  # heap; entries that no longer hold are passed over
        self._dependents: dict[int, set[int]] = {}
        self._running: set[int] = set()
        self._limit = 0

    def add(self, job_id: int, priority: int, needs: Dependencies) -> None:
        """A job was submitted; `needs` are only those of its dependencies that have not ended."""
        self._queued[job_id] = _Queued(priority, dict(needs))
        for dependency in needs:
            self._dependents.setdefault(dependency, set()).add(job_id)
        if not needs:
            heapq.heappush(self._ready, (priority, job_id))

    def remove(self, job_id: int) -> bool:
        """A queued job will not start; False if it is not queued."""
        queued = self._queued.pop(job_id, None)
        if queued is None:
            return False
        for dependency in queued.needs:
            self._forget_dependent(dependency, job_id)
        return True

    def set_priority(self, job_id: int, priority: int) -> None:
        """A queued job became more or less urgent; nothing happens if it is not queued."""
        queued = self._queued.get(job_id)
        if queued is not None and queued.priority != priority:
            queued.priority = priority
            if not queued.needs:
                heapq.heappush(self._ready, (priority, job_id))

    def ended(self, job_id: int, status: JobStatus) -> list[Unsatisfiable]:
        """A job reached a final state: its place is free; returns who waited for another outcome.

        Those who are unsatisfiable are not queued any more.
        """
        self._running.discard(job_id)
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
        """The jobs to start now, so that no more than `limit` run; at most `most` at once."""
        self._limit = limit
        taken: list[int] = []
        while self._ready and len(self._running) < limit and len(taken) < most:
            priority, job_id = heapq.heappop(self._ready)
            queued = self._queued.get(job_id)
            if queued is None or queued.priority != priority or queued.needs:
                continue
            del self._queued[job_id]
            self._running.add(job_id)
            taken.append(job_id)
        return taken

    def reason(self, job_id: int) -> str | None:
        """Why a queued job does not start, in words; None if it is not queued."""
        queued = self._queued.get(job_id)
        if queued is None:
            return None
        if queued.needs:
            jobs = ", ".join(str(dependency) for dependency in sorted(queued.needs))
            return f"waiting for job{'s' if len(queued.needs) > 1 else ''} {jobs} to end"
        if len(self._running) >= self._limit:
            return f"waiting for a free place: {len(self._running)} jobs run, the most allowed"
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
        ready = {entry for entry in ready if entry[1] not in waiting}
        pairs = {(need, job_id) for job_id in waiting for need in self._queued[job_id].needs}
        rules = {
            "nobody is both queued and running": not self._queued.keys() & self._running,
            "whoever needs nothing is in the heap": ready <= set(self._ready),
            "dependents are known from both sides": pairs
            == {(need, job_id) for need, jobs in self._dependents.items() for job_id in jobs},
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise GanetiError(f"the scheduler breaks: {'; '.join(broken)}")

    def _forget_dependent(self, dependency: int, job_id: int) -> None:
        dependents = self._dependents[dependency]
        dependents.discard(job_id)
        if not dependents:
            del self._dependents[dependency]
