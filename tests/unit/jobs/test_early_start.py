"""A single job starts while it is being written; if it cannot be written, it has changed nothing."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster, Refused
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import lock
from ganeti.model.job import Submitter
from ganeti.model.names import JobStatus
from ganeti.simulation.faulty_store import Break, Crash, Delay, Fault, Refuse, Unknown
from ganeti.store.interface import Lease, Transaction
from tests.unit.config.sample import sample_instance
from tests.unit.jobs.rig import Rig, Step, act, delay

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G1", "G16")]

SLOW_S = 5.0
"""Time of a slow write."""


async def ready() -> Rig:
    """A queue that has numbered and archived a job: the next write is that of the next job."""
    rig = await Rig.loaded()
    job_id = await rig.queue.submit([delay()])
    await rig.final(job_id)
    await rig.queue.archive(job_id)
    rig.executor.started.clear()
    return rig


async def slowly(rig: Rig, comment: str = "") -> "asyncio.Task[int]":
    """A submission whose write takes a while; what the job does meanwhile has happened."""
    rig.store.inject(Delay(SLOW_S))
    submission = asyncio.create_task(rig.queue.submit([act(comment=comment)]))
    await asyncio.sleep(SLOW_S / 2)
    return submission


async def refused(rig: Rig, comment: str = "", *, fault: Fault | None = None) -> None:
    """A submission that cannot be written."""
    rig.store.inject(fault or Refuse())
    with pytest.raises(Refused, match="no space"):
        await rig.queue.submit([act(comment=comment)])


async def is_untouched(rig: Rig) -> bool:
    """Whether nothing is left of a refused job, now and later, and the next job runs."""
    await asyncio.sleep(10)
    rows = [kind for kind, _ in rig.world.disk.rows if kind.startswith("job")]
    statistics = rig.queue.statistics()
    is_nothing_left = not (rows or rig.queue.ids() or rig.locks.owners() or statistics["running"])
    await rig.final(await rig.queue.submit([delay()]))
    return is_nothing_left and not rig.world.effects and not rig.lost


async def test_job_and_its_end_share_a_write() -> None:
    rig = await ready()
    before = rig.store.statistics()
    await rig.final(await rig.queue.submit([delay()]))
    after = rig.store.statistics()
    assert after.transactions - before.transactions == 2
    assert after.largest_batch == 2
    await rig.end()


async def test_start_of_a_job_that_acts_shares_the_write_of_its_submission() -> None:
    rig = await ready()
    syncs = rig.store.statistics().syncs
    await rig.final(await rig.queue.submit([act()]))
    assert rig.store.statistics().syncs - syncs == 2  # the start with the submission, and the end
    await rig.end()


@pytest.mark.requirement("G7")
async def test_job_that_is_being_written_has_changed_nothing_and_is_not_known() -> None:
    rig = await ready()
    seen: list[int] = []
    rig.queue.on_change = lambda job: seen.append(job.id)
    submission = await slowly(rig)
    assert rig.executor.started
    assert not rig.world.effects
    assert not seen
    assert not rig.queue.ids()
    assert not list(rig.queue.unended_ops())
    assert rig.queue.statistics()["running"] == 1
    view = await rig.final(await submission)
    assert view.status is JobStatus.SUCCESS
    assert seen[0] == view.id
    assert rig.world.effects == [(view.id, 0)]
    await rig.end()


async def test_job_that_ends_at_once_is_known_before_its_end() -> None:
    rig = await ready()
    seen: list[JobStatus] = []
    rig.queue.on_change = lambda job: seen.append(job.status)
    await rig.final(await rig.queue.submit([delay()]))
    assert seen[-1] is JobStatus.SUCCESS
    assert len(seen) >= 2
    assert not seen[0].is_final
    await rig.end()


async def _start(run: OpRun) -> Outcome:
    await run.acquire([lock(Level.INSTANCE, "web1.example.com")])
    await run.started()
    raise AssertionError("it acts")


async def _record(run: OpRun) -> Outcome:
    await run.record_undo([Step("remove").record()])
    raise AssertionError("it acts")


async def _say(run: OpRun) -> Outcome:
    run.log("before the end")
    return Outcome()


async def _end(run: OpRun) -> Outcome:
    return Outcome()


async def _wait(run: OpRun) -> Outcome:
    await run.acquire([lock(Level.INSTANCE, "web1.example.com")])
    await asyncio.sleep(3600)
    return Outcome()


async def _submit(run: OpRun) -> Outcome:
    return Outcome(jobs=[[delay()]])


async def _submit_too_much(run: OpRun) -> Outcome:
    """More than fits into the transaction of the opcode's end."""
    return Outcome(jobs=[[delay(comment="x" * 100_000)] for _ in range(3)])


async def _change(run: OpRun) -> Outcome:
    return Outcome(change=lambda draft: _drop(draft.put(sample_instance(9))))


async def _fail(run: OpRun) -> Outcome:
    raise GanetiError("it broke")


def _drop(_value: object) -> None:
    """A change returns nothing."""


JOBS = (_start, _record, _say, _end, _wait, _submit, _submit_too_much, _change, _fail)


@pytest.mark.parametrize("behaviour", JOBS)
@pytest.mark.parametrize("turns", range(6))
async def test_nothing_is_left_of_a_job_that_cannot_be_written(
    behaviour: Callable[[OpRun], object], turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`turns` of the loop pass before the job does something: its writes come before and after the refusal."""
    rig = await ready()

    async def later(run: OpRun) -> Outcome:
        for _ in range(turns):
            await asyncio.sleep(0)
        outcome: Outcome = await behaviour(run)  # type: ignore[misc]  # a behaviour of JOBS
        return outcome

    rig.executor.behaviours["later"] = later
    await refused(rig, "later")
    assert await is_untouched(rig)
    assert rig.config.snapshot.instance_by_name("web9.example.com") is None
    assert "unexpectedly" not in caplog.text  # a refused submission is no fault of the unit
    await rig.end()


async def test_task_of_a_refused_job_waits_for_nothing() -> None:
    """A task that a unit leaves behind has the job's context."""
    rig = await ready()
    tasks: list[asyncio.Task[object]] = []

    async def leave(run: OpRun) -> Outcome:
        change = rig.config.change(lambda draft: draft.put(sample_instance(9)))
        tasks.append(asyncio.create_task(change))
        return await _wait(run)

    rig.executor.behaviours["leave"] = leave
    await refused(rig, "leave")
    done, _ = await asyncio.wait(tasks, timeout=1)
    assert [task.cancelled() for task in done] == [True]
    assert rig.config.snapshot.instance_by_name("web9.example.com") is None
    await rig.end()


async def test_change_of_the_configuration_waits_until_the_job_is_stored() -> None:
    rig = await ready()

    async def change(run: OpRun) -> Outcome:
        await rig.config.change(lambda draft: draft.put(sample_instance(9)))
        return Outcome()

    rig.executor.behaviours["change"] = change
    submission = await slowly(rig, "change")
    assert rig.store.statistics().waiting == 1
    await rig.final(await submission)
    assert rig.config.snapshot.instance_by_name("web9.example.com") is not None
    await rig.end()


async def test_change_of_a_job_that_cannot_be_written_is_never_made() -> None:
    """A change that waits for another one is written even if its caller ends."""
    rig = await ready()

    async def change(run: OpRun) -> Outcome:
        await rig.config.change(lambda draft: draft.put(sample_instance(9)))
        return Outcome()

    rig.executor.behaviours["change"] = change
    rig.store.inject(Delay(SLOW_S))
    other = asyncio.create_task(
        rig.config.change(lambda draft: _drop(draft.put(sample_instance(8))))
    )
    await asyncio.sleep(1)
    await refused(rig, "change")
    await other
    assert await is_untouched(rig)
    assert rig.config.snapshot.instance_by_name("web9.example.com") is None
    assert rig.config.snapshot.instance_by_name("web8.example.com") is not None
    await rig.end()


@pytest.mark.parametrize("fault", [Unknown(written=True), Unknown(written=False), Break(), Crash()])
async def test_queue_ends_if_the_outcome_is_unknown(fault: Fault) -> None:
    rig = await ready()
    rig.store.inject(fault)
    with pytest.raises((NotMaster, CommitUnknown)):
        await rig.queue.submit([act()])
    assert rig.lost
    assert not rig.world.effects
    await rig.end()


async def test_queue_can_close_while_a_job_that_runs_is_being_written() -> None:
    rig = await ready()
    submission = await slowly(rig)
    async with asyncio.timeout(SLOW_S * 2):
        await rig.queue.close()
    await asyncio.wait((submission,))
    assert not rig.world.effects
    await rig.config.close()
    await rig.store.close()


async def test_order_that_is_open_delays_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a handover a store does not say in which order it will write."""
    rig = await ready()

    def post(lease: Lease, txn: Transaction) -> None:
        return None

    monkeypatch.setattr(rig.store, "post", post)
    view = await rig.final(await rig.queue.submit([act()]))
    assert rig.world.effects == [(view.id, 0)]
    assert await rig.queue.archive(view.id)
    await rig.end()


async def test_master_that_is_replaced_starts_nothing() -> None:
    rig = await ready()
    await rig.store.step_down("a test")
    with pytest.raises(NotMaster):
        await rig.queue.submit([act()])
    assert not rig.queue.statistics()["running"]
    await rig.end()


async def test_limit_of_running_jobs_holds() -> None:
    rig = await ready()
    await rig.config.change(lambda draft: _limit(draft, 1))
    gate = rig.executor.hold("slow")
    first = await rig.queue.submit([delay(comment="slow")])
    second = await rig.queue.submit([delay()])
    assert rig.queue.status(second) is JobStatus.QUEUED
    gate.set()
    await rig.final(first)
    await rig.final(second)
    await rig.end()


def _limit(draft: Draft, running: int) -> None:
    draft.put(msgspec.structs.replace(draft.cluster, max_running_jobs=running))


async def test_jobs_that_are_submitted_together_keep_their_order() -> None:
    rig = await ready()
    rig.store.inject(Delay(SLOW_S))
    both = [asyncio.create_task(rig.queue.submit([delay()])) for _ in range(2)]
    await asyncio.sleep(SLOW_S / 2)
    assert len(rig.executor.started) == 1
    for submission in both:
        await rig.final(await submission)
    assert rig.executor.started == sorted(rig.executor.started)
    await rig.end()


async def test_job_that_waits_for_another_one_does_not_start() -> None:
    rig = await ready()
    gate = rig.executor.hold("slow")
    first = await rig.queue.submit([delay(comment="slow")], submitter=Submitter("root"))
    second = await rig.queue.submit([delay(depends=[(first, [])])])
    assert rig.queue.status(second) is JobStatus.QUEUED
    gate.set()
    await rig.final(second)
    await rig.end()
