"""Log lines of jobs: in memory at once, stored in batches that no job waits for (S199)."""

import asyncio
import logging
from typing import Any

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, Refused
from ganeti.jobs.journal import Journal
from ganeti.jobs.record import LOG_KIND, LiveJob, StoredLogEntry, log_key, timestamp
from ganeti.model import wire
from ganeti.store.interface import MAX_OPERATIONS, Put

FLUSH_INTERVAL_S = 0.2
LINE_LIMIT = 4 * 1024
"""Maximum bytes of one line."""
JOB_LIMIT = 256 * 1024
"""Maximum bytes of all lines of a job."""
BATCH_BYTES = 512 * 1024

_log = logging.getLogger(__name__)


class Feedback:
    """The log lines of all jobs that are not stored yet."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._unwritten: dict[int, list[Put]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def say(self, job: LiveJob, index: int, content: Any, kind: str = "message") -> None:
        """Append a line to the log of an opcode; lines and logs beyond the limits are truncated."""
        if job.log_bytes > JOB_LIMIT:
            return
        content = cut(content)
        size = len(wire.encode(content))
        if job.log_bytes + size > JOB_LIMIT:
            content = f"the log of this job ends here: it has reached {JOB_LIMIT // 1024} KiB"
            job.log_bytes = JOB_LIMIT + 1
        else:
            job.log_bytes += size
        job.log_serial += 1
        entry = (job.log_serial, timestamp(job.now(self._clock.time())), kind, content)
        job.log[index].append(entry)
        row = Put(
            LOG_KIND, log_key(job.id, job.log_serial), wire.encode(StoredLogEntry(index, entry))
        )
        self._unwritten.setdefault(job.id, []).append(row)
        self._flush_later()
        job.watch.log_grew(job.log_serial)

    def has_lines(self, job_id: int) -> bool:
        """Return whether lines of a job are not submitted yet."""
        return job_id in self._unwritten

    def flush_job(self, job_id: int) -> None:
        """Submit the lines of one job to the store, before a transaction that must follow them."""
        rows = self._unwritten.pop(job_id, [])
        try:
            while rows:
                taken = _first(rows, MAX_OPERATIONS, BATCH_BYTES)
                self._journal.submit(taken)
                del rows[: len(taken)]
        finally:
            self._give_back(job_id, rows)

    def drop(self, job_id: int) -> None:
        """Forget the lines of a job that is being removed."""
        self._unwritten.pop(job_id, None)

    def flush(self) -> None:
        """Submit all lines to the store now; refused lines are retried later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            while self._unwritten:
                self._submit_batch()
        except Refused as err:
            _log.warning("log lines of %d jobs wait for the store: %s", len(self._unwritten), err)
            self._flush_later()
        except GanetiError as err:
            _log.warning("log lines of %d jobs are lost: %s", len(self._unwritten), err)
            self._unwritten.clear()

    def close(self) -> None:
        """Write the remaining lines."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _submit_batch(self) -> None:
        batch: dict[int, list[Put]] = {}
        count, size = 0, 0
        for job_id, rows in self._unwritten.items():
            batch[job_id] = taken = _first(rows, MAX_OPERATIONS - count, BATCH_BYTES)
            count += len(taken)
            size += sum(len(row.value) for row in taken)
            if count >= MAX_OPERATIONS or size >= BATCH_BYTES // 2:
                break
        self._journal.submit([row for rows in batch.values() for row in rows])
        for job_id, rows in batch.items():
            left = self._unwritten.pop(job_id)[len(rows) :]
            if left:
                self._unwritten[job_id] = left

    def _give_back(self, job_id: int, rows: list[Put]) -> None:
        if rows:
            self._unwritten[job_id] = rows
            self._flush_later()

    def _flush_later(self) -> None:
        if self._timer is None and self._journal.ended is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_INTERVAL_S, self.flush)


def _first(rows: list[Put], most: int, most_bytes: int) -> list[Put]:
    """Return the first rows that fit into one transaction."""
    size = 0
    for number, row in enumerate(rows[:most]):
        size += len(row.value) + len(row.key) + len(row.kind)
        if number and size > most_bytes:
            return rows[:number]
    return rows[:most]


def cut(content: Any) -> Any:
    """Return the part that fits into one line of a log."""
    if isinstance(content, str) and len(content) <= LINE_LIMIT // 4:
        return content
    text = content if isinstance(content, str) else wire.encode(content).decode()
    data = text.encode()
    if len(data) <= LINE_LIMIT:
        return content
    mark = f" … ({len(data)} bytes)"
    return data[: LINE_LIMIT - len(mark.encode())].decode(errors="ignore") + mark
