"""Reads the queue from the store when a master begins."""

from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from ganeti.base.errors import StoreError
from ganeti.base.yield_every import YieldEvery
from ganeti.jobs.reading import read_stored
from ganeti.jobs.record import (
    DRAINED_KEY,
    FORMAT,
    JOB_KIND,
    KEY_KIND,
    KINDS,
    LOG_KIND,
    MOVING_KEY,
    QUEUE_KIND,
    SESSIONS_KEY,
    WATCHER_KEY,
    LiveJob,
    StoredLogEntry,
)
from ganeti.jobs.states import next_opcode
from ganeti.model import wire
from ganeti.model.job import StoredJob
from ganeti.store.backend import StateBackend
from ganeti.store.interface import Delete, Operation, Position, Row


@dataclass
class Loaded:
    """The stored queue; `orphans` are rows of jobs that no longer exist."""

    jobs: dict[int, LiveJob] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    """The keys of reasons why the queue accepts no jobs."""
    memories: dict[str, str] = field(default_factory=dict)
    """Data of other programs, by key."""
    orphans: list[Operation] = field(default_factory=list)


async def load_queue(store: StateBackend) -> Loaded:
    """Read all jobs with their logs, in slices; StoreError if a row cannot be decoded."""
    loaded = Loaded()
    # Rows come by kind, and `job` precedes `jobkey` and `joblog`.
    pause = YieldEvery()
    async with aclosing(store.load()) as rows:
        async for item in rows:
            await pause()
            if isinstance(item, Position) or item.kind not in KINDS:
                continue
            _take(loaded, item)
    return loaded


def _take(loaded: Loaded, row: Row) -> None:
    if row.kind == JOB_KIND:
        stored = read_stored(row.value, StoredJob, what=f"job {row.key}")
        if stored.format > FORMAT:
            raise StoreError(f"job {stored.id} was written by a newer version; start that version")
        loaded.jobs[stored.id] = LiveJob(_in_this_format(stored))
    elif row.kind == QUEUE_KIND:
        if row.key in (DRAINED_KEY, MOVING_KEY):
            loaded.drained.add(row.key)
        elif row.key in (WATCHER_KEY, SESSIONS_KEY):
            loaded.memories[row.key] = row.value.decode()
    else:
        owner = row.value.decode() if row.kind == KEY_KIND else row.key.partition("/")[0]
        job = loaded.jobs.get(int(owner))
        if job is None:
            loaded.orphans.append(Delete(row.kind, row.key))
        elif row.kind == KEY_KIND:
            job.key = row.key
        elif row.kind == LOG_KIND:
            _take_line(job, row)


def _in_this_format(stored: StoredJob) -> StoredJob:
    """Convert a job of an old format.

    Format 1 does not separate the steps of the running opcode from the pending ones of earlier
    opcodes. If both are possible, all are run like pending ones: under locks, and respecting later
    changes by other jobs.
    """
    index = next_opcode(stored.ops)
    is_first = index == 0 and bool(stored.ops)
    if stored.format > 1 or is_first:
        return msgspec.structs.replace(stored, format=FORMAT)
    return msgspec.structs.replace(stored, undo=(), pending=stored.undo, format=FORMAT)


def _take_line(job: LiveJob, row: Row) -> None:
    line = wire.decode(row.value, StoredLogEntry, what=f"log of job {job.id}")
    serial = line.entry[0]
    job.log[line.opcode].append(line.entry)
    job.log_serial = max(job.log_serial, serial)
    job.log_bytes += len(row.value)
    job.watch.said = job.watch.visible = job.log_serial
