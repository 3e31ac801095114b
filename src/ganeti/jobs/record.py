"""A job in memory, and its rows in the store."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ganeti.jobs.states import Event, after, next_opcode, status_of
from ganeti.jobs.watch import Watch
from ganeti.model import wire
from ganeti.model.job import LogEntry, OpState, StoredJob, Submitter, Timestamp, UndoStep
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.progress import JobProgress
from ganeti.store.interface import Delete, Operation, Position, Put

JOB_KIND = "job"
LOG_KIND = "joblog"
KEY_KIND = "jobkey"
QUEUE_KIND = "jobqueue"
DRAINED_KEY = "drained"
MOVING_KEY = "moving"
"""Set while the state is being moved, when the queue accepts no jobs.

An administrator's drain has another key.
"""
WATCHER_KEY = "watcher"
SESSIONS_KEY = "sessions"

KINDS = frozenset({JOB_KIND, LOG_KIND, KEY_KIND, QUEUE_KIND})

FORMAT = 2
"""The format of stored jobs that this version writes, and the newest that it can read."""

ROW_LIMIT = 768 * 1024
"""Maximum bytes of a job's row; larger results are kept only in memory."""

MASK = "<redacted>"
"""The stored and shown replacement of a secret."""


class StoredLogEntry(msgspec.Struct, frozen=True, array_like=True):
    """A line of a job's log, in the state store."""

    opcode: int
    entry: LogEntry


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that another one waits for, and the accepted final states."""

    job: "LiveJob | JobStatus"
    """The job; its final state if it is archived."""
    wanted: frozenset[JobStatus]

    @property
    def status(self) -> JobStatus:
        return self.job if isinstance(self.job, JobStatus) else self.job.status


def job_key(job_id: int) -> str:
    """Return the key of a job's row; keys sort like ids."""
    return f"{job_id:020d}"


def log_key(job_id: int, serial: int) -> str:
    """Return the key of the row of a log line."""
    return f"{job_id:020d}/{serial:010d}"


def timestamp(seconds: float) -> Timestamp:
    """Return a time in LUXI's format."""
    micros = round(seconds * 1_000_000)
    return micros // 1_000_000, micros % 1_000_000


class NeverSubmitted(asyncio.CancelledError):
    """A job that started while it was being written could not be written: it does not exist.

    For a unit it is the end of its task, and no failure of its opcode.
    """


class FirstWrite:
    """The first write of a job that already runs.

    What the job writes meanwhile comes later in the store's order, and is refused with it.
    """

    def __init__(self, written: asyncio.Future[Position]) -> None:
        self.written = written
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the job is known to others; cancelled if the write fails."""

    def check(self) -> None:
        """Raise NeverSubmitted if the write has failed."""
        if self.written.done() and (self.written.cancelled() or self.written.exception()):
            raise NeverSubmitted


class LiveJob:
    """A job that is not archived. `ops` holds the stored part; `phase` is the state of the current opcode."""

    __slots__ = (
        "cancel_requested",
        "cancelling",
        "depends",
        "end",
        "epoch",
        "first_write",
        "id",
        "index",
        "is_killed",
        "key",
        "log",
        "log_bytes",
        "log_serial",
        "op_exec",
        "op_start",
        "ops",
        "pending",
        "phase",
        "progress",
        "received",
        "scope",
        "secrets",
        "source",
        "start",
        "status",
        "undo",
        "unstored",
        "watch",
        "writing",
    )

    def __init__(self, stored: StoredJob) -> None:
        self.id = stored.id
        self.received = stored.received
        self.source = stored.source
        self.scope = stored.scope
        self.cancel_requested = stored.cancel_requested
        self.is_killed = False
        """True if the next call to a node must fail (`gnt-job cancel --kill`)."""
        self.status = status_of(stored)
        self.start = stored.start
        self.apply(stored)
        self.secrets: dict[int, OpCode] = {}
        """Opcodes with their secrets, which are never stored (G23)."""
        self.key: str | None = None
        self.log: list[list[LogEntry]] = [[] for _ in stored.ops]
        self.log_serial = 0
        self.log_bytes = 0
        self.phase: JobStatus | None = None
        self.progress: JobProgress | None = None
        self.op_start: float | None = None
        self.op_exec: float | None = None
        self.depends: dict[int, Dependency] = {}
        """The jobs that must end before this one starts."""
        self.first_write: FirstWrite | None = None
        """Set while a job that has started already is being written for the first time."""
        self.unstored: frozenset[int] = frozenset()
        """Opcodes whose results are too large for the row."""
        self.watch = Watch(stored.id)
        self.cancelling = asyncio.Lock()
        """Held during a cancel: the next cancel uses its outcome."""
        self.writing = asyncio.Lock()
        """Held while a row of this job is being written: each row is based on the one before."""

    @property
    def as_submitter(self) -> Submitter:
        """Return the submitter of the jobs that this job submits."""
        scope = None if self.scope is None else self.scope.for_jobs_of_a_job()
        return Submitter(self.source, scope)

    @property
    def priority(self) -> int:
        """Return the most urgent priority of the opcodes that have not ended."""
        if len(self.ops) == 1:
            return self.ops[0].op.priority
        left = [state.op.priority for state in self.ops if not state.status.is_final]
        return min(left, default=min((state.op.priority for state in self.ops), default=0))

    def now(self, time: float) -> float:
        """Return `time`, but never less than a time that this job has already recorded (G6, G27)."""
        last = max(self.received, self.start or 0.0, self.op_start or 0.0, self.op_exec or 0.0)
        before = self.ops[self.index - 1].end if self.index else None
        return max(time, last, before or 0.0)

    def check_first_write(self) -> None:
        """Raise NeverSubmitted if the job cannot be written: nothing else may be written for it."""
        if self.first_write is not None:
            self.first_write.check()

    async def known(self) -> None:
        """Return when the job is stored and known to others; NeverSubmitted if it cannot be stored."""
        if (first := self.first_write) is not None:
            await asyncio.wait((first.known,))
            first.check()

    def tell(self, event: Event) -> None:
        """Change the state by the table, and wake the waiting clients."""
        self.status = after(self.status, event)
        self.watch.changed()

    def stored(
        self,
        ops: Sequence[OpState] | None = None,
        *,
        end: float | None = None,
        epoch: int | None = None,
        undo: Sequence[UndoStep] | None = None,
        pending: Sequence[UndoStep] | None = None,
    ) -> StoredJob:
        """Return the row of this job with some changes; call `apply` once it is written."""
        return StoredJob(
            id=self.id,
            ops=tuple(self.ops if ops is None else ops),
            received=self.received,
            start=self.start,
            end=self.end if end is None else end,
            epoch=self.epoch if epoch is None else epoch,
            undo=tuple(self.undo if undo is None else undo),
            pending=tuple(self.pending if pending is None else pending),
            cancel_requested=self.cancel_requested,
            source=self.source,
            scope=self.scope,
        )

    def apply(self, stored: StoredJob) -> None:
        """Adopt the written content."""
        self.ops: tuple[OpState, ...] = stored.ops
        self.index = next_opcode(stored.ops)
        """The position of the current opcode, or of the next one."""
        self.end: float | None = stored.end
        self.epoch: int = stored.epoch
        self.undo: tuple[UndoStep, ...] = stored.undo
        self.pending: tuple[UndoStep, ...] = stored.pending

    def row(self, stored: StoredJob) -> Put:
        """Return the row of `stored`, without results that are too large."""
        value = wire.encode(self._storable(stored))
        while len(value) > ROW_LIMIT:
            sizes = {
                index: len(wire.encode(state.result))
                for index, state in enumerate(stored.ops)
                if index not in self.unstored
            }
            if not sizes:
                break
            self.unstored |= {max(sizes, key=lambda index: sizes[index])}
            value = wire.encode(self._storable(stored))
        return Put(JOB_KIND, job_key(stored.id), value)

    def _storable(self, stored: StoredJob) -> StoredJob:
        if not self.unstored:
            return stored
        ops = [
            msgspec.structs.replace(state, result=None) if index in self.unstored else state
            for index, state in enumerate(stored.ops)
        ]
        return msgspec.structs.replace(stored, ops=tuple(ops))

    def rows_to_delete(self) -> list[Operation]:
        """Return all rows of this job, the job itself first."""
        rows: list[Operation] = [Delete(JOB_KIND, job_key(self.id))]
        if self.key is not None:
            rows.append(Delete(KEY_KIND, self.key))
        serials = sorted(entry[0] for entries in self.log for entry in entries)
        rows += [Delete(LOG_KIND, log_key(self.id, serial)) for serial in serials]
        return rows


def without_secrets(op: OpCode) -> OpCode:
    """Return the opcode for storage, with masked secret values."""
    if not (op.secret_fields or op.nested_field):
        return op
    given = [name for name in op.secret_fields if getattr(op, name)]
    return _with_nested(_masked(op, given) if given else op, without_secrets)


def has_lost_secrets(op: OpCode) -> bool:
    """Return whether the stored opcode was submitted with secrets, which only memory had (F38)."""
    nested: Sequence[OpCode] = getattr(op, op.nested_field) if op.nested_field else ()
    return any(getattr(op, name) for name in op.secret_fields) or any(map(has_lost_secrets, nested))


def redacted(op: OpCode) -> OpCode:
    """Return the opcode for display, with masked secret and private values."""
    fields = _private_fields(type(op))
    if not (fields or op.nested_field):
        return op
    hidden = [name for name in fields if getattr(op, name)]
    return _with_nested(_masked(op, hidden) if hidden else op, redacted)


@functools.cache
def _private_fields(kind: type[OpCode]) -> tuple[str, ...]:
    """The fields of an opcode whose values are not shown."""
    private = (*kind.secret_fields, "osparams_private")
    return tuple(name for name in private if name in kind.__struct_fields__)


def _with_nested(op: OpCode, change: Callable[[OpCode], OpCode]) -> OpCode:
    """Return the opcode with changed nested ones; the same object if none changes."""
    if op.nested_field is None:
        return op
    before: Sequence[OpCode] = getattr(op, op.nested_field)
    after = [change(one) for one in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return op
    return msgspec.structs.replace(op, **{op.nested_field: after})


def _masked(op: OpCode, names: Sequence[str]) -> OpCode:
    masks = {name: _mask(getattr(op, name)) for name in names}
    return msgspec.structs.replace(op, **masks)


def _mask(value: object) -> object:
    return dict.fromkeys(value, MASK) if isinstance(value, dict) else MASK
