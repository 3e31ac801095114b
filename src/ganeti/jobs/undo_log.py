"""Undo steps of an opcode, recorded before its acts.

A step is recorded durably before the act that it undoes, because the outcome of an act may stay
unknown. So every step must succeed even if there is nothing to undo. Steps are recorded in the
order in which they were pushed and run backwards: here if the opcode fails, or by the next master
if this one dies or loses its mastership.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster, StoreError
from ganeti.base.run_to_completion import run_to_completion
from ganeti.jobs.executor import Change, OpRun
from ganeti.model.job import UndoStep

_log = logging.getLogger(__name__)


class Recordable(Protocol):
    """A step of the units; its record is stored."""

    def record(self) -> UndoStep: ...


Undo = Callable[[Sequence[UndoStep]], Awaitable[list[tuple[UndoStep, str]]]]
"""Runs steps, last first; returns the failed ones, first first, each with the reason."""


class UndoLog:
    """An undo stack as a block: after an error, or without `commit`, it runs its steps backwards.

    Within another block of the opcode (`open_logs`, innermost last) the steps of that block stay
    recorded.
    """

    def __init__(self, run: OpRun, undo: Undo, open_logs: "list[UndoLog] | None" = None) -> None:
        self._run = run
        self._undo = undo
        self._open_logs = [] if open_logs is None else open_logs
        self._outer: list[UndoLog] = []
        self._steps: list[UndoStep] = []
        self._after: list[UndoStep] = []
        self._is_committed = False
        self._change: Change | None = None
        self._then: tuple[UndoStep, ...] = ()

    async def __aenter__(self) -> Self:
        self._outer = list(self._open_logs)
        self._open_logs.append(self)
        return self

    async def push(self, step: Recordable, *, also_after: bool = False) -> None:
        """Record how to undo the next act; return once the record is durable.

        With `also_after` the step runs after a commit, too, because the act's result is then
        useless.
        """
        self._steps.append(step.record())
        if also_after:
            self._after.append(step.record())
        await self._run.record_undo(self._with_outer(self._steps))

    def amend(self, step: Recordable, now: Recordable) -> None:
        """Replace a step with present knowledge about its act.

        Recorded with the next step, or at the block's end.
        """
        self._steps[self._steps.index(step.record())] = now.record()

    def commit(self, change: Change | None = None, *, then: Sequence[Recordable] = ()) -> None:
        """Mark the work so far as good: the end of the block undoes nothing of it.

        `change` is made to the configuration in the same transaction; if it cannot be made,
        everything is undone. `then` are the steps that remove objects that `change` makes
        superfluous. They are recorded in the same transaction, and run, last first, by this master
        or by the next one. A failed step raises nothing: it stays recorded with the job and is
        retried.
        """
        self._is_committed = True
        self._change = change
        self._then = (*self._after, *(step.record() for step in then))

    async def turn(self, change: Change, *, then: Sequence[Recordable]) -> None:
        """Make `change` now, in the middle of the block: from here on its end, good or bad, runs `then`.

        For work that continues after the change has become the desired state. If the change cannot
        be made, this raises, and the block undoes the pushed steps.
        """
        steps = [step.record() for step in then]
        await self._run.record_undo(self._with_outer(steps), change)
        self._steps = steps

    def _with_outer(self, steps: Sequence[UndoStep]) -> list[UndoStep]:
        """Return the record for these steps of this block."""
        return [*(step for log in self._outer for step in log.steps), *steps]

    @property
    def steps(self) -> tuple[UndoStep, ...]:
        """Return the steps to run if the opcode ends now."""
        return tuple(self._steps)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end(error)
        finally:
            self._open_logs.remove(self)

    async def _end(self, error: BaseException | None) -> None:
        if self._is_committed and error is None and (self._change is not None or self._then):
            await self._commit_with(self._change)
            return
        if not self._steps:
            return
        if self._is_committed:
            # If this is not written, the next master may undo an opcode that has not ended.
            await self._leave([])
            return
        notes = await run_to_completion(self._run_back())
        for note in notes:
            if error is not None:
                error.add_note(note)

    async def _commit_with(self, change: Change | None) -> None:
        try:
            await self._run.record_undo(self._with_outer(self._then), change)
        except (NotMaster, CommitUnknown):
            raise
        except GanetiError as err:
            for note in await run_to_completion(self._run_back()):
                err.add_note(note)
            raise
        if self._then:
            self._steps = list(self._then)
            await run_to_completion(self._run_back())

    async def _run_back(self) -> list[str]:
        """Undo all steps, last first; failed steps stay recorded, and are returned as text."""
        # A former master notices here that it has ended, and leaves the steps to the next master.
        if not await self._leave(self._steps):
            return []
        failed = await self._undo(self._steps)
        notes: list[str] = []
        for step, why in reversed(failed):
            what = "clean up" if self._is_committed and step in self._then else "undo"
            notes.append(f"could not {what} ({step.procedure}): {why}")
            self._run.log(f" - WARNING: {notes[-1]}")
        left = [step for step, _why in failed]
        await self._record(self._run.leave_undone(left, self._with_outer(())))
        return notes

    async def _leave(self, left: Sequence[UndoStep]) -> bool:
        """Record the remaining steps; return False if this master may not act any more."""
        return await self._record(self._run.record_undo(self._with_outer(left)))

    async def _record(self, record: Awaitable[None]) -> bool:
        try:
            await record
        except (NotMaster, CommitUnknown):
            return False
        except StoreError as err:  # with a full disk the record names every step for now; the end of the job corrects it
            _log.warning("job %d: %s", self._run.job_id, err)
        return True
