"""What an ended job could not undo: recorded with it, kept by every master, and tried again until it is undone."""

import asyncio

import pytest

from ganeti.base.errors import ExecError, PrereqError
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.jobs.pending_undo import LONGEST_WAIT_S
from ganeti.jobs.undo_log import UndoLog
from ganeti.locking.levels import Level
from ganeti.locking.requests import lock
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus
from ganeti.simulation.faulty_store import Refuse
from tests.unit.jobs.rig import Puppet, Rig, Step, act, settle, statuses

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "F23")]

WHY = "node1 does not answer"
A_WHILE_S = 3 * LONGEST_WAIT_S


def leave(puppet: Puppet, *procedures: str, fail: bool = False) -> None:
    """Opcodes with the comment `leave` do their work, and cannot clean up after it as long as these are stuck."""

    async def run(run: OpRun) -> Outcome:
        await run.acquire([lock(Level.INSTANCE, "web1")])
        steps = [Step(procedure, {"lock": "web1"}) for procedure in procedures]
        async with UndoLog(run, lambda steps: puppet.undo(run.job_id, steps)) as undo:
            if fail:
                for step in steps:
                    await undo.push(step)
                raise ExecError("it broke")
            undo.commit(then=steps)
        return Outcome("done")

    puppet.behaviours["leave"] = run


async def with_pending_undo(*, fail: bool = False) -> tuple[Rig, int]:
    """A job that ended, and that left one of two steps undone."""
    rig = await Rig.loaded()
    leave(rig.executor, "first", "second", fail=fail)
    rig.executor.stuck["first"] = WHY
    job_id = await rig.queue.submit([act(comment="leave")])
    view = await rig.final(job_id)
    assert view.status is (JobStatus.ERROR if fail else JobStatus.SUCCESS)
    return rig, job_id


def left(rig: Rig) -> list[tuple[int, str, str]]:
    return [(one.job_id, one.procedure, one.why) for one in rig.queue.pending_undo()]


@pytest.mark.parametrize("fail", [False, True])
async def test_a_step_that_failed_is_run_again_until_it_is_done(fail: bool) -> None:
    rig, job_id = await with_pending_undo(fail=fail)
    assert left(rig) == [(job_id, "first", "")]
    await asyncio.sleep(A_WHILE_S)
    assert left(rig) == [(job_id, "first", WHY)]
    tries = len(rig.world.undone)
    assert tries > 3
    assert all(steps == [UndoStep("first", {"lock": "web1"})] for _, steps in rig.world.undone[1:])
    assert rig.executor.deferred == [False, *[True] * (tries - 1)]
    rig.executor.stuck.clear()
    await asyncio.sleep(LONGEST_WAIT_S)
    assert left(rig) == []
    tries = len(rig.world.undone)
    await asyncio.sleep(A_WHILE_S)
    assert len(rig.world.undone) == tries
    view = rig.queue.view(job_id)
    assert statuses(view) == (["error", "error"] if fail else ["success", "success"])
    assert view is not None
    assert "are done now; 0 remain" in str(view.log_after(0))
    assert not rig.locks.owners()
    await rig.end()


async def test_next_master_retries_every_step_at_once() -> None:
    rig, job_id = await with_pending_undo()
    stuck = dict(rig.executor.stuck)
    world = await rig.crash()
    rig = await Rig.begin(world)
    rig.executor.stuck.update(stuck)
    await rig.queue.load()
    await settle()
    assert left(rig) == [(job_id, "first", WHY)]
    rig = await rig.restart()
    await settle()
    assert left(rig) == []
    assert world.undone[-1] == (job_id, [UndoStep("first", {"lock": "web1"})])
    tries = len(world.undone)
    rig = await rig.restart()
    await asyncio.sleep(A_WHILE_S)
    assert len(world.undone) == tries, "that it is done is durable"
    await rig.end()


async def test_pending_undo_waits_for_locks_of_running_jobs() -> None:
    rig, _ = await with_pending_undo()
    rig.executor.stuck.clear()
    tries = len(rig.world.undone)
    async with rig.locks.holding(99, [lock(Level.INSTANCE, "web1")]):
        await asyncio.sleep(A_WHILE_S)
        assert len(rig.world.undone) == tries
    await asyncio.sleep(LONGEST_WAIT_S)
    assert left(rig) == []
    await rig.end()


async def test_a_job_is_not_archived_as_long_as_it_left_something_undone() -> None:
    rig, job_id = await with_pending_undo()
    assert not await rig.queue.archive(job_id)
    assert await rig.queue.auto_archive(-1, 10) == (0, 0)
    rig.executor.stuck.clear()
    await asyncio.sleep(A_WHILE_S)
    assert await rig.queue.archive(job_id)
    await rig.end()


async def test_later_opcodes_of_the_job_and_their_undo_keep_what_is_left() -> None:
    rig = await Rig.loaded()
    leave(rig.executor, "first")
    rig.executor.stuck["first"] = WHY

    async def other(run: OpRun) -> Outcome:
        async with UndoLog(run, lambda steps: rig.executor.undo(run.job_id, steps)) as undo:
            await undo.push(Step("other"))
            raise ExecError("it broke")

    rig.executor.behaviours["other"] = other
    job_id = await rig.queue.submit([act(comment="leave"), act(), act(comment="other")])
    assert statuses(await rig.final(job_id)) == ["error", "success", "success", "error"]
    assert left(rig) == [(job_id, "first", "")]
    rig = await rig.restart()
    await settle()
    assert rig.world.undone[-1] == (job_id, [UndoStep("first", {"lock": "web1"})])
    assert left(rig) == []
    await rig.end()


@pytest.mark.requirement("G16")
@pytest.mark.parametrize("number", range(7))
async def test_a_full_disk_makes_no_step_be_forgotten_and_no_good_job_be_undone(
    number: int,
) -> None:
    rig = await Rig.loaded()
    leave(rig.executor, "first", "second")
    rig.executor.stuck["first"] = WHY
    gate = rig.executor.hold("slow")
    job_id = await rig.queue.submit([act(comment="slow"), act(comment="leave")])
    await settle()
    rig.store.inject(Refuse(), after=number)
    gate.set()
    view = await rig.final(job_id)
    expected = "first" if view.status is JobStatus.SUCCESS else None
    assert [procedure for _, procedure, _ in left(rig)] == ([expected] if expected else [])
    rig.executor.stuck.clear()
    await asyncio.sleep(A_WHILE_S)
    assert left(rig) == []
    row = next(v for (kind, _), v in rig.world.disk.rows.items() if kind == "job")
    assert b'"undo":[]' in row
    assert b'"pending":[]' in row
    await rig.end()


async def test_step_that_always_fails_is_listed_and_abandoned() -> None:
    rig, job_id = await with_pending_undo()
    rig.executor.stuck["second"] = WHY
    await asyncio.sleep(A_WHILE_S)
    [step] = rig.queue.undo.listing()
    assert (step.job_id, step.procedure, step.why) == (job_id, "first", WHY)
    assert step.what == "first somewhere"
    assert 0 < step.next_try_s <= LONGEST_WAIT_S
    for wrong in ((job_id + 1, step.ident), (job_id, "first"), (job_id, "")):
        with pytest.raises(PrereqError):
            await rig.queue.undo.abandon(*wrong)
    assert await rig.queue.undo.abandon(job_id, step.ident) == "first somewhere"
    tries = len(rig.world.undone)
    assert left(rig) == []
    await asyncio.sleep(A_WHILE_S)
    assert all(steps == [] for _, steps in rig.world.undone[tries:])
    view = rig.queue.view(job_id)
    assert view is not None
    assert "abandoned the undo step first; this stays as it is: first somewhere" in str(
        view.log_after(0)
    )
    stuck = dict(rig.executor.stuck)
    rig = await Rig.begin(await rig.crash())
    rig.executor.stuck.update(stuck)
    await rig.queue.load()
    await asyncio.sleep(A_WHILE_S)
    assert left(rig) == [], "it is durable"
    assert await rig.queue.archive(job_id)
    await rig.end()


async def test_step_is_abandoned_only_under_its_locks() -> None:
    rig, job_id = await with_pending_undo()
    await asyncio.sleep(A_WHILE_S)
    [step] = rig.queue.undo.listing()
    async with rig.locks.holding(99, [lock(Level.INSTANCE, "web1")]):
        abandoning = asyncio.create_task(rig.queue.undo.abandon(job_id, step.ident))
        await asyncio.sleep(A_WHILE_S)
        assert not abandoning.done()
        assert left(rig) != []
    await abandoning
    assert left(rig) == []
    await rig.end()


async def test_pending_undo_is_listed_while_recovery_still_undoes_another_job() -> None:
    rig = await Rig.loaded()

    async def never_ends(run: OpRun) -> Outcome:
        async with UndoLog(run, lambda steps: rig.executor.undo(run.job_id, steps)) as undo:
            await undo.push(Step(run.op.comment or ""))
            await asyncio.Event().wait()
        return Outcome(None)

    for name in ("stuck", "slow"):
        rig.executor.behaviours[name] = never_ends
    first = await rig.queue.submit([act(comment="stuck")])
    second = await rig.queue.submit([act(comment="slow")])
    await settle()
    rig = await Rig.begin(await rig.crash())
    rig.executor.stuck["stuck"] = WHY
    gate = rig.executor.hold_undo("slow")
    await rig.queue.load()
    await settle()
    assert rig.queue.status(first) is JobStatus.ERROR
    assert rig.queue.status(second) is JobStatus.RUNNING
    assert left(rig) == [(first, "stuck", "")]
    gate.set()
    await rig.final(second)
    await settle()
    assert left(rig) == [(first, "stuck", WHY)]
    await rig.end()
