"""Values that the present configuration does not allow, found before a job is made of an opcode.

No separate checks exist: the phases of the logical unit run up to the first call to a node, with the present
configuration and without locks. Checks that need another service are left to the job.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.ids import IdSource, RandomIds
from ganeti.config.reservations import Reservations
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Change
from ganeti.locking.requests import LockRequest
from ganeti.model.job import Submitter, UndoStep
from ganeti.model.opcodes import OpCode
from ganeti.model.progress import JobProgress
from ganeti.model.scope import Scope
from ganeti.units.context import UnitContext
from ganeti.units.placements import Placements
from ganeti.units.registry import UNITS
from ganeti.units.services import Services

LIMIT_S = 0.05
"""The longest time of a check, for example for the resolver of names."""


async def check_values(
    snapshot: Snapshot, op: OpCode, submitter: Submitter, clock: Clock, ids: IdSource | None = None
) -> None:
    """Raise PrereqError with the code WRONG_INPUT for a value that the job would refuse at its start.

    Nothing changes, and no node is queried. All other faults are found by the job.
    """
    if not op.host_changing:
        return
    unit = UNITS[type(op)](op)
    ids = ids or RandomIds()
    nothing = cast("Any", _Absent())
    services = Services(
        config=cast("Any", _Configuration(snapshot, Reservations(ids))),
        rpc=nothing,
        ids=ids,
        clock=clock,
        placements=Placements(),
        ssconf=nothing,
        candidates=nothing,
    )
    context = UnitContext(services, _Request(op, submitter.source, submitter.scope))
    try:
        async with asyncio.timeout(LIMIT_S):
            unit.check_arguments()
            unit.declare_locks(snapshot)
            await unit.check_prereq(context)
    except PrereqError as err:
        if err.code is ErrorCode.WRONG_INPUT:
            raise
    except Exception:  # noqa: BLE001 - the check ends at the first query to a node, and the job reports all else
        return


class _Absent:
    """A service that a check lacks: the check ends there."""

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


@dataclass(frozen=True)
class _Configuration:
    """The configuration as a unit reads it; reservations are dropped."""

    snapshot: Snapshot
    reservations: Reservations


@dataclass(frozen=True)
class _Request:
    """An opcode without a job, in the form for units; its log is dropped."""

    op: OpCode
    source: str
    scope: Scope | None
    job_id: int = 0
    index: int = 0
    has_changed: bool = False

    def log(self, message: Any, kind: str = "message") -> None:
        """Record nothing."""

    def progress(self, found: JobProgress | None) -> None:
        """Show nothing."""

    def takes_kill(self) -> bool:
        return False

    def check_canceled(self) -> None:
        """Do nothing: there is no job to cancel."""

    @contextlib.contextmanager
    def killable(self, end: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
        del end
        yield

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        yield

    async def acquire(self, requests: Sequence[LockRequest]) -> None:
        raise LookupError(requests)

    async def started(self) -> None:
        raise LookupError("started")

    async def record_undo(self, steps: Sequence[UndoStep], change: Change | None = None) -> None:
        raise LookupError(steps, change)

    async def leave_undone(self, steps: Sequence[UndoStep], undo: Sequence[UndoStep] = ()) -> None:
        raise LookupError(steps, undo)
