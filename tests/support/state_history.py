"""What a master has written, in memory, for those who read it as events."""

from ganeti.api.event_log import EventLog
from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.model import wire
from ganeti.model.job import StoredJob
from ganeti.simulation.faulty_store import MemoryDisk
from ganeti.store.interface import (
    Lease,
    LogEntry,
    Master,
    NotInLog,
    Operation,
    Position,
    Put,
    StoreStatistics,
    Transaction,
)
from tests.unit.query.cluster import FakeJob

AT_ONCE = 7


class StateHistory:
    """One history, whoever is the master; `events` is the log of the one that is."""

    def __init__(self, epoch: int = 3) -> None:
        self.disk, self.epoch = MemoryDisk(), epoch
        self.waiting_bytes = 0
        self.events = EventLog(self)

    async def log_after(self, position: Position) -> list[LogEntry]:
        log = self.disk.log
        starts = [index for index, entry in enumerate(log) if entry.previous == position]
        if position != self.disk.position and not starts:
            raise NotInLog("the log does not continue there")
        return log[starts[0] :][:AT_ONCE] if starts else []

    def statistics(self) -> StoreStatistics:
        role = Master(Lease(self.epoch))
        return StoreStatistics(role, self.disk.position, waiting_bytes=self.waiting_bytes)

    def happens(self, *operations: Operation) -> None:
        """Something is written and acknowledged."""
        self.disk.write(self.epoch, Transaction(operations))
        self.events.stir()

    def job_happens(self, job: FakeJob) -> None:
        """A job is written as it is now."""
        self.happens(job_row(job))


def job_row(job: FakeJob) -> Put:
    """The row of a job."""
    stored = StoredJob(id=job.id, ops=tuple(job.ops), received=1.0, source=job.source)
    return Put(JOB_KIND, job_key(job.id), wire.encode(stored))
