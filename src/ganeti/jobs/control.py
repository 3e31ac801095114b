"""Cancelling jobs and changing their priorities."""

from collections.abc import Callable

import msgspec

from ganeti.jobs.journal import Journal
from ganeti.jobs.record import LiveJob
from ganeti.jobs.runner import CANCELED, Runner
from ganeti.jobs.scheduler import Scheduler
from ganeti.jobs.states import Event
from ganeti.locking.manager import LockManager
from ganeti.model.names import JobStatus

Answer = tuple[bool, str]

_CANNOT_STOP = (
    "job {0} runs its last operation, which a cancel cannot stop; wait for its end, or end it "
    "and undo its changes: gnt-job cancel --kill --yes-do-it {0}"
)


class Control:
    """The administrator's actions on a job that has not ended."""

    def __init__(
        self, journal: Journal, scheduler: Scheduler, runner: Runner, locks: LockManager
    ) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._runner = runner
        self._locks = locks

    async def cancel(
        self,
        job: LiveJob,
        enqueue: Callable[[LiveJob], None],
        ended: Callable[[LiveJob], None],
        *,
        kill: bool,
    ) -> Answer:
        """Prevent all further work of a job (G9).

        A positive answer is durable. `kill` also ends running work.

        Without `kill` the answer is negative if the job could still succeed. After Refused the job
        is unchanged: `enqueue` returns it to the queue. `ended` is called for a job that ends by
        this.
        """
        async with job.cancelling:  # otherwise a refused cancel would revoke another answer
            if not (job.cancel_requested or job.status.is_final):
                if not (kill or self._runner.can_stop(job)):
                    return False, _CANNOT_STOP.format(job.id)
                await self._cancel(job, enqueue, ended)
        if job.status.is_final:
            return _answer_of_ended(job)
        if job.status in (JobStatus.WAITING, JobStatus.RUNNING):
            job.tell(Event.CANCEL)
        self._runner.interrupt(job)
        if not kill:
            return True, f"job {job.id} will be canceled"
        self._runner.kill(job)
        return True, f"job {job.id} is being ended, and its changes are undone"

    async def _cancel(
        self, job: LiveJob, enqueue: Callable[[LiveJob], None], ended: Callable[[LiveJob], None]
    ) -> None:
        job.cancel_requested = True  # at once: nothing may start during this write
        was_queued = self._scheduler.remove(job.id)
        try:
            if was_queued:
                await self._runner.end_once(job, CANCELED)
            else:
                await self._request(job)
        except BaseException:
            job.cancel_requested = False
            if was_queued:
                enqueue(job)
            raise
        if was_queued:
            ended(job)

    async def change_priority(self, job: LiveJob, priority: int) -> Answer:
        """Give another priority to all opcodes that have not begun; durable."""
        async with job.writing:
            if job.status.is_final:
                return False, f"job {job.id} has already ended ({job.status})"
            has_begun = job.phase is JobStatus.RUNNING
            first = job.index + has_begun
            ops = list(job.ops)
            for index in range(first, len(ops)):
                op = msgspec.structs.replace(ops[index].op, priority=priority)
                ops[index] = msgspec.structs.replace(ops[index], op=op)
            stored = job.stored(ops)
            await self._journal.commit([job.row(stored)])
            job.apply(stored)
            for index, secret_op in job.secrets.items():
                if index >= first:
                    job.secrets[index] = msgspec.structs.replace(secret_op, priority=priority)
        self._scheduler.set_priority(job.id, job.priority)
        if not has_begun:
            self._locks.set_priority(job.id, priority)
        job.watch.changed()
        return True, f"the opcodes of job {job.id} that have not begun have priority {priority} now"

    async def _request(self, job: LiveJob) -> None:
        async with job.writing:
            if not job.status.is_final:
                await self._journal.commit([job.row(job.stored())])


def _answer_of_ended(job: LiveJob) -> Answer:
    if job.status is JobStatus.CANCELED:
        return True, f"job {job.id} was canceled"
    return False, f"job {job.id} has already ended ({job.status})"
