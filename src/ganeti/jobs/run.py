"""A running opcode: the queue's services for its logical unit."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import CommitUnknown, JobCanceled, NotMaster
from ganeti.config.config import Config
from ganeti.jobs.executor import Change, Executor
from ganeti.jobs.feedback import Feedback
from ganeti.jobs.journal import Journal
from ganeti.jobs.record import LiveJob
from ganeti.jobs.states import Event
from ganeti.locking.manager import LockManager, LockWait
from ganeti.locking.requests import LockRequest
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.progress import JobProgress
from ganeti.model.scope import Scope
from ganeti.store.interface import Operation

LONG_WAIT_S = 2.0
"""Time after which a job logs what it waits for."""


@dataclass
class Dependencies:
    """The services that running an opcode needs."""

    journal: Journal
    feedback: Feedback
    locks: LockManager
    config: Config
    executor: Executor
    clock: Clock


class Run:
    """A running opcode of a job; implements `OpRun`."""

    def __init__(self, dependencies: Dependencies, job: LiveJob) -> None:
        self._dependencies = dependencies
        self._job = job
        self.index = job.index
        self.is_stopped = False
        """True if the daemon stops: the opcode must not record or undo anything any more."""
        self.is_ending = False
        """True if the opcode has ended; only its result is still to be written."""
        self.pending = job.pending
        """Failed undo steps of this opcode and of earlier ones."""
        self.has_changed = False
        self.kill_ends: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Functions that end the running calls."""
        self.is_interruptible = False
        """True if the opcode is in a block that checks for a cancel."""
        self._is_durable = False
        self._waiter: asyncio.Task[object] | None = None
        self._last_wait: LockWait | None = None

    @property
    def job_id(self) -> int:
        return self._job.id

    @property
    def source(self) -> str:
        return self._job.source

    @property
    def scope(self) -> Scope | None:
        return self._job.scope

    @property
    def op(self) -> OpCode:
        return self._job.secrets.get(self.index) or self._job.ops[self.index].op

    async def acquire(self, requests: Sequence[LockRequest]) -> None:
        """Replace the held locks by other ones, waiting for them.

        JobCanceled if the job is cancelled meanwhile.
        """
        self.check_canceled()
        locks, job = self._dependencies.locks, self._job
        locks.release(job.id)
        wanted = [request for request in requests if not request.is_empty]
        if wanted:
            await self._wait_for(wanted)
            self.check_canceled()
        self.go()

    def log(self, message: Any, kind: str = "message") -> None:
        self._dependencies.feedback.say(self._job, self.index, message, kind)

    def progress(self, found: JobProgress | None) -> None:
        self._job.progress = found
        if found is not None:
            self._job.watch.moved()

    async def started(self) -> None:
        if self._is_durable or not self.op.host_changing:
            return
        await self._write(())

    async def record_undo(self, steps: Sequence[UndoStep], change: Change | None = None) -> None:
        await self._write(steps, change)

    async def leave_undone(self, steps: Sequence[UndoStep], undo: Sequence[UndoStep] = ()) -> None:
        self.pending = (*self.pending, *steps)
        await self._write(undo)

    def check_canceled(self) -> None:
        if self._job.cancel_requested:
            raise JobCanceled(f"job {self._job.id} was cancelled")

    def takes_kill(self) -> bool:
        was_killed, self._job.is_killed = self._job.is_killed, False
        return was_killed

    @contextmanager
    def killable(self, end: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
        self.kill_ends.append(end)
        try:
            yield
        finally:
            self.kill_ends.remove(end)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        self.check_canceled()
        self.is_interruptible = True
        try:
            yield
        finally:
            self.is_interruptible = False
        self.check_canceled()

    def go(self) -> None:
        """Continue: the opcode has its locks, and runs."""
        job = self._job
        if job.phase is JobStatus.WAITING:
            job.phase = JobStatus.RUNNING
            job.op_exec = job.now(self._dependencies.clock.time())
            job.tell(Event.GO)

    def interrupt(self) -> None:
        """Handle a cancel: stop waiting for locks."""
        if self._waiter is not None:
            self._waiter.cancel()

    async def _wait_for(self, wanted: list[LockRequest]) -> None:
        job = self._job
        timer: asyncio.TimerHandle | None = None

        def waits(report: LockWait) -> None:
            nonlocal timer
            self._last_wait = report
            if timer is None:
                timer = asyncio.get_running_loop().call_later(LONG_WAIT_S, self._say_wait)

        task = self._waiter = asyncio.current_task()
        try:
            await self._dependencies.locks.acquire(
                job.id, wanted, priority=self.op.priority, on_wait=waits
            )
        except asyncio.CancelledError:
            if self.is_stopped or not job.cancel_requested or task is None:
                raise
            task.uncancel()
            self.check_canceled()
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _say_wait(self) -> None:
        report = self._dependencies.locks.waits_of(self._job.id) or self._last_wait
        self.log(str(report))

    async def _write(self, undo: Sequence[UndoStep], change: Change | None = None) -> None:
        """T2: write durably that the opcode runs, and its undo steps."""
        job, journal = self._job, self._dependencies.journal
        async with job.writing:
            if self.is_stopped:
                raise NotMaster("the master daemon stops; the next master continues the job")
            self.go()
            ops = list(job.ops)
            ops[self.index] = msgspec.structs.replace(
                ops[self.index], status=JobStatus.RUNNING, start=job.op_start, exec=job.op_exec
            )
            stored = job.stored(ops, epoch=journal.epoch, undo=undo, pending=self.pending)
            job.check_first_write()
            if change is None:
                await journal.commit([job.row(stored)])
            else:
                await self._change(change, job.row(stored))
            await job.known()
            job.apply(stored)
            self._is_durable = True

    async def _change(self, change: Change, row: Operation) -> None:
        try:
            await self._dependencies.config.change(change, also=[row])
            self.has_changed = True
        except (NotMaster, CommitUnknown) as err:
            self._dependencies.journal.end(err)
            raise
