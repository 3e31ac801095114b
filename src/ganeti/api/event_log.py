"""Recent events for clients that follow them, derived from the objects and jobs in the state's log.

The number of an event is `EPOCH-SERIAL-N`: the N-th of the transaction after that position. Every
master derives the same events from the same log, so numbers survive a change of master; nothing is
stored here. `EPOCH-SERIAL` is the position before the first event of the next transaction. Events
before the beginning of the log are lost: the client has to read the state again.

The log does not show that a job waits for locks, is being cancelled, or makes progress. Such an
event has no number.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.config.kinds import KINDS
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.reading import read_stored
from ganeti.jobs.record import JOB_KIND, LiveJob
from ganeti.jobs.states import status_of
from ganeti.model import wire
from ganeti.model.backup_schedule import BackupRun
from ganeti.model.job import StoredJob
from ganeti.model.names import JobStatus
from ganeti.model.objects import Cluster, Image, Instance, Network, Node, NodeGroup
from ganeti.schedules.alerts import state_of
from ganeti.store.backend import StateHistory
from ganeti.store.interface import Delete, LogEntry, NotInLog, Operation, Position, Put

GATHER_S = 0.02
"""Minimum interval between two reads of the log. The first change after a quiet time is read at once."""
PASSING_LIMIT = 1_000
NUMBER = re.compile(r"([0-9]{1,10})-([0-9]{1,10})(?:-([0-9]{1,6}))?")

_NAMES = {KINDS[kind].name: kind for kind in (Instance, Node, NodeGroup, Network, Image, Cluster)}
_RUNS = KINDS[BackupRun].name
_PASSING = (JobStatus.WAITING, JobStatus.CANCELING)


class _Shown(msgspec.Struct):
    """The part of an object's row that an event shows."""

    uuid: str
    name: str = ""
    serial_no: int = 1
    tags: tuple[str, ...] = ()


class EventLog:
    """The events of one mastership, from its state's log."""

    def __init__(self, store: StateHistory) -> None:
        self._store = store
        self._waiters: set[asyncio.Future[None]] = set()
        self._passing: deque[tuple[int, LiveJob]] = deque(maxlen=PASSING_LIMIT)
        self._passed = 0
        self._acknowledged = store.statistics().position
        self._timer: asyncio.TimerHandle | None = None
        self._next_look = 0.0
        self._stop_following: Callable[[], None] | None = None

    async def last(self) -> str:
        """Return the number of the last acknowledged event."""
        try:
            while found := await self._store.log_after(self._acknowledged):
                self._acknowledged = found[-1].position
        except NotInLog:  # no client has asked for a long time
            self._acknowledged = self._store.statistics().position
        return _number(self._acknowledged)

    async def after(self, number: str | None, passing: int | None = None) -> dict[str, Any]:
        """Return the events after a number.

        `{"last", "is_lost", "events": [[number, kind, content] …], "passing"}`.

        None: return only the last number. `is_lost`: the events after it are no longer known.
        `passing`, from the previous answer, adds transient states, as events without a number.
        NotMaster, StoreError.
        """
        if number is None:
            return self._answer(await self.last())
        try:
            at, seen = _parsed(number)
            events: list[list[Any]] = []
            while not events and (entries := await self._store.log_after(at)):
                events = _events_of(entries, seen)
                at, seen = entries[-1].position, 0
            self._acknowledged = max(at, self._acknowledged)
        except (NotInLog, InputError):
            return self._answer(await self.last(), is_lost=True)
        if passing is not None:
            events += self._passing_after(passing, events)
        return self._answer(_number(at, seen), events)

    def _answer(
        self, last: str, events: Sequence[list[Any]] = (), *, is_lost: bool = False
    ) -> dict[str, Any]:
        passing = self._passed
        return {"last": last, "is_lost": is_lost, "events": list(events), "passing": passing}

    def _passing_after(self, serial: int, events: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the jobs that are still in a transient state, except those with later events in the log."""
        said = {event[2]["id"]: event[2]["status"] for event in events if event[1] == "job"}
        present = {job.id: job for number, job in self._passing if number > serial}
        return [
            [None, "job", _passing_job(job)]
            for job in present.values()
            if _is_passing(job)
            if said.get(job.id, JobStatus.QUEUED) in (JobStatus.QUEUED, JobStatus.RUNNING)
        ]

    async def wait(
        self, number: str | None, timeout_s: float, passing: int | None = None
    ) -> dict[str, Any]:
        """Return the same, as soon as there is an event, or after the timeout."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(
                waiter
            )  # before the log is read, so that no event is missed in between
            try:
                answer = await self.after(number, passing)
                left = until - loop.time()
                if number is None or answer["events"] or answer["is_lost"] or left <= 0:
                    return answer
                number = answer["last"]
                await asyncio.wait((waiter,), timeout=left)
            finally:
                self._waiters.discard(waiter)

    # Triggers

    def follow(self, subscribe: Callable[[Callable[[Snapshot], None]], Callable[[], None]]) -> None:
        """Check the log whenever the configuration has changed, until `close`."""
        self._stop_following = subscribe(lambda _snapshot: self.stir())

    def job_changed(self, job: LiveJob) -> None:
        """Handle a job's new state; the log has it already, or soon."""
        if _is_passing(job):
            self._passed += 1
            self._passing.append((self._passed, job))
        self.stir()

    def stir(self) -> None:
        """Handle a write, finished or in progress."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next_look, loop.time()), self._look)

    def _look(self) -> None:
        self._timer = None
        self._next_look = asyncio.get_running_loop().time() + GATHER_S
        self._wake()
        if self._store.statistics().waiting_bytes:
            self.stir()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Wake all waiters; no more events follow."""
        if self._stop_following is not None:
            self._stop_following()
        if self._timer is not None:
            self._timer.cancel()
        self._wake()


# Derivation of events


def _number(position: Position, index: int = 0) -> str:
    return f"{position.epoch}-{position.serial}" + (f"-{index}" if index else "")


def _parsed(number: str) -> tuple[Position, int]:
    """Return the position and the number of events sent after it; InputError."""
    found = NUMBER.fullmatch(number)
    if found is None:
        raise InputError(f"{number!r:.60} is not the number of an event")
    return Position(int(found[1]), int(found[2])), int(found[3] or 0)


def _events_of(entries: Sequence[LogEntry], seen: int) -> list[list[Any]]:
    """Return all events of some transactions, except the first `seen`."""
    events: list[list[Any]] = []
    for entry in entries:
        of_entry = _of_operations(entry.transaction.operations)
        events += [
            [_number(entry.previous, index), kind, content]
            for index, (kind, content) in enumerate(of_entry, 1)
        ]
    return events[seen:]


def _of_operations(operations: Sequence[Operation]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the changes of a transaction; a removed row is preceded by its old content."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for operation, following in zip_longest(operations, operations[1:]):
        if not isinstance(operation, Put):
            continue
        is_removed = following == Delete(operation.kind, operation.key)
        if operation.kind == JOB_KIND and not is_removed:
            stored = read_stored(operation.value, StoredJob, what=f"job {operation.key}")
            found.append(("job", _shown_job(stored, status_of(stored))))
        elif operation.kind == _RUNS and not is_removed:
            run = wire.decode(operation.value, BackupRun, what=f"backup {operation.key}")
            found.append(("backup", _shown_run(run)))
        elif operation.kind in _NAMES:
            shown = wire.decode(operation.value, _Shown, what=f"{operation.kind} {operation.key}")
            change = "added" if shown.serial_no == 1 else "changed"
            change = "removed" if is_removed else change
            found.append((operation.kind, {**msgspec.structs.asdict(shown), "change": change}))
    return found


def _shown_run(run: BackupRun) -> dict[str, Any]:
    """Return what an event shows of one instance's backups by one schedule."""
    return {
        "uuid": run.uuid,
        "name": run.name,
        "serial_no": run.serial_no,
        "schedule": run.schedule,
        "instance": run.instance,
        "state": state_of(run).value,
        "running": run.is_live,
        "job": run.job or None,
        "last": run.last_good or None,
        "error": run.error or None,
    }


def _is_passing(job: LiveJob) -> bool:
    return job.status in _PASSING or (job.status is JobStatus.RUNNING and job.progress is not None)


def _passing_job(job: LiveJob) -> dict[str, Any]:
    shown = _shown_job(job.stored(), job.status)
    if job.status is JobStatus.RUNNING:
        shown["progress"] = wire.plain(job.progress)
    return shown


def _shown_job(stored: StoredJob, status: JobStatus) -> dict[str, Any]:
    summary = [state.op.summary() for state in stored.ops]
    is_dry = all(state.op.dry_run for state in stored.ops)
    return {
        "id": stored.id,
        "status": status,
        "summary": summary,
        "source": stored.source,
        "dry_run": is_dry,
    }
