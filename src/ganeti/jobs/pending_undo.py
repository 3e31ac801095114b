"""Undo steps of jobs that have ended: what could not be undone is tried again until it can (G11, F23).

A step fails when its node does not answer or the state's disk is full. It stays recorded with its
job, which stays in the queue as long as that is so, and is run again by the master of that time:
when it becomes the master, and at growing intervals.
"""

import asyncio
import logging
from dataclasses import dataclass
from zlib import crc32

from ganeti.base.errors import CommitUnknown, ErrorCode, GanetiError, NotMaster, PrereqError
from ganeti.jobs.background import Background
from ganeti.jobs.executor import Executor
from ganeti.jobs.feedback import Feedback
from ganeti.jobs.journal import Journal
from ganeti.jobs.record import LiveJob
from ganeti.locking.manager import LockManager
from ganeti.model import wire
from ganeti.model.job import UndoStep

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 60.0
"""So that what a node has is cleaned up at most a minute after it answers again."""
AT_ONCE = 4
"""Jobs whose steps run at the same time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PendingStep:
    """A step that is still to be run, and why it was not so far; '' if it was not tried by this master."""

    job_id: int
    summary: str
    step: UndoStep
    why: str
    ident: str = ""
    """Names the step among those of its job."""
    what: str = ""
    """What it would undo, and where."""
    next_try_s: float = 0.0
    """In how many seconds it is tried again; 0 while it is being tried."""

    @property
    def procedure(self) -> str:
        return self.step.procedure


class PendingUndo:
    """The ended jobs that left something undone; each is seen to by a task of its own."""

    def __init__(
        self, journal: Journal, feedback: Feedback, locks: LockManager, executor: Executor
    ) -> None:
        self._journal = journal
        self._feedback = feedback
        self._locks = locks
        self._executor = executor
        self._jobs: dict[int, LiveJob] = {}
        self._reasons: dict[int, list[str]] = {}
        self._next: dict[int, float] = {}
        self._one_at_a_time: dict[int, asyncio.Lock] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks = Background()
        self._is_open = False

    def open(self) -> None:
        """Begin with what earlier masters have left: only now nothing else is half done."""
        self._is_open = True
        for job in self._jobs.values():
            self._begin(job, 0.0)

    async def close(self) -> None:
        """Stop; the next master continues."""
        self._is_open = False
        await self._tasks.close()

    def add(self, job: LiveJob) -> None:
        """A job has ended; if it left something undone, that is tried again."""
        if job.pending and job.id not in self._jobs:
            self._jobs[job.id] = job
            if self._is_open:
                self._begin(job, FIRST_WAIT_S)

    def listing(self) -> list[PendingStep]:
        """What is still to be undone, by job."""
        found = []
        for job_id, job in sorted(self._jobs.items()):
            reasons = self._reasons.get(job_id, [])
            for number, step in enumerate(job.pending):
                why = reasons[number] if number < len(reasons) else ""
                summary = ", ".join(state.op.summary() for state in job.ops)
                found.append(
                    PendingStep(
                        job_id,
                        summary,
                        step,
                        why,
                        ident=ident_of(step),
                        what=self._executor.describe_undo(step),
                        next_try_s=self._wait_of(job_id),
                    )
                )
        return found

    async def abandon(self, job_id: int, ident: str) -> str:
        """Give a step up for good, under the locks of what it concerns; what is left, and where.

        Waits while the step runs. PrereqError if the step does not exist.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise PrereqError(f"job {job_id} has nothing to undo", ErrorCode.UNKNOWN_ENTITY)
        async with self._alone(job):
            wanted = self._executor.undo_locks(job.pending)
            async with self._locks.holding(job.id, wanted, priority=job.priority):
                step = _named(job, ident)
                what = self._executor.describe_undo(step)
                left = [one for one in job.pending if one is not step]
                async with job.writing:
                    stored = job.stored(pending=left)
                    await self._journal.commit([job.row(stored)])
                    job.apply(stored)
        self._reasons.pop(job_id, None)
        text = f"an administrator has given up to undo {step.procedure}; left as it is: {what}"
        self._feedback.say(job, len(job.ops) - 1, f" - WARNING: {text}")
        _log.warning("job %d: %s", job_id, text)
        return what

    def _alone(self, job: LiveJob) -> asyncio.Lock:
        """Held while this job's pending undo is run or abandoned."""
        return self._one_at_a_time.setdefault(job.id, asyncio.Lock())

    def _wait_of(self, job_id: int) -> float:
        at = self._next.get(job_id, 0.0)
        return max(0.0, at - asyncio.get_running_loop().time())

    def _begin(self, job: LiveJob, wait_s: float) -> None:
        self._tasks.spawn(self._see_to(job, wait_s), f"pending-undo-{job.id}")

    async def _see_to(self, job: LiveJob, wait_s: float) -> None:
        while True:
            self._next[job.id] = asyncio.get_running_loop().time() + wait_s
            await asyncio.sleep(wait_s)
            try:
                async with self._alone(job):
                    await self._try(job)
            except (NotMaster, CommitUnknown):
                return
            except GanetiError as err:
                _log.info("job %d: cleaning up is tried again: %s", job.id, err)
            if not job.pending:
                del self._jobs[job.id]
                for known in (self._reasons, self._next, self._one_at_a_time):
                    known.pop(job.id, None)
                return
            wait_s = min(max(2 * wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)

    async def _try(self, job: LiveJob) -> None:
        """Run the steps under their locks, as a job would, and record which are left."""
        try:
            wanted = self._executor.undo_locks(job.pending)
            async with self._locks.holding(job.id, wanted, priority=job.priority), self._turns:
                failed = await self._executor.undo(job.id, job.pending, deferred=True)
                self._reasons[job.id] = [why for _step, why in failed]
                done = len(job.pending) - len(failed)
                await self._record(job, done, [step for step, _why in failed])
        except GanetiError:
            raise
        except Exception:  # noqa: BLE001 - what is wrong with one job must not end the clean-up of it
            _log.exception("job %d: cleaning up failed unexpectedly", job.id)

    async def _record(self, job: LiveJob, done: int, left: list[UndoStep]) -> None:
        if not done:
            return
        async with job.writing:
            stored = job.stored(pending=left)
            await self._journal.commit([job.row(stored)])
            job.apply(stored)
        text = f"{done} steps that this job had left are done now; {len(left)} are left"
        self._feedback.say(job, len(job.ops) - 1, f" - INFO: {text}")
        _log.info("job %d: %s", job.id, text)


def ident_of(step: UndoStep) -> str:
    """The same for the same step at every master: its kind, and a checksum of what it is about."""
    return f"{step.procedure}-{crc32(wire.encode(step.arguments)):08x}"


def _named(job: LiveJob, ident: str) -> UndoStep:
    for step in job.pending:
        if ident_of(step) == ident:
            return step
    known = ", ".join(ident_of(one) for one in job.pending) or "none"
    raise PrereqError(
        f"job {job.id} has no step {ident!r:.80} to undo; it has: {known}", ErrorCode.UNKNOWN_ENTITY
    )
