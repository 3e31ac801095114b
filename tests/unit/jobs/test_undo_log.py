"""The undo stack: recorded before the act, run backwards, left to the next master when we are none."""

import asyncio
from collections.abc import Sequence

import pytest

from ganeti.base.errors import CommitUnknown, ExecError, NotMaster, Refused
from ganeti.jobs.undo_log import UndoLog
from ganeti.locking.requests import LockRequest
from ganeti.model.job import UndoStep
from ganeti.model.opcodes import OpCode
from tests.unit.jobs.rig import act

pytestmark = pytest.mark.virtual_time


class FakeRun:
    """Remembers what is recorded; may refuse."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.said: list[str] = []
        self.error: Exception | None = None

    job_id = 1
    index = 0

    @property
    def op(self) -> OpCode:
        return act()

    async def acquire(self, requests: Sequence[LockRequest]) -> None: ...
    async def started(self) -> None: ...
    def check_canceled(self) -> None: ...

    def log(self, message: str, kind: str = "message") -> None:
        self.said.append(message)

    async def record_undo(self, steps: Sequence[UndoStep]) -> None:
        if self.error is not None:
            raise self.error
        self.events.append("record " + ",".join(step.procedure for step in steps))

    async def undo(self, step: UndoStep) -> None:
        self.events.append(f"undo {step.procedure}")
        if step.arguments.get("broken"):
            raise ExecError("no such node")
        await asyncio.sleep(1)


async def test_a_failure_undoes_the_steps_backwards_and_clears_the_record() -> None:
    run = FakeRun()
    with pytest.raises(ExecError, match="late"):
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            await log.push("b", disk=1)
            raise ExecError("late")
    assert run.events == ["record a", "record a,b", "record a,b", "undo b", "undo a", "record "]


async def test_what_is_committed_is_kept_and_its_record_cleared() -> None:
    run = FakeRun()
    async with UndoLog(run, run.undo) as log:
        await log.push("a")
        log.commit()
    assert run.events == ["record a", "record "]


async def test_a_failure_after_the_commit_undoes_nothing() -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            log.commit()
            raise ExecError("the start failed")
    assert run.events == ["record a", "record "]


async def test_leaving_without_a_commit_undoes() -> None:
    run = FakeRun()
    async with UndoLog(run, run.undo) as log:
        await log.push("a")
    assert "undo a" in run.events


async def test_nothing_pushed_means_nothing_recorded() -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        async with UndoLog(run, run.undo):
            raise ExecError("early")
    assert run.events == []


async def test_a_step_that_fails_stays_recorded_and_is_told_and_the_others_are_undone() -> None:
    run = FakeRun()
    with pytest.raises(ExecError) as caught:
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            await log.push("b", broken=True)
            await log.push("c")
            raise ExecError("late")
    assert run.events[-4:] == ["undo c", "undo b", "undo a", "record b"]
    assert caught.value.__notes__ == ["could not undo (b): no such node"]
    assert "could not undo (b)" in run.said[0]


async def test_a_cancelled_task_still_undoes_to_the_end() -> None:
    run = FakeRun()
    entered = asyncio.Event()

    async def work() -> None:
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            await log.push("b")
            entered.set()
            await asyncio.sleep(100)

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.events[-3:] == ["undo b", "undo a", "record "]


@pytest.mark.requirement("G4", "G7")
@pytest.mark.parametrize("error", [NotMaster("over"), CommitUnknown("who knows")])
async def test_whoever_is_not_the_master_any_more_leaves_the_steps_to_the_next_one(
    error: Exception,
) -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            run.error = error
            raise ExecError("late")
    assert run.events == ["record a"]


async def test_a_full_disk_does_not_keep_us_from_undoing() -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            run.error = Refused("no space left")
            raise ExecError("late")
    assert run.events == ["record a", "undo a"]


async def test_a_step_that_cannot_be_recorded_stops_the_act() -> None:
    run = FakeRun()
    run.error = Refused("no space left")
    with pytest.raises(Refused):
        async with UndoLog(run, run.undo) as log:
            await log.push("a")
            raise AssertionError("the act must not begin")
