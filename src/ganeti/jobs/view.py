"""A copy of a job for display, which is readable without a lock or the store (S194)."""

from bisect import bisect_right
from dataclasses import dataclass

import msgspec

from ganeti.base.errors import StoreError
from ganeti.jobs.reading import read_stored
from ganeti.jobs.record import FORMAT, LiveJob, redacted
from ganeti.jobs.states import status_of
from ganeti.model import wire
from ganeti.model.job import LOCAL_SOURCE, LogEntry, OpState, StoredJob
from ganeti.model.names import JobStatus
from ganeti.model.progress import JobProgress


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at one moment; times in seconds since the epoch."""

    id: int
    ops: tuple[OpState, ...]
    log: tuple[tuple[LogEntry, ...], ...]
    """The log lines of each opcode."""
    status: JobStatus
    received: float
    start: float | None
    end: float | None
    priority: int
    source: str = LOCAL_SOURCE
    waiting_for: str | None = None
    """The reason why the job waits, as text."""
    progress: JobProgress | None = None

    def log_after(self, serial: int, upto: int | None = None) -> list[LogEntry]:
        """Return the lines with greater serials, of all opcodes, in order; none beyond `upto`."""
        found: list[LogEntry] = []
        for entries in self.log:
            first = bisect_right(entries, serial, key=_serial)
            last = len(entries) if upto is None else bisect_right(entries, upto, key=_serial)
            found += entries[first:last]
        return found


def _serial(entry: LogEntry) -> int:
    return entry[0]


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its log, in the archive's format."""

    job: StoredJob
    log: tuple[tuple[LogEntry, ...], ...] = ()


def view_of(job: LiveJob, waiting_for: str | None = None) -> JobView:
    """Return the present view of a live job."""
    ops = [shown(state) for state in job.ops]
    if job.phase is not None:
        current = job.index
        is_canceling = job.status is JobStatus.CANCELING
        ops[current] = msgspec.structs.replace(
            ops[current],
            status=JobStatus.CANCELING if is_canceling else job.phase,
            start=job.op_start,
            exec=job.op_exec,
        )
    return JobView(
        id=job.id,
        ops=tuple(ops),
        log=tuple(tuple(entries) for entries in job.log),
        status=job.status,
        received=job.received,
        start=job.start,
        end=job.end,
        priority=job.priority,
        source=job.source,
        waiting_for=waiting_for,
        progress=None if job.status.is_final else job.progress,
    )


def shown(state: OpState) -> OpState:
    """Return an opcode's state without secrets."""
    public = redacted(state.op)
    return state if public is state.op else msgspec.structs.replace(state, op=public)


def archive_content(job: LiveJob) -> bytes:
    """Return a finished job with its log in the archive's format."""
    log = tuple(tuple(entries) for entries in job.log)
    return wire.encode(ArchivedJob(job=job.stored(), log=log))


class _ArchivedEnd(msgspec.Struct, frozen=True):
    end: float | None = None


class _ArchivedTimes(msgspec.Struct, frozen=True):
    job: _ArchivedEnd


_ARCHIVED_TIMES = msgspec.json.Decoder(_ArchivedTimes)


def archived_end(content: bytes) -> float | None:
    """Return the end time of an archived job of any version; None if it is missing."""
    try:
        return _ARCHIVED_TIMES.decode(content).job.end
    except msgspec.DecodeError:
        return None


def view_of_archived(content: bytes) -> JobView:
    """Return the view of an archived job; StoreError if it was written by a newer version."""
    archived = read_stored(content, ArchivedJob, what="archived job")
    job = archived.job
    if job.format > FORMAT:
        raise StoreError(f"job {job.id} in the archive was written by a newer version")
    return JobView(
        id=job.id,
        ops=tuple(shown(state) for state in job.ops),
        log=archived.log,
        status=status_of(job),
        received=job.received,
        start=job.start,
        end=job.end,
        priority=min((state.op.priority for state in job.ops), default=0),
        source=job.source,
    )
