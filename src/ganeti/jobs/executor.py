"""The port between the queue, which orders opcodes, and the units, which carry them out."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ganeti.config.transaction import Draft
from ganeti.locking.requests import LockRequest
from ganeti.model.job import UndoStep
from ganeti.model.opcodes import OpCode
from ganeti.model.scope import Scope

Change = Callable[[Draft], None]
"""A change of the configuration, as a function of the pending one."""


@dataclass(frozen=True)
class Outcome:
    """How an opcode ended well.

    The queue commits `change` together with the result (T3), and submits `jobs` with it.
    """

    result: Any = None
    change: Change | None = None
    jobs: Sequence[Sequence[OpCode]] = field(default_factory=tuple)
    """Further jobs; the result then becomes `{"jobs": [[true, id], …]}` beside what it holds."""


class OpRun(Protocol):
    """One opcode that is being run, as the units see it."""

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
        """Who submitted the job (`model.job.is_remote`)."""
        ...

    @property
    def scope(self) -> Scope | None:
        """To what the submitter is limited; None for no limit."""
        ...

    @property
    def has_changed(self) -> bool:
        """Whether the opcode has changed the configuration so far."""
        ...

    async def acquire(self, requests: Sequence[LockRequest]) -> None:
        """Wait for locks, as `waiting`; then the opcode is `running`. They are freed when it ends.

        Called again, it first frees what the call before took: a job takes all its locks in one go.
        """
        ...

    def log(self, message: Any, kind: str = "message") -> None:
        """Tell the watchers of the job: a line of text, or data of another kind."""
        ...

    async def started(self) -> None:
        """Return when the opcode's start is durable (T2); awaited before the first changing call."""
        ...

    async def record_undo(self, steps: Sequence[UndoStep], change: Change | None = None) -> None:
        """Replace, durably, what must be undone if the master dies now; implies `started`.

        `change` is made to the configuration in the same transaction.
        """
        ...

    async def leave_undone(self, steps: Sequence[UndoStep], undo: Sequence[UndoStep] = ()) -> None:
        """Record, durably, that only `undo` is to be undone if the master dies, and that these steps could not be run.

        The latter stay with the job, beside all that is recorded later, and are tried again when it has ended.
        """
        ...

    def takes_kill(self) -> bool:
        """Whether the job was killed since the last call; its next call to a node must fail."""
        ...

    def killable(
        self, end: Callable[[], Coroutine[Any, Any, None]]
    ) -> AbstractContextManager[None]:
        """While the block runs, killing the job calls `end`, which ends what the block waits for."""
        ...

    def interruptible(self) -> AbstractContextManager[None]:
        """A block that asks whether the job is cancelled: a cancel is accepted while it runs.

        At its end it asks once more, so that an accepted cancel never ends in success.
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
        """What a step would undo, and where, for an administrator."""
        ...

    def undo_locks(self, steps: Sequence[UndoStep]) -> list[LockRequest]:
        """What must be held while steps are run beside other jobs."""
        ...

    async def undo(
        self, job_id: int, steps: Sequence[UndoStep], *, deferred: bool = False
    ) -> list[tuple[UndoStep, str]]:
        """Run recorded undo steps, last first; returns those that failed, first first, each with the reason.

        With `deferred` other jobs have run meanwhile: what they made of the things that a step is about
        is left alone, and such a step counts as done. Whoever calls that holds the `undo_locks`.
        """
        ...
