"""Begins the jobs of backup schedules on the master, as `ganeti.schedules.decide` says.

The memory is in the configuration: it is durable before a job is submitted, and the next master continues from it.
The job's idempotency key is part of that memory, so the next master finds a job whose id was not stored yet.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ganeti.base.clock import Clock
from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.view import JobView
from ganeti.model.backup_schedule import BackupRun, BackupSchedule, rules_of
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.drills import OpBackupDrill
from ganeti.model.opcodes.points import OpBackupPrune, OpBackupSave
from ganeti.schedules.alerts import problem
from ganeti.schedules.decide import Decision, Facts, Guest, JobFact, Start, decide
from ganeti.units.backup.points import DEFAULT_TARGET
from ganeti.units.backup.schedules import guests_of

SOURCE = "gnt:schedule"
"""The source in the reason trail of each job."""
LOW = 10
"""The priority of the jobs."""
LOOK_EVERY_S = 60.0
"""The longest time between two decisions, because the clock may be set."""
GATHER_S = 1.0
"""The shortest time between two decisions."""

_log = logging.getLogger(__name__)


class Queue(Protocol):
    """The part of `ganeti.jobs.queue.JobQueue` that schedules use."""

    def id_of(self, key: str) -> int | None: ...
    def view(self, job_id: int) -> JobView | None: ...
    async def archived_view(self, job_id: int) -> JobView | None: ...
    async def submit(self, ops: Sequence[OpCode], *, key: str | None = None) -> int: ...
    async def ended(self, job_id: int) -> JobView | None: ...


class ScheduleAudit(Protocol):
    """The record of begun backups (`ganeti.api.audit.MasterAudit`)."""

    def scheduled(self, schedule: BackupSchedule, instance: str, job_id: int) -> None: ...


def _nothing() -> None:
    """Do nothing."""


class BackupScheduler:
    """Decides whenever something has changed, or is due; one decision at a time."""

    def __init__(
        self, config: Config, queue: Queue, *, clock: Clock, ids: IdSource, audit: ScheduleAudit
    ) -> None:
        self._config, self._queue = config, queue
        self._clock, self._ids, self._audit = clock, ids, audit
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watched: dict[int, asyncio.Task[None]] = {}
        self._refused: dict[str, str] = {}
        """Why the queue did not accept a job, by its key."""
        self._guests: tuple[Any, Any, Mapping[str, Guest]] = (None, None, {})
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        """Begin to decide."""
        self._unsubscribe = self._config.subscribe(lambda _snapshot: self._changed.set())
        self._task = asyncio.create_task(self._run(), name="backup-schedules")

    async def close(self) -> None:
        """Stop; running jobs continue."""
        self._unsubscribe()
        tasks = [*self._watched.values(), *filter(None, (self._task,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                wake = await self._turn()
            except (NotMaster, CommitUnknown) as err:
                _log.info("schedules of backups end: %s", err)
                return
            except GanetiError as err:
                _log.warning("schedules of backups wait: %s", err)
                wake = None
            except Exception:  # noqa: BLE001 - backups of other instances still begin
                _log.exception("a decision about schedules of backups failed; the next one follows")
                wake = None
            wait_s = LOOK_EVERY_S if wake is None else wake - self._clock.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.0), LOOK_EVERY_S)):
                    await self._changed.wait()
            await asyncio.sleep(GATHER_S)

    async def _turn(self) -> float | None:
        """Decide once, and act; return the time of the next decision."""
        snapshot = self._config.snapshot
        runs = snapshot.table(BackupRun).values()
        if not runs and not snapshot.table(BackupSchedule):
            return None
        jobs = {run.key: fact for run in runs if run.is_live and (fact := await self._fact(run))}
        decision = await self._config.change(lambda draft: self._decided(draft, jobs))
        self._refused.clear()
        self._tell(decision)
        for start in decision.starts:
            await self._submit(start)
        for run in self._config.snapshot.table(BackupRun).values():
            if run.is_live and (job_id := run.job or self._queue.id_of(run.key)):
                self._watch(job_id)
        return self._clock.time() if decision.starts else decision.wake

    def _decided(self, draft: Draft, jobs: Mapping[str, JobFact]) -> Decision:
        """Decide for the pending configuration, and record the new memory in it."""
        decision = decide(
            list(draft.table(BackupSchedule).values()),
            list(draft.table(BackupRun).values()),
            Facts(self._guests_of(draft), jobs),
            self._clock.time(),
            self._uuids(),
        )
        for run in decision.changed:
            draft.put(run)
        for run in decision.forgotten:
            draft.remove(run)
        return decision

    def _uuids(self) -> Iterator[str]:
        while True:
            yield self._ids.uuid()

    def _guests_of(self, view: View) -> Mapping[str, Guest]:
        """Return the instances as schedules see them; computed once for each version of them and of the nodes."""
        instances, nodes = view.instances, view.nodes
        if self._guests[0] is not instances or self._guests[1] is not nodes:
            self._guests = (instances, nodes, guests_of(view))
        return self._guests[2]

    async def _fact(self, run: BackupRun) -> JobFact | None:
        """Return the job of a live memory; None if there is none."""
        if run.key in self._refused:
            return JobFact(0, is_ended=True, error=self._refused[run.key])
        job_id = run.job or self._queue.id_of(run.key)
        if not job_id:
            return None
        view = self._queue.view(job_id) or await self._queue.archived_view(job_id)
        return None if view is None else fact_of(view)

    async def _submit(self, start: Start) -> None:
        ops = ops_of(self._config.snapshot, start, int(self._clock.time() * 1e9))
        try:
            job_id = await self._queue.submit(ops, key=start.run.key)
        except GanetiError as err:
            self._refused[start.run.key] = err.message
            self._changed.set()
            return
        self._audit.scheduled(start.schedule, start.guest.name, job_id)

    def _watch(self, job_id: int) -> None:
        if job_id not in self._watched:
            task = asyncio.create_task(self._ended(job_id), name=f"backup-job-{job_id}")
            self._watched[job_id] = task
            task.add_done_callback(lambda _task: self._watched.pop(job_id, None))

    async def _ended(self, job_id: int) -> None:
        """Let the next decision begin once a job has ended."""
        with contextlib.suppress(NotMaster):
            await self._queue.ended(job_id)
        self._changed.set()

    def _tell(self, decision: Decision) -> None:
        """Log failures and backups that have become too old."""
        snapshot = self._config.snapshot
        for run in decision.failed:
            _log.warning("backup %s has failed: %s", run.name, run.error)
        for run in decision.became_old:
            if schedule := snapshot.table(BackupSchedule).get(run.schedule):
                _log.error("backup %s: %s", run.name, problem(schedule, run, self._clock.time()))


def ops_of(snapshot: Snapshot, start: Start, now_ns: int) -> list[OpCode]:
    """Return the opcodes of a scheduled backup: save, drill if one is due, and prune if the schedule has rules."""
    schedule, guest = start.schedule, start.guest
    node = snapshot.nodes.get(schedule.node or guest.node)
    why = f"schedule {schedule.name} of {schedule.owner}"
    common: dict[str, Any] = {
        "instance_name": guest.name,
        "instance_uuid": guest.uuid,
        "node": node.name if node else schedule.node or guest.node,
        "target": schedule.target or DEFAULT_TARGET,
        "priority": LOW,
        "reason": [(SOURCE, why, now_ns)],
    }
    save = OpBackupSave(
        **common, bandwidth=schedule.bandwidth, encrypt=schedule.encrypt, schedule=schedule.uuid
    )
    ops: list[OpCode] = [save]
    if start.run.drills:
        expect: dict[str, Any] = {"expect": schedule.drill_expect} if schedule.drill_expect else {}
        is_plain = schedule.encrypt is False
        ops.append(OpBackupDrill(**common, **expect, allow_unencrypted=is_plain))
    if rules := rules_of(schedule):
        ops.append(OpBackupPrune(**common, **rules, schedule=schedule.uuid))
    return ops


def fact_of(view: JobView) -> JobFact:
    """Return what schedules need to know of a job."""
    if not view.status.is_final:
        return JobFact(view.id, is_ended=False)
    save = view.ops[0]
    drills = [state for state in view.ops if isinstance(state.op, OpBackupDrill)]
    is_saved = isinstance(save.result, dict) and all(
        state.status is JobStatus.SUCCESS for state in (save, *drills)
    )
    return JobFact(
        view.id,
        is_ended=True,
        point=str(save.result["point"]) if is_saved else "",
        made=(save.exec or save.end or view.received) if is_saved else 0.0,
        error="" if view.status is JobStatus.SUCCESS else _error_of(view, is_saved=is_saved),
    )


def _error_of(view: JobView, *, is_saved: bool) -> str:
    prefix = "the backup is good, but older ones are not removed: " if is_saved else ""
    for state in view.ops:
        match state.result if state.status is JobStatus.ERROR else None:
            case [str(), [message, *_]]:
                return f"{prefix}{message}"
    return (
        f"{prefix}the job was cancelled"
        if view.status is JobStatus.CANCELED
        else f"{prefix}it failed"
    )
