"""The job queue and its operations. `docs/design/jobs.md` has the states and the rules."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from ganeti.base.clock import Clock
from ganeti.base.errors import (
    ExecError,
    GanetiError,
    InputError,
    JobLost,
    JobQueueDrained,
    NotMaster,
    Refused,
)
from ganeti.base.identifiers import plain_name
from ganeti.base.staggered_waker import StaggeredWaker
from ganeti.base.yield_every import YieldEvery
from ganeti.config.config import Config
from ganeti.jobs.archiving import Archive, Archiver
from ganeti.jobs.background import Background
from ganeti.jobs.control import Control
from ganeti.jobs.executor import Executor
from ganeti.jobs.feedback import Feedback
from ganeti.jobs.filtering import Filtering
from ganeti.jobs.full_disk import FullDisk, Room
from ganeti.jobs.journal import Journal
from ganeti.jobs.keys import Keys
from ganeti.jobs.loading import load_queue
from ganeti.jobs.pending_undo import PendingStep, PendingUndo
from ganeti.jobs.record import (
    DRAINED_KEY,
    MOVING_KEY,
    QUEUE_KIND,
    SESSIONS_KEY,
    WATCHER_KEY,
    LiveJob,
)
from ganeti.jobs.recovery import Recovery
from ganeti.jobs.rules import MakeRulebook, no_rules
from ganeti.jobs.run import Dependencies
from ganeti.jobs.runner import Ending, Runner, failure
from ganeti.jobs.scheduler import Scheduler
from ganeti.jobs.submission import EarlyStarts, RaiseCeiling, Submission
from ganeti.jobs.view import JobView, view_of
from ganeti.locking.manager import LockManager
from ganeti.model import wire
from ganeti.model.job import LOCAL, LogEntry, Submitter
from ganeti.model.job_filter import FREE
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import PRIORITY_HIGHEST, PRIORITY_LOWEST
from ganeti.store.backend import StateBackend
from ganeti.store.interface import MAX_OPERATIONS, Delete, Lease, Operation, Put
from ganeti.store.job_ids import JobIdAllocator

ENDED_WAIT_S = 600.0
_NO_LOG = 2**40
"""No line of a job's log has so great a number: new lines end no wait."""
STARTS_AT_ONCE = 16
"""Number of jobs that are started before the loop gets a turn."""

REJECT_AGAIN_S = 5.0

_log = logging.getLogger(__name__)


class JobQueue:
    """All jobs that are not archived, from their submission to their end."""

    def __init__(  # noqa: PLR0913 - the ports of the queue
        self,
        store: StateBackend,
        lease: Lease,
        config: Config,
        locks: LockManager,
        executor: Executor,
        *,
        clock: Clock,
        archive: Archive,
        raise_ceiling: RaiseCeiling,
        room: Room | None = None,
        make_rulebook: MakeRulebook = no_rules,
    ) -> None:
        self._store = store
        self._config = config
        self._locks = locks
        self._raise_ceiling = raise_ceiling
        self._journal = Journal(store, lease, self._lose)
        self._jobs: dict[int, LiveJob] = {}
        self._scheduler = Scheduler()
        self._feedback = Feedback(self._journal, clock)
        self._archiver = Archiver(archive, self._journal, self._feedback, clock, self._jobs)
        self._submission = Submission(
            self._journal,
            clock,
            self._jobs,
            self._register,
            self._archiver.status,
            early=EarlyStarts(self._start_at_once, self._abandon),
        )
        self._keys = Keys(self._submission)
        dependencies = Dependencies(self._journal, self._feedback, locks, config, executor, clock)
        self._runner = Runner(dependencies, self._submission, self._ended)
        self._control = Control(self._journal, self._scheduler, self._runner, locks)
        self._pending_undo = PendingUndo(self._journal, self._feedback, locks, executor)
        self._recovery = Recovery(self._submission, self._runner, executor, locks, self._ended)
        self._background = Background()
        self._full_disk = FullDisk(room, self._background)
        self._filtering = Filtering(
            config, make_rulebook, self._jobs, self._scheduler, self._reject_soon
        )
        self._filtering.follow(self._background, self._pump_soon)
        self._answering = StaggeredWaker()
        """Lets other work run between the answers to many clients that wait for the same job."""
        self._is_open = False
        self._pump_is_due = False
        self._rejecting: set[int] = set()
        self._drained: set[str] = set()
        """The keys of the reasons why the queue accepts no jobs."""
        self._memories: dict[str, str] = {}
        self.on_lost: Callable[[GanetiError], None] | None = None
        """Called once if the store can no longer be written, or a write has an unknown outcome (R13)."""
        self.on_change: Callable[[LiveJob], None] | None = None
        """Called with each new job, and whenever the state of a job has changed."""

    # Start and end

    async def load(self) -> None:
        """Read the queue; jobs run as soon as recovery holds the locks of a dead master's unfinished work."""
        await self._full_disk.open()
        loaded = await load_queue(self._store)
        self._jobs.update(loaded.jobs)
        self._observe(loaded.jobs.values())
        self._drained = loaded.drained
        self._memories = loaded.memories
        self._keys.remember(loaded.jobs.values())
        self._delete_orphans(loaded.orphans)
        members = await self._store.members()
        greatest = max(self._jobs, default=0)
        ceiling = max(members.job_id_ceiling, greatest, await self._archiver.greatest_id())
        self._submission.open(JobIdAllocator(ceiling), self._raise_ceiling)
        sound, broken = await self._recovery.sort(loaded.jobs.values())
        pause = YieldEvery()
        for job in loaded.jobs.values():
            await pause()
            if job.status.is_final:
                self._pending_undo.add(job)
        for job in sound:
            await pause()
            self._enqueue(job)
        self._background.spawn(self._recover(broken), "job-recovery")

    async def close(self) -> None:
        """Stop all jobs as after a crash, wait for running writes, and wake the waiting callers."""
        self._is_open = False
        self._filtering.close()
        await self._runner.close()
        await self._pending_undo.close()
        await self._background.close()
        self._feedback.close()
        self._journal.close(NotMaster("the master daemon stops"))
        for job in self._jobs.values():
            job.watch.close()

    def unended_ops(self, source: str | None = None) -> Iterator[OpCode]:
        """Return the opcodes of the jobs that have not ended, of one source or of all."""
        jobs = (self._jobs[one] for one in self._scheduler.unended if one in self._jobs)
        return (state.op for job in jobs if source in (None, job.source) for state in job.ops)

    def of_kind(self, *kinds: type[OpCode]) -> Iterator[JobView]:
        """Return the jobs whose first opcode is of these kinds."""
        return (self._view(job) for job in self._jobs.values() if isinstance(job.ops[0].op, kinds))

    # Submitting

    async def submit(
        self,
        ops: Sequence[OpCode],
        *,
        key: str | None = None,
        even_if_drained: bool = False,
        submitter: Submitter = LOCAL,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> int:
        """Return a new job's id, once the job is durable (T1); the same `key` gives the same job (F16).

        `check` is awaited before a new job is made, and may refuse it.
        """
        known = None if key is None else self._keys.get(plain_name(key, "key"))
        if check is not None and known is None:
            await check()
        if key is None:
            (answer,) = await self.submit_many(
                [ops], even_if_drained=even_if_drained, submitter=submitter
            )
            if isinstance(answer, GanetiError):
                raise answer
            return answer
        known = self._keys.get(key)
        if known is not None:
            return await asyncio.shield(known)
        self._check_drained(even_if_drained=even_if_drained)
        return await self._background.shielded(
            self._keys.submit(key, ops, submitter=submitter), "submit"
        )

    async def submit_many(
        self,
        batch: Sequence[Sequence[OpCode]],
        *,
        key: str | None = None,
        even_if_drained: bool = False,
        submitter: Submitter = LOCAL,
    ) -> list[int | GanetiError]:
        """Return for each list of opcodes the id of its job, once that is durable, or the error.

        The same `key` gives the same jobs, and completes an interrupted submission (F16). If the
        caller is cancelled, the jobs are submitted nevertheless.
        """
        if key is None:
            self._check_drained(even_if_drained=even_if_drained)
            fresh = self._submission.submit_many(batch, submitter=submitter)
            return await self._background.shielded(fresh, "submit")
        why_not = None
        try:
            self._check_drained(even_if_drained=even_if_drained)
        except JobQueueDrained as err:
            why_not = err
        submission = self._keys.submit_batch(
            plain_name(key, "key"), batch, why_not, submitter=submitter
        )
        return await self._background.shielded(submission, "submit")

    @property
    def is_drained(self) -> bool:
        """Return whether no jobs are accepted."""
        return bool(self._drained)

    async def set_drained(self, drained: bool, *, moving: bool = False) -> None:  # noqa: FBT001 - says what it sets
        """Accept no jobs from now on, or accept them again; durable.

        `moving` is for a move of the state, and does not affect an administrator's drain; without
        it, accepting jobs ends both drains.
        """
        key = MOVING_KEY if moving else DRAINED_KEY
        if drained:
            await self._journal.commit([Put(QUEUE_KIND, key, b"1")])
            self._drained = self._drained | {key}
            return
        ended = {key} if moving else {DRAINED_KEY, MOVING_KEY}
        await self._journal.commit([Delete(QUEUE_KIND, one) for one in sorted(ended)])
        self._drained = self._drained - ended

    @property
    def watcher_memory(self) -> str:
        """Return the watcher's stored data, '' if there is none."""
        return self._memories.get(WATCHER_KEY, "")

    async def keep_watcher_memory(self, text: str) -> None:
        """Store data for the watcher's next run, durably; does nothing if it is unchanged."""
        await self._keep_memory(WATCHER_KEY, text)

    @property
    def sessions(self) -> str:
        """Return the REST server's stored sessions, '' if there are none."""
        return self._memories.get(SESSIONS_KEY, "")

    async def keep_sessions(self, text: str) -> None:
        """Store the REST server's sessions, durably; does nothing if they are unchanged."""
        await self._keep_memory(SESSIONS_KEY, text)

    async def _keep_memory(self, key: str, text: str) -> None:
        if text != self._memories.get(key, ""):
            await self._journal.commit([Put(QUEUE_KIND, key, text.encode())])
            self._memories[key] = text

    # Changing

    async def cancel(self, job_id: int, *, kill: bool = False) -> tuple[bool, str]:
        """Prevent all further work of a job (G9).

        A positive answer is durable. `kill` also ends running work.
        """
        job = self._jobs.get(job_id)
        if job is None:
            return False, f"job {job_id} is not in the queue"
        if job.status.is_final:
            return False, f"job {job_id} has already ended ({job.status})"
        return await self._background.shielded(self._cancel(job, kill=kill), f"cancel-{job_id}")

    async def change_priority(self, job_id: int, priority: int) -> tuple[bool, str]:
        """Give another priority to all opcodes that have not begun; durable."""
        if not PRIORITY_HIGHEST <= priority <= PRIORITY_LOWEST:
            raise InputError(f"must be from {PRIORITY_HIGHEST} to {PRIORITY_LOWEST}", "priority")
        job = self._jobs.get(job_id)
        if job is None:
            return False, f"job {job_id} is not in the queue"
        change = self._control.change_priority(job, priority)
        answer = await self._background.shielded(change, f"priority-{job_id}")
        self._pump_soon()
        return answer

    async def archive(self, job_id: int) -> bool:
        """Move an ended job to the archive; return False if it does not exist or has not ended."""
        job = self._jobs.get(job_id)
        if job is None:
            return False
        archive = self._full_disk.get_through(lambda: self._archiver.archive([job]))
        moved = await self._background.shielded(archive, "archive")
        self._keys.forget_all_but(self._jobs)
        return bool(moved)

    async def auto_archive(self, age_s: float, timeout_s: float) -> tuple[int, int]:
        """Archive jobs that ended `age_s` ago.

        Return the number of archived jobs, and of jobs not looked at.
        """
        archive = self._full_disk.get_through(lambda: self._archiver.auto(age_s, timeout_s))
        moved = await self._background.shielded(archive, "auto-archive")
        self._keys.forget_all_but(self._jobs)
        return moved

    # Reading

    def status(self, job_id: int) -> JobStatus | None:
        """Return the state of a job of the queue; None if it is not there (it may be archived)."""
        job = self._jobs.get(job_id)
        return None if job is None else job.status

    def view(self, job_id: int) -> JobView | None:
        """Return a job of the queue as it is now; None if it is not there (it may be archived)."""
        job = self._jobs.get(job_id)
        return None if job is None else self._view(job)

    def id_of(self, key: str) -> int | None:
        """Return the id of the job of the queue that was submitted with a key; None without one."""
        return self._keys.id_of(key)

    def greatest_id(self) -> int:
        """Return the greatest id that was ever given to a job; 0 without any."""
        return self._submission.greatest_id

    def ids(self) -> list[int]:
        """Return the ids of all jobs of the queue, in order; for thousands, get their views in slices."""
        return sorted(self._jobs)

    async def archived_view(self, job_id: int) -> JobView | None:
        """Return a job from the archive."""
        return await self._archiver.view(job_id)

    async def archived_ids(self, *, below: int | None, limit: int) -> list[int]:
        """Return the greatest ids of archived jobs below `below`, descending."""
        return await self._archiver.ids(below, limit)

    async def wait_for_change(
        self,
        job_id: int,
        info_of: Callable[[JobView], list[Any]],
        previous_info: list[Any] | None,
        previous_log_serial: int | None,
        timeout_s: float,
    ) -> tuple[list[Any], list[LogEntry]] | None:
        """Wait until the job has ended, its `info_of` has changed, or it has a new log line.

        None after the timeout (then the client asks again, S195). JobLost if the job does not
        exist, NotMaster if this daemon can no longer change it.
        """
        serial = previous_log_serial or 0
        job = self._jobs.get(job_id)
        if job is None:
            view = await self.archived_view(job_id)
            if view is None:
                raise JobLost(f"job {job_id} does not exist")
            return wire.plain(info_of(view)), view.log_after(serial)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            view = self._view(job)
            info = wire.plain(info_of(view))
            log = view.log_after(serial, job.watch.visible)
            if log or info != previous_info or view.status.is_final:
                return info, log
            self._journal.check()
            if not await job.watch.wait(deadline):
                return None
            await self._answering.turn()

    async def ended(self, job_id: int) -> JobView | None:
        """Wait until a job has ended, however long, and return it; None if it does not exist. NotMaster."""
        previous: list[Any] | None = None
        while True:
            view = self.view(job_id) or await self.archived_view(job_id)
            if view is None or view.status.is_final:
                return view
            with contextlib.suppress(JobLost):  # it has just been archived
                answer = await self.wait_for_change(
                    job_id, lambda one: [one.status], previous, _NO_LOG, ENDED_WAIT_S
                )
                previous = answer[0] if answer else previous

    @property
    def degraded(self) -> bool:
        """Return whether only the master holds the last transaction (R6)."""
        return self._journal.degraded

    @property
    def undo(self) -> PendingUndo:
        """Return the administrator's view of pending undo steps."""
        return self._pending_undo

    def pending_undo(self) -> list[PendingStep]:
        """Return the retries of pending undo steps."""
        return self._pending_undo.listing()

    def statistics(self) -> dict[str, int]:
        """Return counts for `gnt-debug` and metrics."""
        return {
            "jobs": len(self._jobs),
            "queued": self._scheduler.queued,
            "running": self._scheduler.running,
            "waiters": sum(job.watch.count() for job in self._jobs.values()),
        }

    # Internals

    def _view(self, job: LiveJob) -> JobView:
        waiting_for = None
        if job.status is JobStatus.QUEUED or (job.phase is None and not job.status.is_final):
            waiting_for = self._scheduler.reason(job.id)
        elif not job.status.is_final:
            wait = self._locks.waits_of(job.id)
            waiting_for = None if wait is None else str(wait)
        return view_of(job, waiting_for)

    def _register(self, jobs: Sequence[LiveJob]) -> None:
        """Make durable jobs known."""
        self._observe(jobs)
        for job in jobs:
            self._jobs[job.id] = job
            self._changed(job)
            if job.first_write is None:
                self._enqueue(job)
        self._pump_soon()

    def _start_at_once(self, job: LiveJob) -> bool:
        """Start a job that is being written if nothing holds it back; return whether it has started."""
        limit = self._config.snapshot.cluster.max_running_jobs
        if (
            not self._is_open
            or self._filtering.is_ruling
            or job.depends
            or job.status.is_final
            or self._filtering.ruling(job) != FREE
            or not self._scheduler.start_at_once(job.id, limit)
        ):
            return False
        self._runner.start(job)
        return True

    async def _abandon(self, job: LiveJob) -> None:
        """Stop a job that could not be written."""
        await self._runner.abandon(job)
        self._feedback.drop(job.id)
        self._scheduler.ended(job.id, JobStatus.CANCELED)
        self._pump_soon()

    def _observe(self, jobs: Iterable[LiveJob]) -> None:
        observer = self._changed_by_id
        for job in jobs:
            job.watch.observer = observer

    def _changed_by_id(self, job_id: int) -> None:
        if self.on_change is not None and (job := self._jobs.get(job_id)) is not None:
            self.on_change(job)

    def _changed(self, job: LiveJob) -> None:
        if self.on_change is not None:
            self.on_change(job)

    def _enqueue(self, job: LiveJob) -> None:
        """Put a job into the queue; it fails if its dependencies can never be met."""
        if job.status.is_final:
            return
        needs = {}
        for job_id, dependency in job.depends.items():
            status = dependency.status
            if not status.is_final:
                needs[job_id] = dependency.wanted
            elif status not in dependency.wanted:
                self._end_unsatisfiable(job, job_id, status)
                return
        ruling = self._filtering.ruling(job)
        self._scheduler.add(job.id, job.priority, needs, ruling)
        if ruling.rejected is not None:
            self._reject_soon(job, ruling.rejected)

    def _reject_soon(self, job: LiveJob, why: str) -> None:
        """Cancel a job that a filter rejects and that has not started."""
        if job.id not in self._rejecting:
            self._rejecting.add(job.id)
            self._background.spawn(self._reject(job, why), f"reject-{job.id}")

    async def _reject(self, job: LiveJob, why: str) -> None:
        self._feedback.say(job, job.index, f"rejected by {why}")
        try:
            while self._scheduler.is_queued(job.id) and self._filtering.ruling(job).rejected:
                try:
                    await self._cancel(job)
                except Refused:  # the disk is full: the job stays paused
                    await asyncio.sleep(REJECT_AGAIN_S)
        finally:
            self._rejecting.discard(job.id)

    def _end_unsatisfiable(self, job: LiveJob, dependency: int, status: JobStatus) -> None:
        text = (
            f"job {job.id} cannot run: it depends on job {dependency}, which ended as {status}; "
            "submit it again if it is still needed"
        )
        self._background.spawn(
            self._end_queued(job, failure(ExecError(text))), f"unsatisfiable-{job.id}"
        )

    async def _end_queued(self, job: LiveJob, ending: Ending) -> None:
        """End a job that has not started."""
        await self._runner.end(job, ending)
        job.secrets.clear()
        self._ended(job)

    def _ended(self, job: LiveJob) -> None:
        """Handle a final state: dependent jobs may start, or never can."""
        self._pending_undo.add(job)
        for unsatisfiable in self._scheduler.ended(job.id, job.status):
            self._end_unsatisfiable(
                self._jobs[unsatisfiable.job_id], unsatisfiable.dependency, unsatisfiable.status
            )
        self._pump_soon()

    def _pump_soon(self) -> None:
        if self._is_open and not self._pump_is_due:
            self._pump_is_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Start the jobs that may start, in slices."""
        self._pump_is_due = False
        if not self._is_open or self._filtering.is_ruling:
            return
        limit = self._config.snapshot.cluster.max_running_jobs
        starting = self._scheduler.take(limit, most=STARTS_AT_ONCE)
        for job_id in starting:
            self._runner.start(self._jobs[job_id])
        if len(starting) == STARTS_AT_ONCE:
            self._pump_soon()

    async def _cancel(self, job: LiveJob, *, kill: bool = False) -> tuple[bool, str]:
        try:
            answer = await self._full_disk.get_through(
                lambda: self._control.cancel(job, self._enqueue, self._ended, kill=kill)
            )
        finally:
            self._pump_soon()  # A job whose cancel could not be written is queued again.
        if kill and answer[0] and not job.status.is_final:
            self._feedback.say(
                job, job.index, "an administrator ends this job (gnt-job cancel --kill)"
            )
        return answer

    async def _recover(self, broken: Sequence[tuple[LiveJob, str]]) -> None:
        """End the jobs that cannot continue; their locks keep other jobs from their objects until then."""
        await self._recovery.end_all(broken, self._open)

    def _open(self) -> None:
        if self._journal.ended is not None:
            return
        self._is_open = True
        self._pending_undo.open()
        self._pump_soon()

    def _delete_orphans(self, orphans: Sequence[Operation]) -> None:
        try:
            for start in range(0, len(orphans), MAX_OPERATIONS):
                self._journal.submit(orphans[start : start + MAX_OPERATIONS])
        except Refused as err:
            _log.warning("rows of archived jobs stay until the next start: %s", err)

    def _check_drained(self, *, even_if_drained: bool) -> None:
        self._journal.check()
        self._full_disk.check()
        if self._drained and not even_if_drained:
            raise JobQueueDrained(
                "the job queue is drained and accepts no jobs; run 'gnt-cluster queue undrain' "
                "to accept jobs again"
            )

    def _lose(self, error: GanetiError) -> None:
        """Stop everything, because nothing can be written any more (R13)."""
        self._is_open = False
        self._runner.stop()
        for job in self._jobs.values():
            job.watch.close()
        if self.on_lost is not None:
            self.on_lost(error)
