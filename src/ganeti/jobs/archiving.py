"""Moves ended jobs out of the state into the archive (F10, F14)."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ganeti.base.clock import Clock
from ganeti.jobs.feedback import Feedback
from ganeti.jobs.journal import Journal
from ganeti.jobs.record import LiveJob
from ganeti.jobs.view import JobView, archive_content, view_of_archived
from ganeti.model.names import JobStatus
from ganeti.store.interface import MAX_OPERATIONS

BATCH_JOBS = 50


class Archive(Protocol):
    """The archive of ended jobs; the interface to `store.archive`."""

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None: ...
    async def get(self, job_id: int) -> bytes | None: ...
    async def ids(self, *, limit: int, below: int | None) -> list[int]: ...
    async def greatest_id(self) -> int: ...


class Archiver:
    """Archives jobs, and finds archived ones."""

    def __init__(
        self,
        archive: Archive,
        journal: Journal,
        feedback: Feedback,
        clock: Clock,
        jobs: dict[int, LiveJob],
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._feedback = feedback
        self._clock = clock
        self._jobs = jobs
        self._archiving = asyncio.Lock()

    async def archive(self, jobs: Sequence[LiveJob]) -> list[int]:
        """Move the ended jobs without pending undo to the archive; return their ids."""
        async with self._archiving:
            ended = [job for job in jobs if _is_over(job) and job.id in self._jobs]
            if not ended:
                return []
            missing = [job for job in ended if await self._archive.get(job.id) is None]
            # Also without new jobs: an earlier delivery of archived jobs to other candidates may
            # have been refused.
            await self._archive.append([(job.id, archive_content(job)) for job in missing])
            await self._delete(ended)
            return [job.id for job in ended]

    async def auto(self, age_s: float, timeout_s: float) -> tuple[int, int]:
        """Move jobs that ended more than `age_s` ago, for about `timeout_s`; a negative age means all.

        Return the number of moved jobs, and of jobs not looked at.
        """
        deadline = self._clock.monotonic() + timeout_s
        latest = self._clock.time() - age_s
        left = [job for _, job in sorted(self._jobs.items())]
        moved = 0
        while left and self._clock.monotonic() < deadline:
            batch, left = left[:BATCH_JOBS], left[BATCH_JOBS:]
            old = [job for job in batch if age_s < 0 or (job.end or latest) < latest]
            moved += len(await self.archive(old))
            await asyncio.sleep(0)
        return moved, len(left)

    async def view(self, job_id: int) -> JobView | None:
        """Return a job from the archive; None if it is not there."""
        content = await self._archive.get(job_id)
        return None if content is None else view_of_archived(content)

    async def ids(self, below: int | None, limit: int) -> list[int]:
        """Return the greatest ids of archived jobs below `below`, descending."""
        return await self._archive.ids(limit=limit, below=below)

    async def status(self, job_id: int) -> JobStatus | None:
        """Return the final state of an archived job."""
        view = await self.view(job_id)
        return None if view is None else view.status

    async def greatest_id(self) -> int:
        return await self._archive.greatest_id()

    async def _delete(self, ended: Sequence[LiveJob]) -> None:
        """Delete the rows of archived jobs; the rows of log lines come last.

        After a crash in between, `load_queue` finds log lines without a job and deletes them.
        """
        first, rest = [], []
        for job in ended:
            self._feedback.drop(job.id)
            rows = job.rows_to_delete()
            most = 1 if job.key is None else 2
            first += rows[:most]
            rest += rows[most:]
        for start in range(0, len(first), MAX_OPERATIONS):
            await self._journal.commit(first[start : start + MAX_OPERATIONS])
        for job in ended:
            job.watch.close()
            del self._jobs[job.id]
        for start in range(0, len(rest), MAX_OPERATIONS):
            await self._journal.commit(rest[start : start + MAX_OPERATIONS])


def _is_over(job: LiveJob) -> bool:
    """Return whether the job is finished and has no pending undo."""
    return job.status.is_final and not job.pending
