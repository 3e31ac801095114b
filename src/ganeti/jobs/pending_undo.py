"""Pending undo steps of ended jobs, which are retried until they succeed (G11, F23).

A step fails when its node does not answer or the state's disk is full. It stays recorded with its
job, which stays in the queue meanwhile. The present master retries it: when it becomes the master,
and at growing intervals.
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
"""Maximum delay in seconds: a node is cleaned up at most a minute after it answers again."""
AT_ONCE = 4
"""Number of jobs whose steps run at the same time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PendingStep:
    """A pending step, and why it failed; '' if this master has not tried it."""

    job_id: int
    summary: str
    step: UndoStep
    why: str
    ident: str = ""
    """Identifies the step among those of its job."""
    what: str = ""
    """The effect of the step, and its node."""
    next_try_s: float = 0.0
    """Seconds until the next attempt; 0 during an attempt."""

    @property
    def procedure(self) -> str:
        return self.step.procedure


class PendingUndo:
    """The ended jobs with pending undo; each has a task of its own."""

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
        """Start with the steps that earlier masters left: by now no other work is half done."""
        self._is_open = True
        for job in self._jobs.values():
            self._begin(job, 0.0)

    async def close(self) -> None:
        """Stop; the next master continues."""
        self._is_open = False
        await self._tasks.close()

    def add(self, job: LiveJob) -> None:
        """Retry the pending undo of a job that has ended, if it has any."""
        if job.pending and job.id not in self._jobs:
            self._jobs[job.id] = job
            if self._is_open:
                self._begin(job, FIRST_WAIT_S)

    def listing(self) -> list[PendingStep]:
        """Return the pending steps, by job."""
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
        """Abandon a step, under the locks of its objects.

        Return what it would have undone, and on which node.

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
        text = (
            f"an administrator abandoned the undo step {step.procedure}; this stays as it is: "
            f"{what}"
        )
        self._feedback.say(job, len(job.ops) - 1, f" - WARNING: {text}")
        _log.warning("job %d: %s", job_id, text)
        return what

    def _alone(self, job: LiveJob) -> asyncio.Lock:
        """Held while this job's pending undo runs or is abandoned."""
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
                _log.info("job %d: the clean-up is retried: %s", job.id, err)
            if not job.pending:
                del self._jobs[job.id]
                for known in (self._reasons, self._next, self._one_at_a_time):
                    known.pop(job.id, None)
                return
            wait_s = min(max(2 * wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)

    async def _try(self, job: LiveJob) -> None:
        """Run the steps under their locks, like a job, and record the remaining ones."""
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
            _log.exception("job %d: the clean-up failed unexpectedly", job.id)

    async def _record(self, job: LiveJob, done: int, left: list[UndoStep]) -> None:
        if not done:
            return
        async with job.writing:
            stored = job.stored(pending=left)
            await self._journal.commit([job.row(stored)])
            job.apply(stored)
        text = f"{done} undo steps of this job are done now; {len(left)} remain"
        self._feedback.say(job, len(job.ops) - 1, f" - INFO: {text}")
        _log.info("job %d: %s", job.id, text)


def ident_of(step: UndoStep) -> str:
    """Return the step's identifier, equal at every master: its kind, and a checksum of its arguments."""
    return f"{step.procedure}-{crc32(wire.encode(step.arguments)):08x}"


def _named(job: LiveJob, ident: str) -> UndoStep:
    for step in job.pending:
        if ident_of(step) == ident:
            return step
    known = ", ".join(ident_of(one) for one in job.pending) or "none"
    raise PrereqError(
        f"job {job.id} has no step {ident!r:.80} to undo; it has: {known}", ErrorCode.UNKNOWN_ENTITY
    )
