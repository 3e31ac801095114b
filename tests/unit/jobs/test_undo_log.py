"""The undo stack: recorded before the act, run backwards, left to the next master when we are none."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from ganeti.base.errors import (
    CommitUnknown,
    ErrorCode,
    ExecError,
    NotMaster,
    PrereqError,
    Refused,
)
from ganeti.jobs.executor import Change
from ganeti.jobs.undo_log import UndoLog
from ganeti.locking.requests import LockRequest
from ganeti.model.job import LOCAL_SOURCE, UndoStep
from ganeti.model.opcodes import OpCode
from ganeti.model.progress import JobProgress
from tests.unit.jobs.rig import Step, act

pytestmark = pytest.mark.virtual_time


class FakeRun:
    """Remembers what is recorded; may refuse."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.said: list[str] = []
        self.error: Exception | None = None
        self.change_error: Exception | None = None

    job_id = 1
    index = 0
    has_changed = False
    source, scope = LOCAL_SOURCE, None

    def progress(self, found: JobProgress | None) -> None: ...

    def takes_kill(self) -> bool:
        return False

    def killable(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        return nullcontext()

    def interruptible(self) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def op(self) -> OpCode:
        return act()

    async def acquire(self, requests: Sequence[LockRequest]) -> None: ...
    async def started(self) -> None: ...
    def check_canceled(self) -> None: ...

    def log(self, message: str, kind: str = "message") -> None:
        self.said.append(message)

    async def record_undo(self, steps: Sequence[UndoStep], change: Change | None = None) -> None:
        error = self.change_error if change else self.error
        if error is not None:
            raise error
        names = ",".join(step.procedure for step in steps)
        self.events.append(f"record {names}{' with change' if change else ''}")

    async def leave_undone(self, steps: Sequence[UndoStep], undo: Sequence[UndoStep] = ()) -> None:
        if self.error is not None:
            raise self.error
        outer = f" of {','.join(step.procedure for step in undo)}" if undo else ""
        self.events.append(f"leave {','.join(step.procedure for step in steps)}{outer}")

    async def undo(self, steps: Sequence[UndoStep]) -> list[tuple[UndoStep, str]]:
        for step in reversed(steps):
            self.events.append(f"undo {step.procedure}")
            await asyncio.sleep(1)
        return [(step, "no such node") for step in steps if step.arguments.get("broken")]


async def work(
    run: FakeRun,
    *steps: str,
    commit: bool = False,
    then: Exception | None = None,
    error: Exception | None = None,
) -> None:
    """Push steps (`!` marks those that cannot be undone), perhaps commit, perhaps fail."""
    async with UndoLog(run, run.undo) as log:
        for step in steps:
            await log.push(Step(step.rstrip("!"), {"broken": step.endswith("!")}))
        if commit:
            log.commit()
        run.error = error
        if then is not None:
            raise then


async def test_a_failure_undoes_the_steps_backwards_and_clears_the_record() -> None:
    run = FakeRun()
    with pytest.raises(ExecError, match="late"):
        await work(run, "a", "b", then=ExecError("late"))
    assert run.events == ["record a", "record a,b", "record a,b", "undo b", "undo a", "leave "]


async def test_what_is_committed_is_kept_and_its_record_cleared() -> None:
    run = FakeRun()
    await work(run, "a", commit=True)
    assert run.events == ["record a", "record "]


async def test_a_failure_after_the_commit_undoes_nothing() -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        await work(run, "a", commit=True, then=ExecError("the start failed"))
    assert run.events == ["record a", "record "]


async def test_leaving_without_a_commit_undoes() -> None:
    run = FakeRun()
    await work(run, "a")
    assert "undo a" in run.events


async def test_nothing_pushed_means_nothing_recorded() -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        await work(run, then=ExecError("early"))
    assert run.events == []


async def test_failed_step_stays_recorded_and_is_reported() -> None:
    run = FakeRun()
    with pytest.raises(ExecError) as caught:
        await work(run, "a", "b!", "c", then=ExecError("late"))
    assert run.events[-4:] == ["undo c", "undo b", "undo a", "leave b"]
    assert caught.value.__notes__ == ["could not undo (b): no such node"]
    assert "could not undo (b)" in run.said[0]


async def test_a_change_is_made_with_the_commit_even_where_nothing_was_pushed() -> None:
    for steps in ((), ("a",)):
        run = FakeRun()
        async with UndoLog(run, run.undo) as log:
            for step in steps:
                await log.push(Step(step))
            log.commit(lambda draft: None)
        assert run.events[-1] == "record  with change"


async def test_a_change_that_cannot_be_made_undoes_all() -> None:
    run = FakeRun()
    run.change_error = PrereqError("the name is taken", ErrorCode.EXISTS)

    async def changing() -> None:
        async with UndoLog(run, run.undo) as log:
            await log.push(Step("a"))
            log.commit(lambda draft: None)

    with pytest.raises(PrereqError, match="taken"):
        await changing()
    assert run.events == ["record a", "record a", "undo a", "leave "]


async def test_a_cancelled_task_still_undoes_to_the_end() -> None:
    run = FakeRun()
    entered = asyncio.Event()

    async def slow() -> None:
        async with UndoLog(run, run.undo) as log:
            await log.push(Step("a"))
            await log.push(Step("b"))
            entered.set()
            await asyncio.sleep(100)

    task = asyncio.create_task(slow())
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.events[-3:] == ["undo b", "undo a", "leave "]


@pytest.mark.requirement("G4", "G7")
@pytest.mark.parametrize("error", [NotMaster("over"), CommitUnknown("who knows")])
async def test_former_master_leaves_steps_to_the_next_one(
    error: Exception,
) -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        await work(run, "a", then=ExecError("late"), error=error)
    assert run.events == ["record a"]


async def test_a_full_disk_does_not_keep_us_from_undoing() -> None:
    run = FakeRun()
    with pytest.raises(ExecError):
        await work(run, "a", then=ExecError("late"), error=Refused("no space left"))
    assert run.events == ["record a", "undo a"]


async def test_a_step_that_cannot_be_recorded_stops_the_act() -> None:
    run = FakeRun()
    run.error = Refused("no space left")
    with pytest.raises(Refused):
        await work(run, "a", then=AssertionError("the act must not begin"))
    assert run.events == ["undo a"]


async def test_what_a_change_makes_superfluous_is_recorded_with_it_and_then_removed() -> None:
    run = FakeRun()
    async with UndoLog(run, run.undo) as undo:
        await undo.push(Step("a"))
        undo.commit(lambda draft: None, then=[Step("b"), Step("c", {"broken": True})])
    assert run.events == [
        "record a",
        "record b,c with change",
        "record b,c",
        "undo c",
        "undo b",
        "leave c",
    ]
    assert run.said == [" - WARNING: could not clean up (c): no such node"]


async def test_a_change_that_cannot_be_made_removes_nothing() -> None:
    run = FakeRun()
    run.change_error = Refused("full")
    with pytest.raises(Refused):
        await _pushed_and_committed(run)
    assert "undo a" in run.events
    assert "undo b" not in run.events


async def _pushed_and_committed(run: FakeRun) -> None:
    async with UndoLog(run, run.undo) as undo:
        await undo.push(Step("a"))
        undo.commit(lambda draft: None, then=[Step("b")])


@pytest.mark.parametrize("fails", [False, True])
async def test_after_the_turn_the_end_runs_what_follows_whatever_happens(fails: bool) -> None:
    run = FakeRun()
    with contextlib.suppress(ExecError):
        async with UndoLog(run, run.undo) as undo:
            await undo.push(Step("make"))
            await undo.turn(lambda _draft: None, then=[Step("remove_old")])
            if fails:
                raise ExecError("the copy is not filled")
    assert "record remove_old with change" in run.events
    assert "undo remove_old" in run.events
    assert "undo make" not in run.events


async def test_a_turn_that_cannot_be_made_undoes_what_was_done() -> None:
    run = FakeRun()
    run.change_error = Refused("no")
    with pytest.raises(Refused):
        await _turned(run)
    assert "undo make" in run.events
    assert "undo remove_old" not in run.events


async def _turned(run: FakeRun) -> None:
    async with UndoLog(run, run.undo) as undo:
        await undo.push(Step("make"))
        await undo.turn(lambda _draft: None, then=[Step("remove_old")])


@pytest.mark.parametrize("fails", [False, True])
async def test_the_steps_of_an_outer_block_stay_recorded_within_an_inner_one(fails: bool) -> None:
    run, open_logs = FakeRun(), list[UndoLog]()
    async with UndoLog(run, run.undo, open_logs) as outer:
        await outer.push(Step("outer"))
        with contextlib.suppress(ExecError):
            async with UndoLog(run, run.undo, open_logs) as inner:
                await inner.push(Step("inner"))
                inner.commit(then=[Step("tidy")])
                if fails:
                    raise ExecError("late")
        outer.commit()
    assert open_logs == []
    ends = (
        ["record outer"]
        if fails
        else ["record outer,tidy", "record outer,tidy", "undo tidy", "leave  of outer"]
    )
    assert run.events == ["record outer", "record outer,inner", *ends, "record "]


async def test_change_of_unknown_outcome_is_not_undone() -> None:
    run = FakeRun()
    run.change_error = CommitUnknown("the disk is broken")

    async def change() -> None:
        async with UndoLog(run, run.undo) as log:
            await log.push(Step("a"))
            log.commit(lambda draft: None)

    with pytest.raises(CommitUnknown):
        await change()
    assert run.events == ["record a"]


@pytest.mark.parametrize("fails", [True, False])
async def test_step_that_also_runs_after_a_commit_runs_either_way(*, fails: bool) -> None:
    run = FakeRun()
    with contextlib.suppress(ExecError):
        async with UndoLog(run, run.undo) as undo:
            await undo.push(Step("key"), also_after=True)
            await undo.push(Step("disk"))
            if fails:
                raise ExecError("late")
            undo.commit(lambda draft: None, then=[Step("old_disk")])
    undone = [event for event in run.events if event.startswith("undo")]
    assert undone == (["undo disk", "undo key"] if fails else ["undo old_disk", "undo key"])
