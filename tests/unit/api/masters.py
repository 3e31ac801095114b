"""A queue and a configuration to put behind the LUXI methods."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganeti.api.ha_status import HaStatus
from ganeti.api.login_links import LoginLinks
from ganeti.api.luxi_methods import LuxiMethods
from ganeti.api.luxi_server import Caller
from ganeti.api.rest_methods import RestMethods
from ganeti.base.audit_file import AuditQuery
from ganeti.base.errors import ErrorCode, GanetiError, JobLost, JobQueueDrained, PrereqError
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.job import LOCAL, LogEntry, OpState, Submitter
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.reach import Reference
from ganeti.model.scope import Scope
from ganeti.protocols.luxi import Answer, Request
from ganeti.query.consoles import ConsoleSource
from ganeti.query.execute import ClusterFacts, QueryExecutor
from ganeti.query.history import HistorySource
from ganeti.query.live import LiveSource
from ganeti.query.screenshots import ScreenshotSource
from ganeti.recovery.status import RecoveryStatus
from ganeti.rpc.timings import BOUNDS_S
from ganeti.store.interface import Position
from tests.support.predictable import FrozenClock
from tests.support.state_history import StateHistory
from tests.unit.query.cluster import FakeJob, FakeJobs, FakeNodes, locks, snapshot

FIGURES: dict[str, Any] = {
    "schedules": {
        "nightly": {
            "failures": 3,
            "states": {"good": 1, "old": 1},
            "last": {"web1.example.com": 1_795_000_000.5, "web2.example.com": 0.0},
        }
    },
    "queue": {"jobs": 3, "queued": 1, "running": 2, "waiters": 0},
    "instances": {"up": 2},
    "position": 7,
    "calls": {
        "node_info": {
            "bounds_s": list(BOUNDS_S), "counts": [1, 2, *[0] * (len(BOUNDS_S) - 1)], "total_s": 0.5,
            "failed": 1,
        }
    },
}  # fmt: skip


@dataclass
class FakeUndo:
    """What is left undone; `abandoned` remembers what was given up."""

    pending: list[PendingStep] = field(default_factory=list)
    abandoned: list[tuple[int, str]] = field(default_factory=list)

    def listing(self) -> list[PendingStep]:
        return self.pending

    async def abandon(self, job_id: int, ident: str, /) -> str:
        await asyncio.sleep(0)
        self.abandoned.append((job_id, ident))
        return "a disk"


@dataclass
class FakeQueue(FakeJobs):
    """Takes jobs and remembers them; `news` answers those who wait."""

    is_drained: bool = False
    watcher_memory: str = ""
    sessions: str = ""
    undo: FakeUndo = field(default_factory=FakeUndo)
    submitted: list[Sequence[OpCode]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    submitters: list[Submitter] = field(default_factory=list)
    batch_keys: list[str | None] = field(default_factory=list)
    refuse: dict[int, GanetiError] = field(default_factory=dict)
    news: tuple[list[Any], list[LogEntry]] | None = None
    waited: list[tuple[Any, ...]] = field(default_factory=list)
    waiting: int = 0
    release: asyncio.Event | None = None
    busy: bool = True
    """Whether every user has a job that has not ended; then values are left to the jobs."""

    def unended_ops(self, source: str | None = None, /) -> list[OpCode]:
        del source
        return [OpTestDelay(duration=1)] if self.busy else []

    async def submit(
        self,
        ops: Sequence[OpCode],
        /,
        *,
        key: str | None = None,
        even_if_drained: bool = False,
        submitter: Submitter = LOCAL,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> int:
        if check is not None and key not in self.keys:
            await check()
        if self.is_drained and not even_if_drained:
            raise JobQueueDrained("the queue is drained")
        if key is not None and key in self.keys:
            return self.keys.index(key) + 1
        stems = [one.partition(".")[0] for one in self.keys if one is not None]
        if key is not None and key.partition(".")[0] in stems:
            raise PrereqError("the key was used for another request", ErrorCode.NOT_UNIQUE)
        self.keys.append(key)
        self.submitters.append(submitter)
        self.submitted.append(ops)
        job_id = len(self.submitted)
        self.live.append(FakeJob(job_id, [OpState(op=op) for op in ops], source=submitter.source))
        return job_id

    async def submit_many(
        self, jobs: Sequence[Sequence[OpCode]], /, *, key: str | None = None
    ) -> list[int | GanetiError]:
        self.batch_keys.append(key)
        return [
            self.refuse[number] if number in self.refuse else await self.submit(ops)
            for number, ops in enumerate(jobs)
        ]

    def status(self, job_id: int, /) -> JobStatus | None:
        job = self.view(job_id)
        return None if job is None else job.status

    async def cancel(self, job_id: int, /, *, kill: bool = False) -> tuple[bool, str]:
        if self.view(job_id) is None:
            raise JobLost(f"there is no job {job_id}")
        return True, f"Job {job_id} {'killed' if kill else 'canceled'}"

    async def archive(self, job_id: int, /) -> bool:
        return self.view(job_id) is not None

    async def auto_archive(self, age_s: float, timeout_s: float, /) -> tuple[int, int]:
        return int(age_s), int(timeout_s)

    async def change_priority(self, job_id: int, priority: int, /) -> tuple[bool, str]:
        return (
            True,
            f"Priorities of pending opcodes for job {job_id} have been changed to {priority}",
        )

    async def set_drained(self, drained: bool, /, *, moving: bool = False) -> None:
        del moving
        self.is_drained = drained

    async def keep_watcher_memory(self, text: str, /) -> None:
        self.watcher_memory = text

    async def keep_sessions(self, text: str, /) -> None:
        self.sessions = text

    async def wait_for_change(
        self,
        job_id: int,
        info_of: Callable[[Any], list[Any]],
        previous_info: list[Any] | None,
        previous_log_serial: int,
        timeout_s: float,
    ) -> tuple[list[Any], list[LogEntry]] | None:
        self.waited.append(
            (job_id, info_of(self.view(job_id)), previous_info, previous_log_serial, timeout_s)
        )
        if self.release is not None:
            self.waiting += 1
            try:
                await self.release.wait()
            finally:
                self.waiting -= 1
        return self.news


@dataclass
class FakeConfig:
    degraded: bool = False
    snapshot: Snapshot = field(default_factory=snapshot)

    async def state(self) -> dict[str, Any]:
        return {"kind": "etcd", "holders": ["node1.example.com"]}


@dataclass
class FakePause:
    end: float | None = None

    async def until(self) -> float | None:
        return self.end

    async def set(self, until: float | None) -> None:
        self.end = until


@dataclass
class FakeBackups:
    written: list[Path] = field(default_factory=list)

    async def write(self, path: Path, /) -> Position:
        self.written.append(path)
        return Position(2, 7)


@dataclass
class FakeFilters:
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    async def replace(
        self, uuid: str | None, priority: Any, predicates: Any, action: Any, reason_trail: Any, /
    ) -> str:
        self.calls.append((uuid, priority, predicates, action, reason_trail))
        return uuid or "made"

    async def delete(self, uuid: str, /) -> None:
        self.calls.append((uuid,))


@dataclass
class FakeAudit:
    """Remembers what it was told."""

    told: list[tuple[Caller, Request, Answer]] = field(default_factory=list)

    def asked(self, caller: Caller, request: Request, answer: Answer) -> None:
        self.told.append((caller, request, answer))


class FakePrograms:
    """Every OS and allocator exists but those whose name begins with `nosuch`."""

    async def lacks(self, snapshot: Snapshot, one: Reference) -> str:
        del snapshot
        return f"no node has {one.value}" if str(one.value).startswith("nosuch") else ""


@dataclass
class Master:
    """The LUXI methods and what is behind them."""

    queue: FakeQueue = field(default_factory=FakeQueue)
    config: FakeConfig = field(default_factory=FakeConfig)
    pause: FakePause = field(default_factory=FakePause)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    backups: FakeBackups = field(default_factory=FakeBackups)
    filters: FakeFilters = field(default_factory=FakeFilters)
    audit: FakeAudit = field(default_factory=FakeAudit)
    recovery: RecoveryStatus = field(default_factory=RecoveryStatus)

    links: LoginLinks = field(default_factory=lambda: LoginLinks(FrozenClock()))
    history: StateHistory = field(default_factory=StateHistory)

    records: list[dict[str, Any]] = field(default_factory=list)
    """The master's audit log, the newest record first."""

    consoles: Any = None
    """Opens consoles in place of the nodes."""
    pictures: Callable[[Snapshot, str], Awaitable[str]] | None = None
    """Takes pictures of screens in place of the nodes."""

    async def open(
        self, snapshot: Snapshot, scope: Scope | None, instance: str, kind: str, /
    ) -> dict[str, Any]:
        source = self.consoles or ConsoleSource(self.nodes)
        found: dict[str, Any] = await source.open(snapshot, scope, instance, kind)
        return found

    async def screenshot(self, snapshot: Snapshot, instance: str) -> str:
        take = self.pictures or ScreenshotSource(self.nodes).screenshot
        return await take(snapshot, instance)

    async def latest_records(self, query: AuditQuery) -> list[dict[str, Any]]:
        since = query.since or 0.0
        found = [one for one in self.records if query.fits(one) and one["time"] >= since]
        return found[: query.limit]

    async def overview(self) -> dict[str, Any]:
        return {"nodes": {"total": len(self.config.snapshot.nodes)}}

    async def impact(self, name: str, /) -> dict[str, Any]:
        return {"node": resolve_node(self.config.snapshot, name).name, "instances": []}

    async def impacts(self) -> dict[str, Any]:
        return {"nodes": []}

    def methods(self, *, rest_uid: int | None = None) -> LuxiMethods:
        clock = FrozenClock()
        rest = RestMethods(
            self.history.events,
            lambda: f"{self.config.snapshot.position}.0",
            lambda: FIGURES,
            lambda: self.config.snapshot,
            self,
            HistorySource(self.nodes, clock),
            self,
            lambda: None,
            self.latest_records,
            self.queue,
            self.links,
        )
        live = LiveSource(self.nodes, clock)
        facts = ClusterFacts(lambda: self.queue.is_drained, self.pause.until)
        queries = QueryExecutor(lambda: self.config.snapshot, self.queue, locks, live, facts)
        return LuxiMethods(
            audit=self.audit,
            ha_status=HaStatus(
                lambda: self.config.snapshot, lambda: self.recovery, elects_master=False
            ),
            queue=self.queue,
            config=self.config,
            queries=queries,
            watcher_pause=self.pause,
            screenshots=self,
            backups=self.backups,
            filters=self.filters,
            clock=clock,
            programs=FakePrograms(),
            more=rest.table(),
            rest_uid=rest_uid,
        )
