"""Applies job filters to each job of the queue, and again after every change of the filters."""

from collections.abc import Callable, Mapping

from ganeti.base.yield_every import YieldEvery
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.background import Background
from ganeti.jobs.record import LiveJob, redacted
from ganeti.jobs.rules import MakeRulebook, reason_limits
from ganeti.jobs.scheduler import Scheduler
from ganeti.model.job_filter import FREE, JobFilter, Ruling


class Filtering:
    """The filters of the acknowledged configuration, and the jobs that they hold back."""

    def __init__(
        self,
        config: Config,
        make: MakeRulebook,
        jobs: Mapping[int, LiveJob],
        scheduler: Scheduler,
        reject: Callable[[LiveJob, str], None],
    ) -> None:
        """`reject` gets queued jobs that a filter cancels, and the filter."""
        self._config = config
        self._make = make
        self._jobs = jobs
        self._scheduler = scheduler
        self._reject = reject
        self._filters = config.snapshot.table(JobFilter)
        self._book = make(config.snapshot)
        self._is_ruling = False
        self._is_stale = False
        self._unsubscribe: Callable[[], None] | None = None

    def follow(self, background: Background, on_done: Callable[[], None]) -> None:
        """Check all jobs again whenever filters change, and call `on_done`, until `close`."""

        def changed(snapshot: Snapshot) -> None:
            filters = snapshot.table(JobFilter)
            if filters is self._filters:
                return
            self._filters, self._book = filters, self._make(snapshot)
            self._is_stale = True
            if not self._is_ruling:
                self._is_ruling = True
                background.spawn(self._rule_all(on_done), "job-filters")

        self._unsubscribe = self._config.subscribe(changed)

    def close(self) -> None:
        """Stop following changes; idempotent."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    @property
    def is_ruling(self) -> bool:
        """Return whether filters have changed and not all jobs are checked again: none may start."""
        return self._is_ruling

    def ruling(self, job: LiveJob) -> Ruling:
        """Return what holds a job back; a rejected job is paused until it is cancelled."""
        limits = reason_limits([state.op for state in job.ops])
        if self._book.is_empty:
            return Ruling(limits=limits) if limits else FREE
        said = self._book.ruling(job.id, [redacted(state.op) for state in job.ops])
        return Ruling(
            paused=said.paused or said.rejected,
            rejected=said.rejected,
            limits=(*limits, *said.limits),
        )

    async def _rule_all(self, on_done: Callable[[], None]) -> None:
        pause = YieldEvery()
        try:
            while self._is_stale:
                self._is_stale = False
                for job in list(self._jobs.values()):
                    if not job.status.is_final:
                        self._rule(job)
                    await pause()
        finally:
            self._is_ruling = False
        on_done()

    def _rule(self, job: LiveJob) -> None:
        ruling = self.ruling(job)
        self._scheduler.rule(job.id, ruling)
        if ruling.rejected is not None and self._scheduler.is_queued(job.id):
            self._reject(job, ruling.rejected)
