"""From opcodes to durable jobs: checked, numbered, written (T1), and only then known."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, InputError, JobQueueFull, PrereqError
from ganeti.jobs.journal import Journal
from ganeti.jobs.record import (
    KEY_KIND,
    Dependency,
    LiveJob,
    job_key,
    without_secrets,
)
from ganeti.jobs.scheduler import FINAL_STATES
from ganeti.model.job import OpState, StoredJob
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.store.interface import MAX_OPERATIONS, MAX_TRANSACTION_BYTES, Operation, Put
from ganeti.store.job_ids import JobIdAllocator

LIVE_LIMIT = 50_000
LIVE_WARNING = 20_000
OPCODE_LIMIT = 500
"""Opcodes of one job."""
SUBMITTED_BYTES = 512 * 1024
"""Bytes of a job as it is submitted, encoded."""
SLICE = 200
ROOM_FOR_END = 16
"""Operations of a transaction that are left for an opcode's own change."""

_log = logging.getLogger(__name__)

RaiseCeiling = Callable[[int], Awaitable[None]]
StatusOf = Callable[[int], Awaitable[JobStatus | None]]


@dataclass(slots=True)
class Prepared:
    """A job with its number that is not written yet."""

    job: LiveJob
    rows: list[Operation] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(
            len(row.kind) + len(row.key) + len(row.value) for row in self.rows if isinstance(row, Put)
        )


class Submission:
    """Makes jobs of opcodes."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        jobs: dict[int, LiveJob],
        register: Callable[[Sequence[LiveJob]], None],
        archived_status: StatusOf,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._jobs = jobs
        self._coming = 0
        self._archived_status = archived_status
        self._numbering = asyncio.Lock()
        self._ids: JobIdAllocator | None = None
        self._raise_ceiling: RaiseCeiling | None = None
        self.register = register
        """Makes written jobs known."""

    def open(self, ids: JobIdAllocator, raise_ceiling: RaiseCeiling) -> None:
        """From now on jobs can be numbered."""
        self._ids, self._raise_ceiling = ids, raise_ceiling

    async def submit_many(
        self, batch: Sequence[Sequence[OpCode]], *, key: str | None = None
    ) -> list[int | GanetiError]:
        """One answer for each job: its id, once it is durable, or why there is none."""
        prepared = await self._prepare(batch, key)
        self._coming += sum(isinstance(one, Prepared) for one in prepared)
        try:
            await self._write([one for one in prepared if isinstance(one, Prepared)], prepared)
        finally:
            self._coming -= sum(isinstance(one, Prepared) for one in prepared)
        return [one.job.id if isinstance(one, Prepared) else one for one in prepared]
