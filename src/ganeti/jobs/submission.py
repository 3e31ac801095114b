"""Makes durable jobs of opcodes: checked, numbered, written (T1), and only then known to others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, GanetiError, InputError, JobQueueFull, PrereqError
from ganeti.base.yield_every import YieldEvery
from ganeti.jobs.journal import Journal
from ganeti.jobs.record import (
    KEY_KIND,
    Dependency,
    FirstWrite,
    LiveJob,
    job_key,
    without_secrets,
)
from ganeti.jobs.scheduler import FINAL_STATES
from ganeti.model.job import JOB_BYTES, LOCAL, OpState, StoredJob, Submitter
from ganeti.model.limits import MANY_LIVE_JOBS, MAX_JOB_OPCODES, MAX_LIVE_JOBS
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.store.interface import MAX_OPERATIONS, MAX_TRANSACTION_BYTES, Operation, Put
from ganeti.store.job_ids import JobIdAllocator

SLICE = 50
ROOM_FOR_END = 16
"""Number of operations of a transaction that are reserved for an opcode's own change."""
ROOM_FOR_END_BYTES = 128 * 1024
"""Maximum bytes of new jobs beside the row of the opcode that submits them."""

_log = logging.getLogger(__name__)

RaiseCeiling = Callable[[int], Awaitable[None]]
StatusOf = Callable[[int], Awaitable[JobStatus | None]]


@dataclass(slots=True)
class Prepared:
    """A numbered job that is not written yet."""

    job: LiveJob
    rows: list[Operation] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(
            len(row.kind) + len(row.key) + len(row.value)
            for row in self.rows
            if isinstance(row, Put)
        )


Before: TypeAlias = Prepared | LiveJob | int | GanetiError
"""A job of a submission: new, already accepted (by its key; an id if it is archived), or refused."""


@dataclass(frozen=True, slots=True)
class EarlyStarts:
    """How a job starts while it is being written."""

    start: Callable[[LiveJob], bool]
    """Starts a job if nothing holds it back; returns whether it has started."""
    abandon: Callable[[LiveJob], Awaitable[None]]
    """Stops a job that could not be written."""


class Submission:
    """Makes jobs of opcodes."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        jobs: dict[int, LiveJob],
        register: Callable[[Sequence[LiveJob]], None],
        archived_status: StatusOf,
        *,
        early: EarlyStarts,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._jobs = jobs
        self._coming = 0
        self._archived_status = archived_status
        self._early = early
        self._numbering = asyncio.Lock()
        self._registering = asyncio.Lock()
        self._ids: JobIdAllocator | None = None
        self._raise_ceiling: RaiseCeiling | None = None
        self.register = register
        """Makes written jobs known."""

    def open(self, ids: JobIdAllocator, raise_ceiling: RaiseCeiling) -> None:
        """Allow numbering jobs from now on."""
        self._ids, self._raise_ceiling = ids, raise_ceiling

    @property
    def coming(self) -> int:
        """Return the number of jobs that are being written."""
        return self._coming

    @property
    def greatest_id(self) -> int:
        """Return the greatest used id; 0 without any."""
        return 0 if self._ids is None else self._ids.greatest

    async def submit_many(
        self,
        batch: Sequence[Sequence[OpCode]],
        *,
        keys: Sequence[str] | None = None,
        known: Mapping[int, int] | None = None,
        submitter: Submitter = LOCAL,
    ) -> list[int | GanetiError]:
        """Return one answer for each job: its id, once it is durable, or an error.

        With `keys` each job has one; the jobs at the positions in `known` exist, with these ids.
        """
        live = len(self._jobs) + self._coming
        self._coming += len(batch)
        try:
            prepared = await self._prepare(batch, live, keys=keys, known=known, submitter=submitter)
            groups = _grouped([one for one in prepared if isinstance(one, Prepared)])
            if len(groups) == 1:  # the common case: no task is needed beside the caller's own
                is_alone = self._coming == len(groups[0]) == 1
                refused = [await (self._commit_early if is_alone else self._commit)(groups[0])]
            else:
                refused = await asyncio.gather(*(self._commit(group) for group in groups))
        finally:
            self._coming -= len(batch)
        errors = {
            one.job.id: err
            for group, err in zip(groups, refused, strict=True)
            if err is not None
            for one in group
        }
        return [
            errors.get(one.job.id, one.job.id) if isinstance(one, Prepared) else _id_or_why(one)
            for one in prepared
        ]

    async def prepare_all(
        self, batch: Sequence[Sequence[OpCode]], *, submitter: Submitter
    ) -> list[Prepared]:
        """Return the jobs that an opcode submits, in the name of its own source.

        Raise if one cannot be made.
        """
        prepared = await self._prepare(batch, len(self._jobs) + self._coming, submitter=submitter)
        for one in prepared:
            if isinstance(one, GanetiError):
                raise one
        return [one for one in prepared if isinstance(one, Prepared)]

    async def find_dependencies(self, job: LiveJob) -> None:
        """Return the dependencies of a job from the store; InputError if one no longer exists."""
        for state in job.ops:
            if not state.status.is_final:
                await self._resolve(state.op, (), job.depends)

    def fit_together(self, prepared: Sequence[Prepared]) -> bool:
        """Return whether jobs fit into a transaction with other data."""
        operations = sum(len(one.rows) for one in prepared)
        size = sum(one.size for one in prepared)
        return operations <= MAX_OPERATIONS - ROOM_FOR_END and size <= ROOM_FOR_END_BYTES

    async def commit_all(self, prepared: Sequence[Prepared]) -> None:
        """Write jobs and make them known; raises at the first that cannot be written."""
        for group in _grouped(prepared):
            err = await self._commit(group)
            if err is not None:
                raise err

    async def _commit_early(self, group: Sequence[Prepared]) -> GanetiError | None:
        """T1 of a single job, which starts meanwhile if nothing holds it back."""
        job = group[0].job
        if not self._early.start(job):
            return await self._commit(group)
        try:
            written = self._journal.post(group[0].rows)
        except GanetiError as err:
            await self._early.abandon(job)
            return err
        if written is None:
            await self._early.abandon(job)
            return await self._commit(group)
        first = job.first_write = FirstWrite(written)
        try:
            await self._journal.durable(written)
        except GanetiError as err:
            first.known.cancel()
            await self._early.abandon(job)
            return err
        self.register([job])
        job.first_write = None
        first.known.set_result(None)
        return None

    async def _commit(self, group: Sequence[Prepared]) -> GanetiError | None:
        """T1: write jobs in one transaction, and make them known."""
        try:
            await self._journal.commit([row for one in group for row in one.rows])
        except GanetiError as err:
            return err
        async with self._registering:
            self.register([one.job for one in group])
            if len(group) >= SLICE:
                # Large groups are often written together; the loop gets a turn after each.
                await asyncio.sleep(0)
        return None

    async def _prepare(
        self,
        batch: Sequence[Sequence[OpCode]],
        live: int,
        *,
        submitter: Submitter,
        keys: Sequence[str] | None = None,
        known: Mapping[int, int] | None = None,
    ) -> list[Before]:
        if live < MANY_LIVE_JOBS <= live + len(batch):
            _log.warning("%d jobs are not archived; %d are the most", live, MAX_LIVE_JOBS)
        known = known or {}
        ids = iter(await self._take_ids(len(batch) - len(known)))
        prepared: list[Before] = []
        pause = YieldEvery(SLICE)
        for number, ops in enumerate(batch):
            if number in known:
                prepared.append(self._jobs.get(known[number], known[number]))
                continue
            try:
                if live + number >= MAX_LIVE_JOBS:
                    raise JobQueueFull(
                        f"the queue has {MAX_LIVE_JOBS} jobs, the maximum; archive ended jobs: "
                        "`gnt-job autoarchive all`"
                    )
                key = None if keys is None else keys[number]
                prepared.append(
                    await self._prepare_one(next(ids), ops, prepared, key=key, submitter=submitter)
                )
            except GanetiError as err:
                prepared.append(err)
            await pause()
        return prepared

    async def _take_ids(self, count: int) -> range:
        """Return unused ids below the registered ceiling (R12)."""
        async with self._numbering:
            self._journal.check()
            if self._ids is None or self._raise_ceiling is None:
                raise PrereqError("the job queue is still being read", ErrorCode.TEMP_NO_RESOURCES)
            ceiling = self._ids.ceiling_for(count)
            if ceiling is not None:
                await self._raise_ceiling(ceiling)
                self._ids.raised(ceiling)
            return self._ids.take(count)

    async def _prepare_one(
        self,
        job_id: int,
        ops: Sequence[OpCode],
        before: Sequence[Before],
        *,
        key: str | None,
        submitter: Submitter,
    ) -> Prepared:
        if len(ops) > MAX_JOB_OPCODES:
            raise InputError(f"a job may have {MAX_JOB_OPCODES} opcodes, not {len(ops)}", "ops")
        depends: dict[int, Dependency] = {}
        resolved = [await self._resolve(op, before, depends) for op in ops]
        now = self._clock.time()
        states = tuple(OpState(op=without_secrets(op)) for op in resolved)
        end = None if ops else now
        stored = StoredJob(
            id=job_id,
            ops=states,
            received=now,
            end=end,
            source=submitter.source,
            scope=submitter.scope,
        )
        job = LiveJob(stored)
        job.depends = depends
        job.secrets = {index: op for index, op in enumerate(resolved) if states[index].op is not op}
        row = job.row(stored)
        if len(row.value) > JOB_BYTES:
            raise InputError(
                f"a job may have {JOB_BYTES // 1024} KiB, not {len(row.value) // 1024}", "ops"
            )
        rows: list[Operation] = [row]
        if key is not None:
            job.key = key
            rows.append(Put(KEY_KIND, key, job_key(job_id).encode()))
        return Prepared(job, rows)

    async def _resolve(
        self,
        op: OpCode,
        before: Sequence[Before],
        depends: dict[int, Dependency],
    ) -> OpCode:
        """Return the opcode with absolute ids of the jobs that it depends on (A22)."""
        if not op.depends:
            return op
        found: list[tuple[int, list[str]]] = []
        for job_id, states in op.depends:
            wanted = _final_states(states)
            named = _earlier(before, job_id) if job_id < 0 else job_id
            job = await self._existing(named) if isinstance(named, int) else named
            absolute = named if isinstance(named, int) else named.id
            if absolute in depends:
                wanted &= depends[absolute].wanted
            depends[absolute] = Dependency(job, wanted)
            found.append((absolute, states))
        return msgspec.structs.replace(op, depends=found)

    async def _existing(self, job_id: int) -> LiveJob | JobStatus:
        live = self._jobs.get(job_id)
        if live is not None:
            return live
        status = await self._archived_status(job_id)
        if status is None:
            raise InputError(f"job {job_id}, which this job depends on, does not exist", "depends")
        return status


def _final_states(states: Sequence[str]) -> frozenset[JobStatus]:
    """Return the accepted final states of a dependency; none named means any."""
    known = {str(status): status for status in FINAL_STATES}
    wrong = [state for state in states if state not in known]
    if wrong:
        raise InputError(
            f"{wrong[0]!r:.40} is not a final state: {', '.join(sorted(known))}", "depends"
        )
    return frozenset(known[state] for state in states) or FINAL_STATES


def _id_or_why(one: LiveJob | int | GanetiError) -> int | GanetiError:
    return one.id if isinstance(one, LiveJob) else one


def _earlier(before: Sequence[Before], relative: int) -> LiveJob | int:
    """Return the job that many positions before in the same submission."""
    if -relative > len(before):
        raise InputError(
            f"{relative} refers to a position before the first job of the submission", "depends"
        )
    found = before[relative]
    if isinstance(found, GanetiError):
        raise InputError(f"the job at {relative} was not accepted: {found.message}", "depends")
    return found.job if isinstance(found, Prepared) else found


def _grouped(prepared: Sequence[Prepared]) -> list[list[Prepared]]:
    """Group jobs into as few transactions as possible."""
    groups: list[list[Prepared]] = []
    operations = size = 0
    for one in prepared:
        operations += len(one.rows)
        size += one.size
        if not groups or operations > MAX_OPERATIONS or size > MAX_TRANSACTION_BYTES:
            groups.append([])
            operations, size = len(one.rows), one.size
        groups[-1].append(one)
    return groups
