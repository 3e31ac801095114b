"""Runs jobs: each in a task of its own, its opcodes one after the other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ganeti.base.errors import (
    ExecError,
    GanetiError,
    JobCanceled,
    NotMaster,
    Refused,
    StoreError,
)
from ganeti.config.changes import CHANGED_BY, UNTIL_SUBMITTED
from ganeti.jobs.background import Background
from ganeti.jobs.executor import Change, Outcome
from ganeti.jobs.record import LiveJob, NeverSubmitted
from ganeti.jobs.run import Dependencies, Run
from ganeti.jobs.states import Event
from ganeti.jobs.submission import Prepared, Submission
from ganeti.jobs.view import shown
from ganeti.model import wire
from ganeti.model.job import OpState, StoredJob, UndoStep
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.protocols.luxi import error_to_wire
from ganeti.store.interface import Operation

RETRY_S = 1.0
"""Delay before the next attempt to write the end of a job (full disk, G16)."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """The end of an opcode, and the data to write with it."""

    status: JobStatus
    result: Any
    change: Change | None = None
    jobs: Sequence[Sequence[OpCode]] = ()


def failure(err: BaseException) -> Ending:
    """Return an opcode's error as clients expect it: name, arguments."""
    name, arguments = error_to_wire(err if isinstance(err, GanetiError) else _internal(err))
    notes = getattr(err, "__notes__", [])
    if notes and arguments:
        arguments[0] = "; ".join([str(arguments[0]), *notes])
    return Ending(JobStatus.ERROR, [name, arguments])


def _internal(err: BaseException) -> ExecError:
    return ExecError(f"internal error ({type(err).__name__}); the master's log has the details")


CANCELED = Ending(JobStatus.CANCELED, "the job was cancelled")
NOT_RUN = ["OpExecError", ["an opcode before this one failed"]]


class Runner:
    """The running jobs."""

    def __init__(
        self, dependencies: Dependencies, submission: Submission, on_end: Callable[[LiveJob], None]
    ) -> None:
        self._dependencies = dependencies
        self._submission = submission
        self._on_end = on_end
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._runs: dict[int, Run] = {}
        self._kills = Background()
        self._is_stopping = False

    def start(self, job: LiveJob) -> None:
        """Start a job in a task of its own."""
        task = asyncio.create_task(self._run(job), name=f"job-{job.id}")
        self._tasks[job.id] = task

    def interrupt(self, job: LiveJob) -> None:
        """Handle a cancel: a wait for locks ends now."""
        run = self._runs.get(job.id)
        if run is not None:
            run.interrupt()

    def can_stop(self, job: LiveJob) -> bool:
        """Return whether a cancel certainly prevents the job's success.

        It does if another opcode is still to begin, or the current one checks for a cancel.
        """
        run = self._runs.get(job.id)
        has_more = job.index + 1 < len(job.ops)
        has_begun = run is not None and job.phase is JobStatus.RUNNING and not run.is_interruptible
        return has_more or not has_begun

    def kill(self, job: LiveJob) -> None:
        """End the calls that a job's opcode waits for; without any, its next call fails."""
        job.is_killed = True
        run = self._runs.get(job.id)
        for number, end in enumerate(run.kill_ends if run is not None else ()):
            self._kills.spawn(end(), f"kill-{job.id}-{number}")

    def stop(self) -> None:
        """Stop all opcodes as after a crash; wait only for results that are being written."""
        self._is_stopping = True
        for job_id, task in self._tasks.items():
            run = self._runs.get(job_id)
            if run is None or not run.is_ending:
                task.cancel()
            if run is not None:
                run.is_stopped = True

    async def abandon(self, job: LiveJob) -> None:
        """Stop a job that was never submitted, and wait until it has stopped."""
        task = self._tasks.get(job.id)
        if task is None:
            return
        run = self._runs.get(job.id)
        if run is not None:
            run.is_stopped = True
        task.cancel()
        await asyncio.wait((task,))
        self._tasks.pop(job.id, None)  # a task that had not begun has not removed itself

    async def close(self) -> None:
        """Call `stop`, and wait until all opcodes have stopped."""
        self.stop()
        await self._kills.close()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def end(
        self, job: LiveJob, ending: Ending, *, pending: Sequence[UndoStep] | None = None
    ) -> None:
        """Write the end of the current opcode, repeatedly if necessary, then publish it (T3).

        `pending` are the pending undo steps; by default the earlier ones.
        """
        try:
            prepared: list[Prepared] = []
            if ending.jobs:
                ending, prepared = await self._prepare(job, ending)
            try:
                await self._retry_until_written(
                    job, lambda: self._commit_end(job, ending, prepared, pending)
                )
            except (NotMaster, StoreError):
                raise
            except Exception as err:  # the last change of the configuration is not possible
                if ending.change is None:
                    raise
                _log.info("job %d: its last change is not possible", job.id, exc_info=err)
                impossible = failure(err)
                await self._retry_until_written(
                    job, lambda: self._commit_end(job, impossible, [], pending)
                )
        except Refused:
            raise
        except (NotMaster, StoreError) as err:
            self._dependencies.journal.end(err)
            raise

    async def end_once(self, job: LiveJob, ending: Ending) -> None:
        """Like `end` for a job that does not run; raises Refused if it cannot be written now."""
        await self._commit_end(job, ending, [], None)
        job.secrets.clear()

    async def _prepare(self, job: LiveJob, ending: Ending) -> tuple[Ending, list[Prepared]]:
        """Make the jobs that an opcode submits.

        Jobs that do not fit into its transaction are written earlier.
        """
        submission = self._submission
        await job.known()
        try:
            prepared = await self._retry_until_written(
                job, lambda: submission.prepare_all(ending.jobs, submitter=job.as_submitter)
            )
            ids = [[True, one.job.id] for one in prepared]
            if not submission.fit_together(prepared):
                await self._retry_until_written(job, lambda: submission.commit_all(prepared))
                prepared = []
        except (NotMaster, StoreError):
            raise
        except GanetiError as err:
            return failure(err), []
        return Ending(ending.status, _with_jobs(ending.result, ids), ending.change), prepared

    async def _retry_until_written(self, job: LiveJob, act: Callable[[], Awaitable[T]]) -> T:
        """Repeat a write that a full disk refuses until it succeeds."""
        while True:
            try:
                return await act()
            except Refused as err:
                job.check_first_write()
                if self._is_stopping:
                    raise
                _log.warning("job %d: its state cannot be written now: %s", job.id, err)
            await asyncio.sleep(RETRY_S)

    async def _run(self, job: LiveJob) -> None:
        CHANGED_BY.set(job.id)
        UNTIL_SUBMITTED.set(job.known)
        try:
            while not job.status.is_final:
                if job.cancel_requested:
                    await self.end(job, CANCELED)
                else:
                    await self._run_opcode(job)
                self._dependencies.locks.release(job.id)
        except NeverSubmitted:
            _log.info("job %d was not submitted: what it has begun ends", job.id)
        except (NotMaster, StoreError) as err:
            _log.warning("job %d continues under the next master: %s", job.id, err)
        except Exception:  # noqa: BLE001 - whatever it is, a queue in doubt must stop
            _log.exception("job %d: the queue failed", job.id)
            self._dependencies.journal.end(
                ExecError(f"the job queue failed while it ran job {job.id}")
            )
        finally:
            self._dependencies.locks.release(job.id)
            self._dependencies.config.reservations.release(job.id)
            self._runs.pop(job.id, None)
            del self._tasks[job.id]
            if job.status.is_final:
                job.secrets.clear()
                self._on_end(job)

    async def _run_opcode(self, job: LiveJob) -> None:
        now = job.now(self._dependencies.clock.time())
        job.start = job.start or now
        job.op_start, job.op_exec, job.phase = now, None, JobStatus.WAITING
        job.tell(Event.START)
        run = self._runs[job.id] = Run(self._dependencies, job)
        if self._dependencies.journal.degraded and run.index == 0:
            run.log("degraded: only the master holds the cluster's state")
        ending = await self._outcome(job, run)
        run.is_ending = True
        await self.end(job, ending, pending=run.pending)

    async def _outcome(self, job: LiveJob, run: Run) -> Ending:
        try:
            outcome: Outcome = await self._dependencies.executor.run(run)
            run.go()
            result = wire.plain(outcome.result)
            return Ending(JobStatus.SUCCESS, result, outcome.change, outcome.jobs)
        except JobCanceled as err:
            return CANCELED if job.cancel_requested else failure(err)
        except GanetiError as err:
            if self._is_stopping or self._dependencies.journal.ended is not None:
                raise NotMaster(f"the opcode could not end: {err.message}") from err
            return failure(err)
        except Exception as err:  # noqa: BLE001 - a faulty unit fails its job, not the master
            _log.exception("job %d: opcode %d failed unexpectedly", job.id, run.index)
            return failure(err)

    async def _commit_end(
        self,
        job: LiveJob,
        ending: Ending,
        prepared: Sequence[Prepared],
        pending: Sequence[UndoStep] | None,
    ) -> None:
        async with job.writing:
            now = job.now(self._dependencies.clock.time())
            ops = ended_ops(job, ending, now, cancel=job.cancel_requested)
            is_final = all(state.status.is_final for state in ops)
            stored = job.stored(ops, end=now if is_final else None, undo=(), pending=pending)
            rows: list[Operation] = [self._row(job, stored)]
            rows += [row for one in prepared for row in one.rows]
            if self._dependencies.feedback.has_lines(job.id):
                await job.known()  # lines that are refused would let the next write of others fail
            job.check_first_write()
            self._dependencies.feedback.flush_job(job.id)
            if ending.change is None:
                await self._dependencies.journal.commit(rows)
            else:
                await self._dependencies.config.change(ending.change, also=rows)
            await job.known()
            job.apply(stored)
            _publish(job, ending)
        self._submission.register([one.job for one in prepared])

    def _row(self, job: LiveJob, stored: StoredJob) -> Operation:
        before = len(job.unstored)
        row = job.row(stored)
        if len(job.unstored) > before:
            text = "the result is too large to be stored: it is lost when the master restarts"
            self._dependencies.feedback.say(job, job.index, text)
        return row


def ended_ops(job: LiveJob, ending: Ending, now: float, *, cancel: bool) -> list[OpState]:
    """Return the opcodes of a job when the current one has ended; a failure or a cancel ends all others.

    Secrets of ended opcodes are dropped, because they are not needed again (G23).
    """
    ops = list(job.ops)
    index = job.index
    if index == len(ops):
        return ops
    ops[index] = msgspec.structs.replace(
        ops[index],
        status=ending.status,
        result=ending.result,
        start=job.op_start,
        exec=job.op_exec,
        end=now,
    )
    rest: tuple[JobStatus, Any] | None = None
    if ending.status is JobStatus.ERROR:
        rest = JobStatus.ERROR, NOT_RUN
    elif ending.status is JobStatus.CANCELED or cancel:
        rest = JobStatus.CANCELED, CANCELED.result
    if rest is not None:
        for later in range(index + 1, len(ops)):
            status, result = rest
            ops[later] = msgspec.structs.replace(ops[later], status=status, result=result, end=now)
    return [shown(state) if state.status.is_final else state for state in ops]


def _publish(job: LiveJob, ending: Ending) -> None:
    """Update the job's state from the written row."""
    job.phase = job.op_start = job.op_exec = None
    last = job.ops[-1].status if job.ops else ending.status
    if last is JobStatus.CANCELED:
        if job.status in (JobStatus.WAITING, JobStatus.RUNNING):
            job.tell(Event.CANCEL)
        job.tell(Event.STOP)
    elif last is JobStatus.ERROR:
        job.tell(Event.FAIL)
    elif last is JobStatus.SUCCESS:
        job.tell(Event.SUCCEED)
    else:
        job.watch.changed()


def _with_jobs(result: Any, ids: list[list[Any]]) -> dict[str, Any]:
    """Return the result of an opcode that submitted jobs."""
    if isinstance(result, dict):
        return {**result, "jobs": ids}
    return {"jobs": ids} if result is None else {"jobs": ids, "result": result}
