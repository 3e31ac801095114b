"""Decides what happens to the jobs of a dead master (G7, F11)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

from ganeti.base.errors import ExecError, GanetiError, InputError
from ganeti.base.yield_every import YieldEvery
from ganeti.jobs.executor import Executor
from ganeti.jobs.record import LiveJob, has_lost_secrets
from ganeti.jobs.runner import CANCELED, Runner, failure
from ganeti.jobs.submission import Submission
from ganeti.locking.manager import LockManager
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus

_log = logging.getLogger(__name__)


class Recovery:
    """Sorts the stored jobs, and ends those that cannot continue."""

    def __init__(
        self,
        submission: Submission,
        runner: Runner,
        executor: Executor,
        locks: LockManager,
        on_end: Callable[[LiveJob], None],
    ) -> None:
        self._submission = submission
        self._runner = runner
        self._executor = executor
        self._locks = locks
        self._on_end = on_end

    async def sort(
        self, jobs: Iterable[LiveJob]
    ) -> tuple[list[LiveJob], list[tuple[LiveJob, str]]]:
        """Return the jobs that can be queued again, and those that cannot, with the reason."""
        sound: list[LiveJob] = []
        broken: list[tuple[LiveJob, str]] = []
        pause = YieldEvery()
        for job in jobs:
            await pause()
            if job.status.is_final:
                continue
            reason = await self._fault_of(job)
            if reason is None:
                sound.append(job)
            else:
                broken.append((job, reason))
        return sound, broken

    async def end_all(
        self, broken: Sequence[tuple[LiveJob, str]], on_guarded: Callable[[], None]
    ) -> None:
        """Undo the unfinished work of these jobs and end them; `on_end` is called for each job at its end.

        `on_guarded` is called once every one of these jobs has ended or holds the locks of what it
        undoes: other jobs may run from then on, and none of them waits for a node that hangs.
        """
        left = {job.id for job, _reason in broken}

        def guard(job: LiveJob) -> None:
            if job.id in left:
                left.remove(job.id)
                if not left:
                    on_guarded()

        if not left:
            on_guarded()
        await asyncio.gather(*(self._end(job, reason, guard) for job, reason in broken))

    async def _fault_of(self, job: LiveJob) -> str | None:
        if job.ops[job.index].status is JobStatus.RUNNING:
            return "the master daemon ended while this opcode ran, so its outcome is unknown"
        if job.cancel_requested:
            return "canceled"
        if any(has_lost_secrets(op.op) for op in job.ops if not op.status.is_final):
            return (
                f"job {job.id} was submitted with secret parameters, which are never stored and were"
                " lost when the master restarted; submit it again"
            )
        try:
            await self._submission.find_dependencies(job)
        except InputError as err:
            return f"job {job.id} cannot run: {err.message}"
        return None

    async def _end(self, job: LiveJob, reason: str, guard: Callable[[LiveJob], None]) -> None:
        if job.ops[job.index].status is not JobStatus.RUNNING:
            ending = CANCELED if job.cancel_requested else failure(ExecError(reason))
            await self._runner.end(job, ending, pending=job.pending)
        else:
            async with AsyncExitStack() as stack:
                if job.undo:
                    await self._lock(job, stack, guard)
                text, failed = await self._undo(job)
                ending = failure(ExecError(f"{reason}{text}"))
                await self._runner.end(job, ending, pending=(*job.pending, *failed))
        # At once: the pending undo of an ended job is listed, while other jobs are still being
        # undone.
        if job.status.is_final:
            self._on_end(job)
        guard(job)

    async def _lock(
        self, job: LiveJob, stack: AsyncExitStack, guard: Callable[[LiveJob], None]
    ) -> None:
        """Acquire the locks of what the job undoes; without them other jobs wait for its end."""
        try:
            wanted = self._executor.undo_locks(job.undo)
            await stack.enter_async_context(
                self._locks.holding(job.id, wanted, priority=job.priority)
            )
        except GanetiError as err:
            _log.warning("job %d: its unfinished work is undone without locks: %s", job.id, err)
        else:
            guard(job)

    async def _undo(self, job: LiveJob) -> tuple[str, Sequence[UndoStep]]:
        """Undo the work of the running opcode; return a description, and the failed steps.

        Steps that earlier opcodes left are excluded. Their locks are long free and others may have
        changed the same objects, so `PendingUndo` runs them under locks of its own.
        """
        if not job.undo:
            return "", ()
        try:
            failed = await self._executor.undo(job.id, job.undo)
        except Exception as err:  # noqa: BLE001 - the other jobs must be recovered all the same
            text = err.message if isinstance(err, GanetiError) else repr(err)
            _log.warning("job %d: undoing its unfinished work failed: %s", job.id, text)
            return f"; undoing its unfinished work failed: {text}", job.undo
        if failed:
            text = "; ".join(f"{step.procedure}: {why}" for step, why in reversed(failed))
            return f"; undoing its unfinished work failed: {text}", [step for step, _why in failed]
        return "; its unfinished work was undone", ()
