"""The interfaces of the LUXI methods to the rest of the master."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ganeti.base.errors import GanetiError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.figures import Range
from ganeti.model.job import LOCAL, LogEntry, Submitter
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.scope import Scope
from ganeti.query.context import JobRow
from ganeti.store.interface import Position


class UndoSteps(Protocol):
    """The pending undo of ended jobs (`jobs.pending_undo.PendingUndo`)."""

    def listing(self) -> Sequence[PendingStep]: ...

    async def abandon(self, job_id: int, ident: str, /) -> str:
        """Abandon a step; return what it would have undone, and on which node. PrereqError."""
        ...


class Queue(Protocol):
    """The job queue (`jobs.queue.JobQueue`)."""

    @property
    def undo(self) -> UndoSteps: ...

    @property
    def is_drained(self) -> bool:
        """Return whether new jobs are refused."""
        ...

    def unended_ops(self, source: str | None = None, /) -> Iterable[OpCode]:
        """Return the opcodes of the jobs that have not ended, of one source or of all."""
        ...

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
        """Return the id of the durable job, the same for the same key; `check` may refuse a new one.

        JobQueueFull, JobQueueDrained, PrereqError.
        """
        ...

    async def submit_many(
        self, jobs: Sequence[Sequence[OpCode]], /, *, key: str | None = None
    ) -> Sequence[int | GanetiError]:
        """Return for each job its id or the error; the same for the same key."""
        ...

    async def cancel(self, job_id: int, /, *, kill: bool = False) -> tuple[bool, str]:
        """Return whether the job will end, and why (not); `kill` also ends running work. JobLost."""
        ...

    async def archive(self, job_id: int, /) -> bool: ...

    async def auto_archive(self, age_s: float, timeout_s: float, /) -> tuple[int, int]:
        """Return the number of archived jobs, and of those not looked at in time."""
        ...

    async def change_priority(self, job_id: int, priority: int, /) -> tuple[bool, str]: ...

    async def set_drained(self, drained: bool, /, *, moving: bool = False) -> None: ...  # noqa: FBT001 - a plain setter

    @property
    def watcher_memory(self) -> str:
        """Return the watcher's stored data."""
        ...

    async def keep_watcher_memory(self, text: str, /) -> None: ...

    def status(self, job_id: int, /) -> JobStatus | None:
        """Return the state of a job that is not archived; None if it does not exist."""
        ...

    def view(self, job_id: int, /) -> JobRow | None: ...

    async def wait_for_change(
        self,
        job_id: int,
        info_of: Callable[[Any], list[Any]],
        previous_info: list[Any] | None,
        previous_log_serial: int,
        timeout_s: float,
    ) -> tuple[list[Any], list[LogEntry]] | None:
        """Return changes of a live job; None after the timeout. JobLost."""
        ...


class Consoles(Protocol):
    """The consoles of instances (`query.consoles.ConsoleSource`)."""

    async def open(
        self, snapshot: Snapshot, scope: Scope | None, instance: str, kind: str, /
    ) -> dict[str, Any]:
        """Return the endpoint to a console on the instance's node; PrereqError, InputError, RpcError."""
        ...


class Histories(Protocol):
    """The history of figures (`query.history.HistorySource`)."""

    async def history(
        self, snapshot: Snapshot, kind: str, name: str, wanted: Range, /
    ) -> dict[str, Any]:
        """Return the steps of a range; PrereqError, InputError."""
        ...


class Surveys(Protocol):
    """Surveys of the cluster (`units.survey.Survey`)."""

    async def overview(self) -> dict[str, Any]:
        """Return the cluster at a glance; GanetiError."""
        ...

    async def impact(self, name: str, /) -> dict[str, Any]:
        """Return what the loss of a node would mean; GanetiError."""
        ...

    async def impacts(self) -> dict[str, Any]:
        """Return what the loss of each node would mean, as counts; GanetiError."""
        ...


class SessionMemory(Protocol):
    """The stored sessions of the web console (`jobs.queue.JobQueue`)."""

    @property
    def sessions(self) -> str:
        """Return what was stored last; '' if nothing was."""
        ...

    async def keep_sessions(self, text: str, /) -> None:
        """Store the sessions durably."""
        ...


class Configuration(Protocol):
    """The configuration, for readers (`config.config.Config`)."""

    @property
    def degraded(self) -> bool:
        """Return whether only the master holds the state (R6)."""
        ...

    @property
    def snapshot(self) -> Snapshot: ...

    async def state(self) -> dict[str, Any]:
        """Return the back end of the state ("kind"), and the names of the nodes that have it ("holders")."""
        ...


class WatcherPause(Protocol):
    """The pause of the watcher."""

    async def until(self) -> float | None:
        """Return the end in seconds since the epoch; None without a pause."""
        ...

    async def set(self, until: float | None) -> None: ...


class Screenshots(Protocol):
    """The screens of instances (`query.screenshots.ScreenshotSource`)."""

    async def screenshot(self, snapshot: Snapshot, instance: str) -> str:
        """Return a PNG picture in base64; PrereqError, RpcError."""
        ...


class Filters(Protocol):
    """Job filters (`query.filter_changes.FilterChanges`)."""

    async def replace(
        self, uuid: str | None, priority: Any, predicates: Any, action: Any, reason_trail: Any, /
    ) -> str:
        """Create a filter, or replace the one of this UUID; return its UUID. InputError."""
        ...

    async def delete(self, uuid: str, /) -> None:
        """Delete a filter; PrereqError."""
        ...


class Backups(Protocol):
    """Backups of the state (`store.backup_file.BackupFiles`)."""

    async def write(self, path: Path, /) -> Position:
        """Write a backup to a file; HostError or StoreError, without a file."""
        ...
