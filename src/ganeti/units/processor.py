"""Takes an opcode through the phases of its logical unit."""

import logging
from collections.abc import Sequence

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.model.job import UndoStep
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.registry import UNITS
from ganeti.units.services import Services
from ganeti.units.undo import run_step

_log = logging.getLogger(__name__)

LOCK_ATTEMPTS = 10
"""How often locks are declared anew because what they protect changed before they were held."""


class Processor:
    """The executor of the job queue."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, run: OpRun) -> Outcome:
        """Check, lock, decide, act; see `LogicalUnit`."""
        ctx = UnitContext(self._services, run)
        unit: LogicalUnit[object, object] = UNITS[type(run.op)](run.op)  # type: ignore[type-var]  # by registry
        try:
            unit.check_arguments()
            await self._lock(unit, run)
            plan = await unit.check_prereq(ctx)
            if run.op.dry_run:
                return Outcome(unit.dry_run_result(ctx, plan))
            return await unit.execute(ctx, plan)
        except GanetiError:
            raise
        except Exception as err:
            _log.exception("job %d: %s failed unexpectedly", run.job_id, run.op.summary())
            raise ExecError(
                f"internal error in {run.op.summary()}: {type(err).__name__}: {err}"
            ) from err
        finally:
            self._services.config.reservations.release(run.job_id)
            self._services.placements.release(run.job_id)

    async def _lock(self, unit: LogicalUnit[object, object], run: OpRun) -> None:  # type: ignore[type-var]  # as above
        config = self._services.config
        requests = unit.declare_locks(config.snapshot)
        for _attempt in range(LOCK_ATTEMPTS):
            await run.acquire(requests)
            wanted = unit.declare_locks(config.snapshot)
            if wanted == requests:
                return
            requests = wanted
        raise PrereqError(
            "what this operation needs kept changing while it waited for its locks; try again",
            ErrorCode.TEMP_NO_RESOURCES,
        )

    async def undo(self, job_id: int, steps: Sequence[UndoStep]) -> None:
        """Run the steps of a job whose master died, last first; all are tried, then failures are raised."""
        failures = []
        for step in reversed(steps):
            try:
                await run_step(self._services, job_id, step)
            except GanetiError as err:
                failures.append(f"{step.procedure}: {err}")
        if failures:
            raise ExecError("; ".join(failures))
