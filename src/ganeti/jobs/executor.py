"""The interface between the queue, which orders opcodes, and the units, which carry them out."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ganeti.config.transaction import Draft
from ganeti.locking.requests import LockRequest
from ganeti.model.job import UndoStep
from ganeti.model.opcodes import OpCode
from ganeti.model.progress import JobProgress
from ganeti.model.scope import Scope

Change = Callable[[Draft], None]
"""A change of the configuration, as a function of the pending one."""


@dataclass(frozen=True)
class Outcome:
    """The successful result of an opcode.

    The queue commits `change` together with the result (T3), and submits `jobs` with it.
    """

    result: Any = None
    change: Change | None = None
    jobs: Sequence[Sequence[OpCode]] = field(default_factory=tuple)
    """Further jobs; the result then becomes `{"jobs": [[true, id], …]}` together with its other content."""


class OpRun(Protocol):
    """A running opcode, as the units see it."""

    @property
    def job_id(self) -> int: ...

    @property
    def index(self) -> int:
        """Position of the opcode in its job, from 0."""
        ...

    @property
    def op(self) -> OpCode: ...

    @property
    def source(self) -> str:
        """Return the submitter (`model.job.is_remote`)."""
        ...

    @property
    def scope(self) -> Scope | None:
        """Return the submitter's limits; None without a limit."""
        ...

    @property
    def has_changed(self) -> bool:
        """Return whether the opcode has changed the configuration so far."""
        ...

    async def acquire(self, requests: Sequence[LockRequest]) -> None:
        """Wait for locks, as `waiting`; then the opcode is `running`. They are released when it ends.

        A repeated call first releases the locks of the earlier call: a job acquires all its locks
        at once.
        """
        ...

    def log(self, message: Any, kind: str = "message") -> None:
        """Tell the watchers of the job: a line of text, or data of another kind."""
        ...

    def progress(self, found: JobProgress | None) -> None:
        """Show how far the work is; None: nothing is being processed any more."""
        ...

    async def started(self) -> None:
        """Return when the opcode's start is durable (T2); awaited before the first changing call."""
        ...

    async def record_undo(self, steps: Sequence[UndoStep], change: Change | None = None) -> None:
        """Replace, durably, the steps to undo if the master dies now; implies `started`.

        `change` is made to the configuration in the same transaction.
        """
        ...

    async def leave_undone(self, steps: Sequence[UndoStep], undo: Sequence[UndoStep] = ()) -> None:
        """Record, durably, that only `undo` must be undone if the master dies, and that these steps failed.

        The failed steps stay with the job, beside all later records, and are retried when it has
        ended.
        """
        ...

    def takes_kill(self) -> bool:
        """Return whether the job was killed since the last call; its next call to a node must fail."""
        ...

    def killable(
        self, end: Callable[[], Coroutine[Any, Any, None]]
    ) -> AbstractContextManager[None]:
        """During the block, killing the job calls `end`, which ends the awaited work."""
        ...

    def interruptible(self) -> AbstractContextManager[None]:
        """Run a block that can be cancelled and checks for that itself.

        At its end it checks once more, so that an accepted cancel never ends in success.
        """
        ...

    def check_canceled(self) -> None:
        """Raise JobCanceled if the job was cancelled; for units that can stop in between."""
        ...


class Executor(Protocol):
    """Carries opcodes out."""

    async def run(self, run: OpRun) -> Outcome:
        """Carry one opcode out; any GanetiError makes the job an error, after its undo."""
        ...

    def describe_undo(self, step: UndoStep) -> str:
        """Describe for an administrator what a step would undo, and on which node."""
        ...

    def undo_locks(self, steps: Sequence[UndoStep]) -> list[LockRequest]:
        """Return the locks that running these steps beside other jobs requires."""
        ...

    async def undo(
        self, job_id: int, steps: Sequence[UndoStep], *, deferred: bool = False
    ) -> list[tuple[UndoStep, str]]:
        """Run recorded undo steps, last first; return the failed ones, first first, each with the reason.

        With `deferred` other jobs have run meanwhile: a step whose objects they have changed is
        skipped and counts as done. The caller then holds the `undo_locks`.
        """
        ...
