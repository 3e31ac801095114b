"""What is true after the master died at any moment."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ganeti.base.errors import ExecError, GanetiError, LockError, NotMaster
from ganeti.jobs.executor import OpRun, Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.jobs.view import JobView
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus
from ganeti.simulation.faulty_store import Break, Crash, Fault, Refuse, Unknown
from tests.support.virtual_time import run_virtual
from tests.unit.config.sample import sample_instance
from tests.unit.jobs.rig import Puppet, Rig, Step, World, act, delay, settle, statuses


@dataclass
class Story:
    """What clients were told, in one life of a master."""

    accepted: dict[int, list[str]] = field(default_factory=dict)
    """Job id -> summaries of its opcodes."""
    canceled: dict[int, int] = field(default_factory=dict)
    """Job id -> how many effects it had when the answer yes came."""
    final: dict[int, list[str]] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """Instances whose creation was reported as done."""


def make_create(world: World) -> Any:
    """A unit that records an undo step, acts, and adds an instance with its result."""

    async def run(run: OpRun) -> Outcome:
        await run.acquire([])

        async def undo(steps: Sequence[UndoStep]) -> list[tuple[UndoStep, str]]:
            world.undone.append((run.job_id, list(steps)))
            return []

        async with UndoLog(run, undo) as log:
            await log.push(Step("blockdev_remove", {"disk": "d1"}))
            world.effects.append((run.job_id, run.index))
            await asyncio.sleep(0.01)
            log.commit()
        instance = sample_instance(10 + run.job_id % 200)
        return Outcome(instance.name, change=lambda draft: _nothing(draft.put(instance)))

    return run


def _nothing(_value: object) -> None:
    """A change returns nothing."""


async def scenario(rig: Rig, story: Story) -> None:
    """Clients at work: each step may be the last one."""
    queue = rig.queue
    rig.executor.behaviours["create"] = make_create(rig.world)
    rig.executor.fail("bad", ExecError("it broke"))

    async def submit(*jobs: list[Any]) -> list[int]:
        answers = await queue.submit_many(jobs)
        ids = [answer for answer in answers if isinstance(answer, int)]
        for answer, ops in zip(answers, jobs, strict=True):
            if isinstance(answer, int):
                story.accepted[answer] = [op.summary() for op in ops]
        return ids

    async def ended(job_id: int) -> None:
        view = await rig.final(job_id, 20)
        story.final[job_id] = statuses(view)
        if view.ops[0].op.comment == "create" and view.status is JobStatus.SUCCESS:
            story.created.add(view.ops[0].result)

    first = await submit([act("a"), delay(), act("b")], [act("c", comment="bad"), act("d")])
    gate = rig.executor.hold("slow")
    (creator, slow, chained) = await submit(
        [act("e", comment="create"), act("f")],
        [act("g", comment="slow"), act("h")],
        [act("i", depends=[(-2, ["success"])])],
    )
    for job_id in first:
        await ended(job_id)
    await ended(creator)
    await rig.until(slow, JobStatus.RUNNING)
    if (await queue.cancel(slow))[0]:
        story.canceled[slow] = _effects(rig.world, slow) + 1  # the opcode that runs may still act
    gate.set()
    await ended(slow)
    await ended(chained)
    for job_id in first[:1]:
        await queue.archive(job_id)
    await submit([act("j")])


def _effects(world: World, job_id: int) -> int:
    return sum(1 for one, _ in world.effects if one == job_id)


async def play(fault: Fault, after: int) -> bool:
    """Run the scenario with a fault, then the next master, and check; False if no fault was met."""
    rig = await Rig.begin()
    await rig.queue.load()
    story = Story()
    rig.store.inject(fault, after=after)
    told: GanetiError | None = None
    try:
        async with asyncio.timeout(60):
            await scenario(rig, story)
    except (GanetiError, ValueError) as err:
        told = GanetiError(str(err))
    seen = max([*rig.queue.ids(), *story.accepted], default=0)
    met = bool(rig.lost)
    rig = await rig.restart()
    await check(rig, story, seen)
    await rig.end()
    return met or told is not None


async def check(rig: Rig, story: Story, seen: int) -> None:
    world, queue = rig.world, rig.queue
    rig.executor.gates.clear()
    views: dict[int, JobView] = {}
    for job_id in sorted({*queue.ids(), *story.accepted}):
        if queue.view(job_id) is not None:
            views[job_id] = await rig.final(job_id, 20)
        else:
            found = await queue.archived_view(job_id)
            assert found is not None, f"job {job_id} was acknowledged and is gone"
            views[job_id] = found
    for job_id, summaries in story.accepted.items():
        assert [state.op.summary() for state in views[job_id].ops] == summaries
    for job_id, states in story.final.items():
        assert statuses(views[job_id]) == states
    for job_id, most in story.canceled.items():
        assert _effects(world, job_id) <= most
    assert len(set(world.effects)) == len(world.effects), "an opcode ran twice"
    for view in views.values():
        done = [state.status is JobStatus.SUCCESS for state in view.ops]
        assert (view.status is JobStatus.SUCCESS) == all(done)
    for name in story.created:
        assert rig.config.snapshot.instance_by_name(name) is not None
    assert await queue.submit([delay()]) > seen
    assert not rig.locks.owners()


@pytest.mark.sampled(1)
@pytest.mark.requirement("G1", "G2", "G6", "G7", "G8", "G9", "G11", "F11", "F15")
@pytest.mark.parametrize(
    "fault",
    [
        Crash(written=False),
        Crash(written=True),
        Unknown(written=True),
        Unknown(written=False),
        Break(),
        Refuse(),
    ],
    ids=lambda fault: f"{type(fault).__name__}-{getattr(fault, 'written', '')}",
)
def test_nothing_is_lost_or_done_twice_wherever_the_master_dies(fault: Fault) -> None:
    for after in range(80):
        if not run_virtual(play(fault, after)) and not isinstance(fault, Refuse):
            assert after > 15
            return
    assert isinstance(fault, Refuse)


@pytest.mark.virtual_time
@pytest.mark.requirement("G7")
async def test_an_opcode_whose_end_is_unknown_is_undone_and_its_job_an_error() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours["half"] = _half_done
    job_id = await rig.queue.submit([act(), act(comment="half"), act()])
    await settle()
    rig = await rig.restart()
    view = await rig.final(job_id)
    assert statuses(view) == ["error", "success", "error", "error"]
    assert "its outcome is unknown; its unfinished work was undone" in str(view.ops[1].result)
    steps = [UndoStep("first", {"n": 1}), UndoStep("second", {"n": 2})]
    assert rig.world.undone == [(job_id, steps)]
    assert rig.world.effects == [(job_id, 0)]
    rig = await rig.restart()
    await settle()
    assert len(rig.world.undone) == 1
    await rig.end()


async def _half_done(run: OpRun) -> Outcome:
    await run.acquire([])
    await run.record_undo([UndoStep("first", {"n": 1}), UndoStep("second", {"n": 2})])
    await asyncio.sleep(10_000)
    return Outcome()


@pytest.mark.virtual_time
async def test_failed_undo_is_reported_and_stays_recorded() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours["half"] = _half_done
    job_id = await rig.queue.submit([act(comment="half")])
    await settle()
    world = await rig.crash()
    rig = await Rig.begin(world)
    rig.executor.undo_error = ExecError("node1 does not answer")
    await rig.queue.load()
    view = await rig.final(job_id)
    assert "undoing its unfinished work failed: node1 does not answer" in str(view.ops[0].result)
    (row,) = [value for (kind, _), value in rig.world.disk.rows.items() if kind == "job"]
    assert b'"procedure":"second"' in row
    await rig.end()


async def _half_done_then_next_master() -> tuple[Rig, int, asyncio.Event]:
    """The undo of the job's work on web1 waits for the event, as for a node that hangs."""
    rig = await Rig.loaded()
    rig.executor.behaviours["half"] = _half_done
    broken = await rig.queue.submit([act(comment="half")])
    await settle()
    rig = await Rig.begin(await rig.crash())
    return rig, broken, rig.executor.hold_undo("second")


def _with_lock_of(rig: Rig, name: str) -> None:
    async def behaviour(run: OpRun) -> Outcome:
        await run.acquire([lock(Level.INSTANCE, name)])
        return Outcome(None)

    rig.executor.behaviours[name] = behaviour


@pytest.mark.virtual_time
@pytest.mark.requirement("G6")
async def test_no_job_uses_an_object_before_half_done_work_on_it_is_undone() -> None:
    rig, broken, gate = await _half_done_then_next_master()
    _with_lock_of(rig, "web1")
    await rig.queue.load()
    other = await rig.queue.submit([act(comment="web1")])
    await asyncio.sleep(300)
    assert statuses(rig.queue.view(broken)) == ["running", "running"]
    assert statuses(rig.queue.view(other)) == ["waiting", "waiting"]
    gate.set()
    assert (await rig.final(broken)).status is JobStatus.ERROR
    assert (await rig.final(other)).status is JobStatus.SUCCESS
    await rig.end()


@pytest.mark.virtual_time
@pytest.mark.requirement("G6", "G17")
async def test_undo_that_hangs_holds_up_no_job_about_other_objects() -> None:
    rig, broken, _gate = await _half_done_then_next_master()
    _with_lock_of(rig, "web2")
    await rig.queue.load()
    other = await rig.queue.submit([act(comment="web2")])
    assert (await rig.final(other)).status is JobStatus.SUCCESS
    assert statuses(rig.queue.view(broken)) == ["running", "running"]
    await rig.end()


@pytest.mark.virtual_time
@pytest.mark.requirement("G6")
async def test_no_job_starts_while_half_done_work_is_undone_without_locks() -> None:
    rig, broken, gate = await _half_done_then_next_master()

    def no_locks(steps: Sequence[UndoStep]) -> list[LockRequest]:
        raise LockError(f"not now: {steps}")

    rig.executor.undo_locks = no_locks  # type: ignore[method-assign]  # a test's fake
    await rig.queue.load()
    other = await rig.queue.submit([act()])
    await settle()
    assert statuses(rig.queue.view(broken)) == ["running", "running"]
    assert statuses(rig.queue.view(other)) == ["queued", "queued"]
    gate.set()
    assert (await rig.final(other)).status is JobStatus.SUCCESS
    await rig.end()


@pytest.mark.virtual_time
async def test_job_between_two_opcodes_continues_under_the_next_master() -> None:
    rig = await Rig.loaded()
    rig.executor.hold("slow")
    job_id = await rig.queue.submit([act("a"), delay(comment="slow"), act("b")])
    await settle()
    assert statuses(rig.queue.view(job_id)) == ["running", "success", "running", "queued"]
    rig = await rig.restart()
    assert statuses(await rig.final(job_id)) == ["success"] * 4
    assert rig.world.effects == [(job_id, 0), (job_id, 2)]
    await rig.end()


@pytest.mark.virtual_time
@pytest.mark.requirement("G7")
async def test_a_planned_stop_leaves_running_work_to_the_next_master() -> None:
    rig = await Rig.loaded()
    rig.executor.behaviours["create"] = make_create(rig.world)
    rig.executor.behaviours["half"] = _half_done
    job_id = await rig.queue.submit([act(comment="half")])
    await settle()
    await rig.end()
    assert rig.world.undone == []
    assert not rig.lost
    with pytest.raises(NotMaster):
        await rig.queue.submit([act()])
    rig = await Rig.loaded(rig.world)
    assert (await rig.final(job_id)).status is JobStatus.ERROR
    assert len(rig.world.undone) == 1
    await rig.end()


@pytest.mark.virtual_time
async def test_log_lines_survive_a_crash_after_their_batch() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        run.log("one")
        await asyncio.sleep(1)
        run.log("two")
        await asyncio.sleep(1000)
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk")])
    await asyncio.sleep(1.5)
    world = await rig.crash()
    rig = await Rig.begin(world)
    rig.executor = Puppet(world)
    await rig.queue.load()
    view = await rig.final(job_id)
    assert [entry[3] for entry in view.log[0]] == ["one", "two"]
    await rig.end()


@pytest.mark.virtual_time
async def test_lines_of_a_job_that_was_archived_just_before_the_crash_are_deleted() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        for number in range(150):
            run.log(f"line {number}")
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk")])
    await rig.final(job_id)
    rig.store.inject(Crash(), after=1)
    with pytest.raises(GanetiError):
        await rig.queue.archive(job_id)
    rig = await rig.restart()
    await settle()
    assert [kind for kind, _ in rig.world.disk.rows if kind == "joblog"] == []
    assert await rig.queue.archived_view(job_id) is not None
    await rig.end()


@pytest.mark.requirement("G7", "G28")
@pytest.mark.parametrize(("ended", "undone"), [(0, True), (1, False)])
async def test_a_job_that_was_stored_in_the_first_format_is_read(ended: int, undone: bool) -> None:
    """Its steps may be those of earlier opcodes, except where there was none."""
    rig = await Rig.loaded()
    rig.executor.hold("slow")
    job_id = await rig.queue.submit([*[act() for _ in range(ended)], act(comment="slow")])
    await rig.until(job_id, JobStatus.RUNNING)
    await settle()
    world = await rig.crash()
    place = next(place for place in world.disk.rows if place[0] == "job")
    row = json.loads(world.disk.rows[place])
    del row["pending"]
    row["format"] = 1
    row["ops"][ended]["status"] = "running"
    row["undo"] = [{"procedure": "old", "arguments": {}}]
    world.disk.rows[place] = json.dumps(row).encode()
    rig = await Rig.loaded(world)
    view = await rig.final(job_id)
    assert view.status is JobStatus.ERROR
    await settle()
    assert world.undone == [(job_id, [UndoStep("old", {})])]
    assert rig.executor.deferred == [not undone]
    await rig.end()
