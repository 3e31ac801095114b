"""What the LUXI methods need of the rest of the master."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ganeti.base.errors import GanetiError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.job import LOCAL, LogEntry, Submitter
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.query.context import JobRow
from ganeti.store.interface import Position


class UndoSteps(Protocol):
    """What jobs that have ended left undone (`jobs.pending_undo.PendingUndo`)."""

    def listing(self) -> Sequence[PendingStep]: ...

    async def abandon(self, job_id: int, ident: str, /) -> str:
        """Give one up; what is left, and where. PrereqError."""
        ...


class Queue(Protocol):
    """The job queue (`jobs.queue.JobQueue`)."""

    @property
    def undo(self) -> UndoSteps: ...

    @property
    def is_drained(self) -> bool:
        """Whether new jobs are refused."""
        ...

    def is_busy(self, source: str, /) -> bool:
        """Whether a job of this source has not ended."""
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
        """The id of the durable job, which is the same for the same key; `check` may refuse a new one.

        JobQueueFull, JobQueueDrained, PrereqError.
        """
        ...

    async def submit_many(
        self, jobs: Sequence[Sequence[OpCode]], /, *, key: str | None = None
    ) -> Sequence[int | GanetiError]:
        """For each job its id or why there is none; the same for the same key."""
        ...

    async def cancel(self, job_id: int, /, *, kill: bool = False) -> tuple[bool, str]:
        """Whether the job will end, and why (not); with `kill` also what runs of it. JobLost."""
        ...

    async def archive(self, job_id: int, /) -> bool: ...

    async def auto_archive(self, age_s: float, timeout_s: float, /) -> tuple[int, int]:
        """How many were archived, and how many were not looked at in time."""
        ...

    async def change_priority(self, job_id: int, priority: int, /) -> tuple[bool, str]: ...

    async def set_drained(self, drained: bool, /, *, moving: bool = False) -> None: ...  # noqa: FBT001 - a plain setter

    @property
    def watcher_memory(self) -> str:
        """What the watcher has kept."""
        ...

    async def keep_watcher_memory(self, text: str, /) -> None: ...

    def status(self, job_id: int, /) -> JobStatus | None:
        """Of a job that is not archived; None if there is none."""
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
        """News of a live job; None if there is none until the timeout. JobLost."""
        ...


class Configuration(Protocol):
    """The configuration, for readers (`config.config.Config`)."""

    @property
    def degraded(self) -> bool:
        """Whether only the master holds the state (R6)."""
        ...

    @property
    def snapshot(self) -> Snapshot: ...

    async def state(self) -> dict[str, Any]:
        """What keeps the state ("kind"), and the names of our nodes that have it ("holders")."""
        ...


class WatcherPause(Protocol):
    """Until when the watcher is to rest."""

    async def until(self) -> float | None:
        """Seconds since the epoch; None if it works."""
        ...

    async def set(self, until: float | None) -> None: ...


class Screenshots(Protocol):
    """What instances show (`query.screenshots.ScreenshotSource`)."""

    async def screenshot(self, snapshot: Snapshot, instance: str) -> str:
        """A PNG picture in base64; PrereqError, RpcError."""
        ...


class Filters(Protocol):
    """Job filters (`query.filter_changes.FilterChanges`)."""

    async def replace(
        self, uuid: str | None, priority: Any, predicates: Any, action: Any, reason_trail: Any, /
    ) -> str:
        """Make a filter, in place of the one of this UUID if there is one; its UUID. InputError."""
        ...

    async def delete(self, uuid: str, /) -> None:
        """Take a filter away; PrereqError."""
        ...


class Backups(Protocol):
    """Backups of the state (`store.backup_file.BackupFiles`)."""

    async def write(self, path: Path, /) -> Position:
        """Write one as a file; HostError or StoreError, and then there is none."""
        ...
