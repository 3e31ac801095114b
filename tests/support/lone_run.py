"""One opcode that runs without a job: it gets every lock at once, and nothing of it is kept."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ganeti.jobs.executor import Change
from ganeti.locking.requests import LockRequest
from ganeti.model.job import LOCAL_SOURCE, UndoStep
from ganeti.model.opcodes.base import OpCode
from ganeti.model.progress import JobProgress


class LoneRun:
    """An `OpRun` for one unit. AssertionError where the unit records an undo step."""

    job_id, index, source, scope = 1, 0, LOCAL_SOURCE, None
    has_changed = False

    def __init__(self, op: OpCode) -> None:
        self.op = op

    def progress(self, found: JobProgress | None) -> None: ...

    def takes_kill(self) -> bool:
        return False

    def killable(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        return nullcontext()

    def interruptible(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def acquire(self, requests: Sequence[LockRequest]) -> None:
        """Grant the requests; all of them must have the form of locks."""
        assert all(isinstance(one, LockRequest) for one in requests)

    def log(self, message: Any, kind: str = "message") -> None:
        pass

    async def started(self) -> None:
        pass

    async def record_undo(self, steps: Sequence[UndoStep], change: Change | None = None) -> None:
        raise AssertionError("the unit acts")

    async def leave_undone(self, steps: Sequence[UndoStep], undo: Sequence[UndoStep] = ()) -> None:
        raise AssertionError("the unit acts")

    def check_canceled(self) -> None:
        pass
