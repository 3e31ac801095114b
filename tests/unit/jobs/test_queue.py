"""The life of jobs, without crashes."""

import asyncio
import contextlib

import pytest

from ganeti.base.errors import (
    ErrorCode,
    GanetiError,
    InputError,
    JobQueueDrained,
    JobQueueFull,
    PrereqError,
    Refused,
)
from ganeti.config.transaction import Draft
from ganeti.jobs import submission
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import lock
from ganeti.model.limits import MAX_JOB_OPCODES
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.unit.config.sample import sample_instance
from tests.unit.jobs.rig import Rig, act, create, delay, settle, statuses

pytestmark = pytest.mark.virtual_time


async def test_a_job_runs_its_opcodes_in_order_and_ends_in_success() -> None:
    rig = await Rig.loaded()
    job_id = await rig.queue.submit([act("a.example.com"), delay(), act("b.example.com")])
    view = await rig.final(job_id)
    assert statuses(view) == ["success"] * 4
    assert rig.world.effects == [(job_id, 0), (job_id, 2)]
    assert view.end is not None
    assert view.start is not None
    assert view.received <= view.start <= view.end
    await rig.end()


@pytest.mark.requirement("G6")
async def test_the_first_failure_fails_the_job_and_the_rest_is_not_run() -> None:
    rig = await Rig.loaded()
    rig.executor.fail("bad", PrereqError("no such node", ErrorCode.UNKNOWN_ENTITY))
    job_id = await rig.queue.submit([act(), act(comment="bad"), act()])
    view = await rig.final(job_id)
    assert statuses(view) == ["error", "success", "error", "error"]
    assert view.ops[1].result == ["OpPrereqError", ["no such node", "unknown_entity"]]
    assert view.ops[2].result[0] == "OpExecError"
    assert rig.world.effects == [(job_id, 0)]
    await rig.end()


async def test_a_unit_with_a_bug_fails_its_job_and_hides_its_text() -> None:
    rig = await Rig.loaded()
    rig.executor.fail("bug", ValueError("secret=hunter2"))
    job_id = await rig.queue.submit([act(comment="bug")])
    view = await rig.final(job_id)
    assert "ValueError" in str(view.ops[0].result)
    assert "hunter2" not in str(view.ops[0].result)
    assert (await rig.final(await rig.queue.submit([act()]))).status is JobStatus.SUCCESS
    await rig.end()


async def test_a_job_without_opcodes_is_at_once_successful() -> None:
    rig = await Rig.loaded()
    view = rig.queue.view(await rig.queue.submit([]))
    assert view is not None
    assert view.status is JobStatus.SUCCESS
    await rig.end()


@pytest.mark.requirement("G8", "S201")
async def test_many_jobs_are_submitted_in_order_and_each_has_an_answer() -> None:
    rig = await Rig.loaded()
    too_many = [delay()] * (MAX_JOB_OPCODES + 1)
    answers = await rig.queue.submit_many([[delay()], too_many, *([[delay()]] * 300)])
    assert isinstance(answers[1], InputError)
    ids = [answer for answer in answers if isinstance(answer, int)]
    assert len(ids) == 301
    assert ids == sorted(set(ids))
    for job_id in ids:
        assert (await rig.final(job_id)).status is JobStatus.SUCCESS
    assert rig.store.statistics().largest_batch > 1
    await rig.end()


async def test_more_jobs_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_LIVE_JOBS", 3)
    rig = await Rig.loaded()
    answers = await rig.queue.submit_many([[delay()]] * 5)
    assert [isinstance(answer, int) for answer in answers] == [True, True, True, False, False]
    assert isinstance(answers[3], JobQueueFull)
    with pytest.raises(JobQueueFull, match="archive"):
        await rig.queue.submit([delay()])
    await rig.end()


async def test_more_urgent_jobs_start_first() -> None:
    rig = await Rig.loaded()
    await rig.config.change(lambda draft: _limit(draft, 1))
    gate = rig.executor.hold("first")
    first = await rig.queue.submit([delay(comment="first")])
    await rig.until(first, JobStatus.RUNNING)
    low = await rig.queue.submit([delay(priority=10)])
    high = await rig.queue.submit([delay(priority=-10)])
    normal = await rig.queue.submit([delay()])
    low_view = rig.queue.view(low)
    assert low_view is not None
    assert "free slot" in str(low_view.waiting_for)
    answer = await rig.queue.change_priority(normal, -20)
    assert answer[0]
    gate.set()
    await rig.final(low)
    assert rig.executor.started == [first, normal, high, low]
    await rig.end()


def _limit(draft: Draft, jobs: int) -> None:
    import msgspec

    draft.put(msgspec.structs.replace(draft.cluster, max_running_jobs=jobs))


async def test_jobs_wait_for_the_jobs_that_they_depend_on() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("first")
    first, second = await rig.queue.submit_many(
        [[delay(comment="first")], [delay(depends=[(-1, ["success"])])]]
    )
    assert isinstance(first, int)
    assert isinstance(second, int)
    await rig.until(first, JobStatus.RUNNING)
    view = rig.queue.view(second)
    assert view is not None
    assert view.status is JobStatus.QUEUED
    assert view.waiting_for == f"waiting for job {first} to end"
    assert view.ops[0].op.depends == [(first, ["success"])]
    gate.set()
    assert (await rig.final(second)).status is JobStatus.SUCCESS
    await rig.end()


async def test_a_dependency_that_ends_otherwise_fails_the_job_and_those_behind_it() -> None:
    rig = await Rig.loaded()
    rig.executor.fail("bad")
    answers = await rig.queue.submit_many(
        [
            [delay(comment="bad")],
            [delay(depends=[(-1, ["success"])])],
            [delay(depends=[(-1, ["success"])])],
            [delay(depends=[(-2, ["error"])])],
        ]
    )
    views = [await rig.final(answer) for answer in answers if isinstance(answer, int)]
    assert [str(view.status) for view in views] == ["error", "error", "error", "success"]
    assert f"depends on job {answers[0]}, which ended as error" in str(views[1].ops[0].result)
    await rig.end()


async def test_an_archived_dependency_counts_by_its_state() -> None:
    rig = await Rig.loaded()
    rig.executor.fail("bad")
    good, bad = await rig.queue.submit([delay()]), await rig.queue.submit([delay(comment="bad")])
    for job_id in (good, bad):
        await rig.final(job_id)
        assert await rig.queue.archive(job_id)
    after_good = await rig.queue.submit([delay(depends=[(good, ["success"])])])
    after_bad = await rig.queue.submit([delay(depends=[(bad, ["success"])])])
    assert (await rig.final(after_good)).status is JobStatus.SUCCESS
    assert (await rig.final(after_bad)).status is JobStatus.ERROR
    await rig.end()


@pytest.mark.requirement("A22")
@pytest.mark.parametrize(
    "depends",
    [
        [(-1, ["success"])],
        [(-2, [])],
        [(99_999, ["success"])],
        [(0, ["success"])],
        [(-1, ["running"])],
        [(-1, ["../x"])],
    ],
)
async def test_wrong_dependencies_are_refused_at_once(depends: list[tuple[int, list[str]]]) -> None:
    rig = await Rig.loaded()
    with pytest.raises(InputError, match="depends"):
        await rig.queue.submit([delay(depends=depends)])
    assert rig.queue.ids() == []
    await rig.end()


async def test_a_drained_queue_refuses_jobs_even_after_a_restart() -> None:
    rig = await Rig.loaded()
    await rig.queue.set_drained(True)
    with pytest.raises(JobQueueDrained):
        await rig.queue.submit([delay()])
    rig = await rig.restart()
    assert rig.queue.is_drained
    assert await rig.queue.submit([delay()], even_if_drained=True)
    await rig.queue.set_drained(False)
    assert await rig.queue.submit([delay()])
    await rig.end()


def drained(rig: Rig) -> bool:
    return rig.queue.is_drained


async def test_queue_that_is_drained_for_a_move_keeps_an_administrators_drain() -> None:
    rig = await Rig.loaded()
    await rig.queue.set_drained(True, moving=True)
    rig = await rig.restart()
    assert drained(rig)
    await rig.queue.set_drained(False, moving=True)
    assert not drained(rig)
    await rig.queue.set_drained(True)
    await rig.queue.set_drained(True, moving=True)
    await rig.queue.set_drained(False, moving=True)
    rig = await rig.restart()
    assert drained(rig)
    await rig.queue.set_drained(True, moving=True)
    await rig.queue.set_drained(False)  # an administrator ends both
    rig = await rig.restart()
    assert not drained(rig)
    await rig.end()


@pytest.mark.requirement("F16")
async def test_the_same_key_gives_the_same_job() -> None:
    rig = await Rig.loaded()
    twice = await asyncio.gather(*(rig.queue.submit([act()], key="k1") for _ in range(2)))
    assert twice[0] == twice[1]
    rig = await rig.restart()
    assert await rig.queue.submit([act()], key="k1") == twice[0]
    assert await rig.queue.submit([act()], key="k2") > twice[0]
    with pytest.raises(InputError):
        await rig.queue.submit([act()], key="../k")
    await rig.final(twice[0])
    assert await rig.queue.archive(twice[0])
    assert not [key for kind, key in rig.world.disk.rows if kind == "jobkey" and key == "k1"]
    await rig.end()


@pytest.mark.requirement("F16")
async def test_a_key_is_for_one_request_also_after_a_crash() -> None:
    rig = await Rig.loaded()
    first, second = await asyncio.gather(
        rig.queue.submit([act()], key="k1.aa"),
        rig.queue.submit([act()], key="k1.bb"),
        return_exceptions=True,
    )
    assert isinstance(second, PrereqError)
    after = await rig.restart()
    assert await after.queue.submit([act()], key="k1.aa") == first
    with pytest.raises(PrereqError, match="used for another request"):
        await after.queue.submit([act()], key="k1.cc")
    old = await after.queue.submit([act()], key="k2")
    assert await after.queue.submit([act()], key="k2.aa") == old
    await after.end()


@pytest.mark.requirement("F16")
async def test_the_same_key_gives_the_same_batch_also_after_a_crash() -> None:
    rig = await Rig.loaded()
    batch: list[list[OpCode]] = [
        [act()],
        [act(depends=[(-1, [])])],
        [act(depends=[(9999, [])])],
        [delay()],
    ]
    answers = await asyncio.gather(*(rig.queue.submit_many(batch, key="k") for _ in range(3)))
    ids = [answer for answer in answers[0] if isinstance(answer, int)]
    assert len(ids) == 3
    assert isinstance(answers[0][2], InputError)
    for again in answers:
        assert [one for one in again if isinstance(one, int)] == ids
    assert rig.queue.ids() == ids
    rig = await rig.restart()
    await rig.queue.set_drained(True)
    again = await rig.queue.submit_many(batch, key="k")
    assert [again[0], again[1], again[3]] == ids
    assert isinstance(again[2], JobQueueDrained)
    with pytest.raises(JobQueueDrained):
        await rig.queue.submit_many(batch, key="other")
    await rig.queue.set_drained(False)
    with pytest.raises(InputError):
        await rig.queue.submit_many(batch, key="k/0")
    assert rig.queue.ids() == ids
    assert await rig.queue.submit([act()], key="k") not in ids
    await rig.end()


@pytest.mark.requirement("F16", "G1")
async def test_a_batch_that_was_written_in_part_is_completed_and_nothing_is_there_twice() -> None:
    batch: list[list[OpCode]] = [
        [act(depends=[(-1, [])] if number else [])] for number in range(160)
    ]
    for after in range(8):
        rig = await Rig.loaded()
        rig.store.inject(Crash(written=bool(after % 2)), after=after)
        with contextlib.suppress(GanetiError):
            await rig.queue.submit_many(batch, key="k")
        rig = await rig.restart()
        before = set(rig.queue.ids())
        ids = await rig.queue.submit_many(batch, key="k")
        assert all(isinstance(one, int) for one in ids)
        assert rig.queue.ids() == sorted(one for one in ids if isinstance(one, int))
        assert before <= set(rig.queue.ids())
        await rig.end()


async def test_a_repeated_batch_may_depend_on_jobs_that_are_archived_by_now() -> None:
    rig = await Rig.loaded()
    first, second = await rig.queue.submit_many([[act()], [act()]], key="k")
    assert isinstance(first, int)
    await rig.final(first)
    keys = rig.queue._keys
    keys.forget_all_but = lambda _ids: None  # type: ignore[method-assign, assignment] # archived just now
    assert await rig.queue.archive(first)
    batch: list[list[OpCode]] = [[act()], [act()], [act(depends=[(-2, ["success"])])]]
    again = await rig.queue.submit_many(batch, key="k")
    assert again[:2] == [first, second]
    assert isinstance(again[2], int)
    await rig.end()


async def test_a_change_of_the_configuration_is_written_with_the_result() -> None:
    rig = await Rig.loaded()

    async def run(run: OpRun) -> Outcome:
        await run.acquire([lock(Level.INSTANCE, "web9.example.com")])
        return Outcome("done", change=lambda draft: _drop(draft.put(sample_instance(9))))

    rig.executor.behaviours["add"] = run
    job_id = await rig.queue.submit([act(comment="add")])
    before = rig.store.statistics().transactions
    view = await rig.final(job_id)
    assert view.ops[0].result == "done"
    assert rig.config.snapshot.instance_by_name("web9.example.com") is not None
    assert rig.store.statistics().transactions == before + 1
    assert not rig.locks.owners()
    await rig.end()


def _drop(_value: object) -> None:
    """A change returns nothing."""


async def test_an_impossible_last_change_fails_the_opcode() -> None:
    rig = await Rig.loaded()

    async def run(run: OpRun) -> Outcome:
        twin = sample_instance(9, name="web1.example.com")
        return Outcome("done", change=lambda draft: _drop(draft.put(twin)))

    rig.executor.behaviours["add"] = run
    view = await rig.final(await rig.queue.submit([act(comment="add")]))
    assert view.status is JobStatus.ERROR
    assert view.ops[0].result[1][1] == "already_exists"
    await rig.end()


@pytest.mark.parametrize("count", [2, 150])
async def test_an_opcode_submits_jobs_with_its_result(count: int) -> None:
    rig = await Rig.loaded()

    async def run(run: OpRun) -> Outcome:
        return Outcome({"ok": True}, jobs=[[delay()]] * count)

    rig.executor.behaviours["more"] = run
    view = await rig.final(await rig.queue.submit([delay(comment="more")]))
    assert view.ops[0].result["ok"] is True
    jobs = view.ops[0].result["jobs"]
    assert len(jobs) == count
    for succeeded, job_id in jobs:
        assert succeeded
        assert (await rig.final(job_id)).status is JobStatus.SUCCESS
    await rig.end()


@pytest.mark.requirement("G16")
async def test_a_full_disk_delays_the_end_of_a_job_and_refuses_new_ones() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("slow")
    job_id = await rig.queue.submit([act(comment="slow"), act()])
    await rig.until(job_id, JobStatus.RUNNING)
    rig.store.set_full(full=True)
    with pytest.raises(Refused):
        await rig.queue.submit([delay()])
    other = rig.queue.view(job_id)
    assert statuses(other) == ["running", "running", "queued"]
    gate.set()
    await asyncio.sleep(5)
    view = rig.queue.view(job_id)
    assert view is not None
    assert not view.status.is_final
    rig.store.set_full(full=False)
    assert (await rig.final(job_id, 10)).status.is_final
    assert (await rig.final(await rig.queue.submit([delay()]))).status is JobStatus.SUCCESS
    assert not rig.lost
    await rig.end()


@pytest.mark.requirement("G23", "F38")
async def test_secrets_are_used_but_never_stored_or_shown() -> None:
    rig = await Rig.loaded()
    seen: list[object] = []
    stored: list[bytes] = []

    async def run(run: OpRun) -> Outcome:
        await run.started()
        seen.append(getattr(run.op, "osparams_secret", None))
        stored.append(b"".join(rig.world.disk.rows.values()))
        return Outcome()

    rig.executor.behaviours["secret"] = run
    secret, private = {"pw": "hunter2"}, {"key": "correcthorse"}
    job_id = await rig.queue.submit(
        [create(comment="secret", osparams_secret=secret, osparams_private=private)]
    )
    view = await rig.final(job_id)
    after = b"".join(rig.world.disk.rows.values())
    assert seen == [secret]
    assert b"hunter2" not in stored[0] + after
    assert b"correcthorse" in stored[0]  # another master may have to run it
    assert b"correcthorse" not in after
    assert "hunter2" not in str(view)
    assert "correcthorse" not in str(view)
    await rig.end()


@pytest.mark.requirement("F38")
async def test_a_queued_job_that_lost_its_secrets_ends_with_that_reason() -> None:
    rig = await Rig.loaded()
    await rig.queue.load()
    await rig.config.change(lambda draft: _limit(draft, 0))
    job_id = await rig.queue.submit([create(osparams_secret={"pw": "hunter2"})])
    rig = await rig.restart()
    view = await rig.final(job_id)
    assert view.status is JobStatus.ERROR
    assert "lost when the master restarted" in str(view.ops[0].result)
    await rig.end()


async def test_a_result_too_large_for_its_row_is_shown_and_not_stored() -> None:
    rig = await Rig.loaded()

    async def run(run: OpRun) -> Outcome:
        return Outcome("x" * 1_000_000)

    rig.executor.behaviours["large"] = run
    job_id = await rig.queue.submit([delay(comment="large"), delay()])
    view = await rig.final(job_id)
    assert view.status is JobStatus.SUCCESS
    assert len(view.ops[0].result) == 1_000_000
    assert "too large to be stored" in view.log[0][0][3]
    rig = await rig.restart()
    again = rig.queue.view(job_id)
    assert again is not None
    assert again.status is JobStatus.SUCCESS
    assert again.ops[0].result is None
    await rig.end()


@pytest.mark.requirement("G6", "G10")
async def test_locks_are_held_until_the_end_of_their_opcode_is_durable() -> None:
    """Or the next master would find it running, while another job works on the same instance."""
    rig = await Rig.loaded()
    acquired, may_end = list[int](), asyncio.Event()

    async def run(run: OpRun) -> Outcome:
        await run.acquire([lock(Level.INSTANCE, ["a.example.com"])])
        acquired.append(run.job_id)
        await may_end.wait()
        return Outcome(None)

    rig.executor.behaviours["locks"] = run
    first, second = [await rig.queue.submit([delay(comment="locks")]) for _ in range(2)]
    await rig.until(second, JobStatus.WAITING)
    await settle()
    rig.store.set_full(full=True)
    may_end.set()
    await settle()
    assert acquired == [first]
    rig.store.set_full(full=False)
    await rig.final(second)
    assert acquired == [first, second]
    await rig.end()


@pytest.mark.requirement("G10", "F12")
async def test_locks_and_reservations_of_an_ended_job_are_free() -> None:
    rig = await Rig.loaded()

    async def run(run: OpRun) -> Outcome:
        await run.acquire([lock(Level.INSTANCE, ["a.example.com", "b.example.com"])])
        rig.config.reservations.new_mac(run.job_id, rig.config.snapshot)
        raise GanetiError("it broke")

    rig.executor.behaviours["locks"] = run
    view = await rig.final(await rig.queue.submit([act(comment="locks")]))
    await settle()
    assert view.status is JobStatus.ERROR
    assert not rig.locks.owners()
    assert rig.config.reservations.count() == 0
    await rig.end()


@pytest.mark.requirement("G8")
async def test_ids_are_never_used_again_although_nothing_is_left_of_the_jobs() -> None:
    rig = await Rig.loaded()
    last = await rig.queue.submit([delay()])
    await rig.final(last)
    assert await rig.queue.archive(last)
    rig.world.archive.clear()
    rig = await rig.restart()
    assert await rig.queue.submit([delay()]) > last
    await rig.end()


@pytest.mark.requirement("G8")
async def test_no_id_is_given_out_while_its_ceiling_cannot_be_registered() -> None:
    rig = await Rig.loaded()
    rig.store.inject(Refuse())
    with pytest.raises(Refused):
        await rig.queue.submit([delay()])
    assert rig.queue.ids() == []
    assert await rig.queue.submit([delay()]) == 1
    await rig.end()


@pytest.mark.parametrize("states", [["success", "error"], ["error", "success"]])
async def test_two_dependencies_on_one_job_must_both_hold(states: list[str]) -> None:
    rig = await Rig.loaded()
    rig.executor.fail("bad")
    bad = await rig.queue.submit([delay(comment="bad")])
    wanted = [(bad, ["success", "canceled"]), (bad, ["success", "error"])]
    if states[0] == "error":
        wanted.reverse()
    after = await rig.queue.submit([delay(depends=wanted)])
    view = await rig.final(after)
    assert statuses(view) == ["error", "error"]
    assert f"it depends on job {bad}, which ended as error" in str(view.ops[0].result)
    await rig.end()


@pytest.mark.requirement("F16")
async def test_key_of_a_submission_that_failed_can_be_used_again() -> None:
    rig = await Rig.loaded()
    rig.store.inject(Refuse())
    with pytest.raises(Refused):
        await rig.queue.submit([delay()], key="mine")
    job_id = await rig.queue.submit([delay()], key="mine")
    assert await rig.queue.submit([delay()], key="mine") == job_id
    assert rig.queue.ids() == [job_id]
    await rig.end()


async def test_stored_sessions_survive_a_restart_beside_the_watchers_memory() -> None:
    rig = await Rig.loaded()
    await rig.queue.keep_sessions("[1]")
    await rig.queue.keep_watcher_memory("seen")
    rig = await rig.restart()
    assert (rig.queue.sessions, rig.queue.watcher_memory) == ("[1]", "seen")
    await rig.end()
