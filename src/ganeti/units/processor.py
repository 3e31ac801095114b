"""The run of an opcode through the phases of its logical unit."""

import logging
from collections.abc import Sequence
from typing import Any

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.job import UndoStep
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.expected import check_expected
from ganeti.units.hooks.listing import HookListing
from ganeti.units.hooks.operation import OperationHooks
from ganeti.units.job_scope import check_scope
from ganeti.units.registry import UNITS
from ganeti.units.services import Services
from ganeti.units.undo.run import describe, locks_of, run_steps

_log = logging.getLogger(__name__)

LOCK_ATTEMPTS = 10
"""The number of times that locks are declared because the protected objects changed before they were held."""


class Processor:
    """The executor of the job queue."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hook_listing = HookListing(services.shared, services.own_hooks, services.hook_reports)

    async def run(self, run: OpRun) -> Outcome:
        """Check, lock, decide, act; see `LogicalUnit`."""
        ctx = UnitContext(self._services, run)
        try:
            unit = UNITS[type(run.op)](run.op)
            unit.check_arguments()
            await unit.before_locks(run)
            await self._lock(unit, run)
            check_scope(ctx.snapshot, run.scope, run.op)
            check_expected(ctx.snapshot, run.op)
            begun = self._hook_listing.reports.moment()
            plan = await unit.check_prereq(ctx)
            if run.op.dry_run:
                return Outcome(unit.dry_run_result(ctx, plan))
            ctx.hooks = hooks = OperationHooks(self._hook_listing, ctx, unit, plan, begun)
            await hooks.before()
            return await hooks.after(await unit.execute(ctx, plan))
        except GanetiError:
            raise
        except Exception as err:
            _log.exception("job %d: %s failed unexpectedly", run.job_id, run.op.summary())
            raise ExecError(
                f"internal error in {run.op.summary()} ({type(err).__name__});"
                " see the log of the master daemon"
            ) from err
        finally:
            self._services.placements.release(run.job_id)

    async def _lock(self, unit: LogicalUnit[Any, Any], run: OpRun) -> None:
        """Take the locks that the unit declares once they are held."""
        config = self._services.config
        for _attempt in range(LOCK_ATTEMPTS):
            requests = unit.declare_locks(config.snapshot)
            await run.acquire(requests)
            if unit.declare_locks(config.snapshot) == requests:
                return
        raise PrereqError(
            "the objects of this operation kept changing while it waited for its locks; repeat the operation",
            ErrorCode.TEMP_NO_RESOURCES,
        )

    def describe_undo(self, step: UndoStep) -> str:
        """Describe what a step would undo."""
        return describe(self._services.config.snapshot, step)

    def undo_locks(self, steps: Sequence[UndoStep]) -> list[LockRequest]:
        """Return the locks that deferred steps need."""
        return locks_of(self._services.config.snapshot, steps)

    async def undo(
        self, job_id: int, steps: Sequence[UndoStep], *, deferred: bool = False
    ) -> list[tuple[UndoStep, str]]:
        """Run the recorded steps of a job, last first; return the failed ones, with the reason."""
        return await run_steps(self._services, job_id, steps, deferred=deferred)
