"""Cancelling, priorities, locks, archive, waiting."""

import asyncio

import msgspec
import pytest

from ganeti.base.errors import ExecError, InputError, JobLost, Refused
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.jobs.queue import ENDED_WAIT_S
from ganeti.jobs.view import JobView
from ganeti.locking.levels import Level
from ganeti.locking.requests import lock
from ganeti.model.names import JobStatus
from ganeti.simulation.faulty_store import Crash, Delay, Refuse
from tests.unit.jobs.rig import Rig, act, delay, settle, statuses

pytestmark = pytest.mark.virtual_time

WEB1 = lock(Level.INSTANCE, "web1.example.com")


def limit(draft: Draft, jobs: int) -> None:
    draft.put(msgspec.structs.replace(draft.cluster, max_running_jobs=jobs))


async def lock_web1(run: OpRun) -> Outcome:
    await run.acquire([WEB1])
    await run.started()
    await asyncio.sleep(1)
    return Outcome()


async def lock_and_stay(run: OpRun) -> Outcome:
    await run.acquire([WEB1])
    with run.interruptible():
        await asyncio.sleep(100)
    return Outcome()


def status_of(view: JobView) -> list[object]:
    return [view.status]


@pytest.mark.requirement("G9")
async def test_a_queued_job_that_is_cancelled_never_starts_even_after_a_crash() -> None:
    rig = await Rig.loaded()
    await rig.config.change(lambda draft: limit(draft, 0))
    job_id = await rig.queue.submit([act(), act()])
    assert await rig.queue.cancel(job_id) == (True, f"job {job_id} was canceled")
    assert statuses(rig.queue.view(job_id)) == ["canceled"] * 3
    assert (await rig.queue.cancel(job_id))[0] is False
    await rig.config.change(lambda draft: limit(draft, 10))
    rig = await rig.restart()
    await settle()
    assert statuses(rig.queue.view(job_id)) == ["canceled"] * 3
    assert rig.world.effects == []
    await rig.end()


@pytest.mark.requirement("G9", "F13")
async def test_a_job_that_waits_for_locks_stops_waiting_when_cancelled() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours = {"stay": lock_and_stay, "lock": lock_web1}
    holder = await rig.queue.submit([act(comment="stay")])
    await rig.until(holder, JobStatus.RUNNING)
    waiter = await rig.queue.submit([act(comment="lock"), act()])
    await asyncio.sleep(3)
    view = rig.queue.view(waiter)
    assert view is not None
    assert statuses(view) == ["waiting", "waiting", "queued"]
    assert f"held by job {holder}" in str(view.waiting_for)
    assert f"held by job {holder}" in view.log[0][0][3]
    answer = await rig.queue.cancel(waiter)
    assert answer == (True, f"job {waiter} will be canceled")
    assert statuses(await rig.final(waiter, 1)) == ["canceled"] * 3
    assert rig.locks.owners() == {holder}
    assert rig.world.effects == []
    await rig.end()


@pytest.mark.requirement("G6", "G9")
async def test_a_running_opcode_ends_and_no_later_one_begins() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    job_id = await rig.queue.submit([act(comment="slow"), act("later.example.com")])
    await rig.until(job_id, JobStatus.RUNNING)
    assert await rig.queue.cancel(job_id) == (True, f"job {job_id} will be canceled")
    assert statuses(rig.queue.view(job_id)) == ["canceling", "canceling", "queued"]
    gate.set()
    assert statuses(await rig.final(job_id)) == ["canceled", "success", "canceled"]
    assert rig.world.effects == [(job_id, 0)]
    await rig.end()


@pytest.mark.requirement("G9")
async def test_a_cancel_is_answered_once_it_is_durable() -> None:
    rig = await Rig.loaded()
    rig.executor.hold("slow")
    job_id = await rig.queue.submit([act(comment="slow"), act("later.example.com")])
    await rig.until(job_id, JobStatus.RUNNING)
    await settle()
    rig.store.inject(Delay(5.0))
    answer = asyncio.create_task(rig.queue.cancel(job_id))
    await asyncio.sleep(4)
    assert not answer.done()
    assert (await answer)[0]
    rig = await rig.restart()
    assert (await rig.final(job_id)).status in (JobStatus.CANCELED, JobStatus.ERROR)
    assert rig.world.effects == []
    await rig.end()


@pytest.mark.requirement("G9")
async def test_cancel_of_a_job_that_may_succeed_is_refused_and_mentions_kill() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    job_id = await rig.queue.submit([act(), act(comment="slow")])
    await settle()
    done, text = await rig.queue.cancel(job_id)
    assert not done
    assert f"gnt-job cancel --kill --yes-do-it {job_id}" in text
    assert statuses(rig.queue.view(job_id)) == ["running", "success", "running"]
    gate.set()
    assert statuses(await rig.final(job_id)) == ["success", "success", "success"]
    await rig.end()


@pytest.mark.requirement("G9")
@pytest.mark.sampled(25)
@pytest.mark.parametrize("delay_s", [number / 10 for number in range(25)])
async def test_a_cancel_that_is_accepted_at_any_moment_never_ends_in_success(
    delay_s: float,
) -> None:
    rig = await Rig.loaded()

    async def work(run: OpRun) -> Outcome:
        await asyncio.sleep(0.25)  # before the locks
        await run.acquire([WEB1])
        await asyncio.sleep(0.25)
        with run.interruptible():
            await asyncio.sleep(0.45)
        await run.started()
        await asyncio.sleep(0.25)
        return Outcome()

    rig.executor.behaviours["work"] = work
    rig.store.inject(Delay(0.1), after=2)
    job_id = await rig.queue.submit([act(comment="work"), act(comment="work")])
    await asyncio.sleep(delay_s)
    accepted, _text = await rig.queue.cancel(job_id)
    view = await rig.final(job_id)
    assert view.status is (JobStatus.CANCELED if accepted else JobStatus.SUCCESS)
    await rig.end()


async def test_kill_ends_the_awaited_work_and_is_logged() -> None:
    rig = await Rig.loaded()
    ended = asyncio.Event()

    async def end() -> None:
        ended.set()

    async def hang(run: OpRun) -> Outcome:
        await run.acquire([WEB1])
        with run.killable(end):
            await ended.wait()
        assert run.takes_kill()
        raise ExecError("its program was ended")

    rig.executor.behaviours["hang"] = hang
    job_id = await rig.queue.submit([act(comment="hang")])
    await rig.until(job_id, JobStatus.RUNNING)
    assert not (await rig.queue.cancel(job_id))[0]
    assert (await rig.queue.cancel(job_id, kill=True))[0]
    view = await rig.final(job_id, 1)
    assert statuses(view) == ["error", "error"]
    assert "an administrator ends this job" in str(view.log[0])
    await rig.end()


async def test_a_unit_that_asks_stops_in_between() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours = {"stay": lock_and_stay}
    job_id = await rig.queue.submit([act(comment="stay")])
    await rig.until(job_id, JobStatus.RUNNING)
    await rig.queue.cancel(job_id)
    assert statuses(await rig.final(job_id, 200)) == ["canceled", "canceled"]
    assert not rig.locks.owners()
    await rig.end()


@pytest.mark.requirement("G9", "G16")
async def test_unwritable_cancel_is_refused_and_the_job_continues() -> None:
    rig = await Rig.loaded()
    await rig.config.change(lambda draft: limit(draft, 0))
    job_id = await rig.queue.submit([act()])
    rig.store.set_full(full=True)
    with pytest.raises(Refused):
        await rig.queue.cancel(job_id)
    rig.store.set_full(full=False)
    assert statuses(rig.queue.view(job_id)) == ["queued", "queued"]
    await rig.config.change(lambda draft: limit(draft, 10))
    await rig.queue.submit([delay()])
    assert statuses(await rig.final(job_id)) == ["success", "success"]
    await rig.end()


@pytest.mark.requirement("G9", "G16")
@pytest.mark.parametrize("running", [False, True])
async def test_refused_cancel_does_not_revoke_another_answer(
    running: bool,
) -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    if not running:
        await rig.config.change(lambda draft: limit(draft, 0))
    job_id = await rig.queue.submit([act(comment="slow"), act("later.example.com")])
    await settle()
    rig.store.inject(Refuse())
    first, second = await asyncio.gather(
        rig.queue.cancel(job_id), rig.queue.cancel(job_id), return_exceptions=True
    )
    assert isinstance(first, Refused)
    assert not isinstance(second, BaseException)
    assert second[0]
    effects = list(rig.world.effects)
    rig = await rig.restart()
    gate.set()
    await rig.config.change(lambda draft: limit(draft, 10))
    assert (await rig.final(job_id)).status in (JobStatus.CANCELED, JobStatus.ERROR)
    await settle()
    assert rig.world.effects == effects, "nothing of the job has begun since"
    await rig.end()


async def test_a_cancel_whose_client_goes_away_is_carried_out() -> None:
    rig = await Rig.loaded()
    await rig.config.change(lambda draft: limit(draft, 0))
    job_id = await rig.queue.submit([act()])
    client = asyncio.create_task(rig.queue.cancel(job_id))
    await asyncio.sleep(0)
    client.cancel()
    assert statuses(await rig.final(job_id)) == ["canceled", "canceled"]
    await rig.end()


async def test_unknown_jobs_are_named_and_bad_priorities_refused() -> None:
    rig = await Rig.loaded()
    assert await rig.queue.cancel(5) == (False, "job 5 is not in the queue")
    assert (await rig.queue.change_priority(5, 0))[0] is False
    assert await rig.queue.archive(5) is False
    assert rig.queue.view(5) is None
    with pytest.raises(InputError, match="priority"):
        await rig.queue.change_priority(5, 20)
    with pytest.raises(JobLost):
        await rig.queue.wait_for_change(5, status_of, None, None, 1)
    await rig.end()


async def test_a_changed_priority_is_durable_and_reaches_the_locks() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours = {"stay": lock_and_stay, "lock": lock_web1}
    holder = await rig.queue.submit([act(comment="stay")])
    await rig.until(holder, JobStatus.RUNNING)
    slow = await rig.queue.submit([act(comment="lock")])
    late = await rig.queue.submit([act(comment="lock")])
    await settle()
    assert (await rig.queue.change_priority(late, -20))[0]
    assert (await rig.queue.change_priority(holder, 5))[0]
    await rig.final(slow, 200)
    slow_view, late_view = rig.queue.view(slow), rig.queue.view(late)
    assert slow_view is not None
    assert late_view is not None
    assert late_view.ops[0].exec is not None
    assert slow_view.ops[0].exec is not None
    assert late_view.ops[0].exec < slow_view.ops[0].exec
    assert late_view.priority == -20
    assert (await rig.queue.change_priority(late, 0))[0] is False
    await rig.end()


@pytest.mark.requirement("F10", "F14", "S201")
async def test_archived_jobs_are_found_with_their_log_and_leave_no_row() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        for number in range(250):
            run.log(f"line {number}")
        await gate.wait()
        return Outcome("ok")

    gate = asyncio.Event()
    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk")])
    assert await rig.queue.archive(job_id) is False
    gate.set()
    await rig.final(job_id)
    assert await rig.queue.archive(job_id) is True
    assert rig.queue.view(job_id) is None
    view = await rig.queue.archived_view(job_id)
    assert view is not None
    assert view.ops[0].result == "ok"
    assert len(view.log[0]) == 250
    assert not [kind for kind, _ in rig.world.disk.rows if kind in {"job", "joblog"}]
    info, log = await rig.queue.wait_for_change(job_id, status_of, None, 249, 1) or ([], [])
    assert info == ["success"]
    assert [entry[0] for entry in log] == [250]
    await rig.end()


async def test_old_jobs_are_archived_by_age_and_young_ones_kept() -> None:
    rig = await Rig.loaded()
    old = [await rig.queue.submit([delay()]) for _ in range(3)]
    for job_id in old:
        await rig.final(job_id)
    await asyncio.sleep(100)
    young = await rig.queue.submit([delay()])
    await rig.final(young)
    assert await rig.queue.auto_archive(50, 10) == (3, 0)
    assert rig.queue.ids() == [young]
    assert await rig.queue.auto_archive(50, 0) == (0, 1)
    assert await rig.queue.auto_archive(-1, 10) == (1, 0)
    await rig.end()


@pytest.mark.requirement("S192", "S195")
async def test_a_waiter_learns_of_every_state_and_of_nothing_in_time() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    await rig.config.change(lambda draft: limit(draft, 0))
    job_id = await rig.queue.submit([delay(comment="slow")])
    wait = rig.queue.wait_for_change
    assert await wait(job_id, status_of, None, None, 60) == (["queued"], [])
    assert await wait(job_id, status_of, ["queued"], None, 60) is None
    waiter = asyncio.create_task(wait(job_id, status_of, ["queued"], None, 60))
    await rig.config.change(lambda draft: limit(draft, 1))
    await rig.queue.submit([delay()])
    assert (await waiter or ([],))[0] in (["waiting"], ["running"])
    gate.set()
    await rig.final(job_id)
    assert await wait(job_id, status_of, ["success"], None, 60) == (["success"], [])
    assert rig.queue.statistics()["waiters"] == 0
    await rig.end()


async def test_the_end_of_a_job_is_waited_for_through_all_its_states_and_its_archiving() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    job_id = await rig.queue.submit([delay(comment="slow")])
    waiter = asyncio.create_task(rig.queue.ended(job_id))
    await asyncio.sleep(2 * ENDED_WAIT_S)
    assert not waiter.done()
    gate.set()
    view = await waiter
    assert view is not None
    assert view.status is JobStatus.SUCCESS
    assert await rig.queue.archive(job_id)
    assert await rig.queue.ended(job_id) is not None
    assert await rig.queue.ended(job_id + 1) is None
    await rig.end()


@pytest.mark.requirement("S193", "S194", "S196", "S199")
async def test_bursts_of_log_lines_reach_waiters_merged_and_without_the_store() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        for number in range(1000):
            run.log(f"line {number}")
            await asyncio.sleep(0.001)
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk")])

    async def watch() -> tuple[int, int]:
        info, serial, deliveries, lines = ["queued"], 0, 0, 0
        while info != ["success"]:
            answer = await rig.queue.wait_for_change(job_id, status_of, info, serial, 60)
            assert answer is not None
            info, log = answer
            deliveries += 1
            lines += len(log)
            serial = log[-1][0] if log else serial
        return deliveries, lines

    for deliveries, lines in await asyncio.gather(*(watch() for _ in range(50))):
        assert lines == 1000
        assert deliveries <= 16
    assert rig.store.statistics().syncs < 40
    await rig.end()


async def test_many_idle_waiters_leave_nothing_behind() -> None:
    rig = await Rig.loaded()
    await rig.config.change(lambda draft: limit(draft, 0))
    job_id = await rig.queue.submit([delay()])
    waiters = [
        asyncio.create_task(rig.queue.wait_for_change(job_id, status_of, ["queued"], 0, 600))
        for _ in range(2000)
    ]
    await settle()
    assert rig.queue.statistics()["waiters"] == 2000
    for waiter in waiters[:1000]:
        waiter.cancel()
    await settle()
    assert rig.queue.statistics()["waiters"] == 1000
    await rig.queue.cancel(job_id)
    answers = await asyncio.gather(*waiters[1000:])
    assert all(answer == (["canceled"], []) for answer in answers)
    await rig.end()


@pytest.mark.requirement("G9")
async def test_a_job_that_gets_its_lock_while_its_cancel_is_written_does_not_run() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours["lock"] = lock_web1
    async with rig.locks.holding(99, [WEB1]):
        job_id = await rig.queue.submit([act(comment="lock")])
        await settle()
        rig.store.inject(Delay(1.0))
        answer = asyncio.create_task(rig.queue.cancel(job_id))
        await asyncio.sleep(0.1)
        assert not answer.done()
    assert (await answer)[0]
    assert statuses(await rig.final(job_id)) == ["canceled", "canceled"]
    assert not rig.locks.owners()
    await rig.end()


async def test_a_changed_priority_leaves_opcodes_alone_that_have_begun() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    job_id = await rig.queue.submit([act(), act(comment="slow"), act()])
    await settle()
    assert (await rig.queue.change_priority(job_id, -5))[0]
    view = rig.queue.view(job_id)
    assert view is not None
    assert [state.op.priority for state in view.ops] == [0, 0, -5]
    gate.set()
    await rig.final(job_id)
    await rig.end()


@pytest.mark.requirement("G9")
async def test_a_waiting_job_whose_cancel_was_accepted_never_runs_at_the_next_master() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours["lock"] = lock_web1
    async with rig.locks.holding(99, [WEB1]):
        job_id = await rig.queue.submit([act(comment="lock")])
        await settle()
        rig.store.inject(Crash(written=False), after=1)
        assert (await rig.queue.cancel(job_id))[0]
        await settle()
    rig = await rig.restart()
    rig.executor.behaviours["lock"] = lock_web1
    assert statuses(await rig.final(job_id)) == ["canceled", "canceled"]
    assert rig.executor.started == []
    await rig.end()
