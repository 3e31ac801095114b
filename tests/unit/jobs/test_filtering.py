"""Jobs that filters hold back, reject, or let run only so many at once."""

import asyncio
from typing import Any

import msgspec
import pytest

from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.query.filter_changes import FilterChanges
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.virtual_time import LoopClock
from tests.unit.jobs.rig import Rig, act, delay, settle

pytestmark = pytest.mark.virtual_time

NEW = [["jobid", [">", "id", "watermark"]]]
STARTUPS = [["opcode", ["=", "OP_ID", "OP_INSTANCE_STARTUP"]]]
UUID = "00000000-0000-4000-f000-00000000000{}"


def because(text: str, **fields: Any) -> OpCode:
    return act(reason=[("gnt:user", text, 7)], **fields)


async def add(
    rig: Rig,
    action: Any,
    predicates: list[Any] | None = None,
    *,
    priority: int = 0,
    number: int = 1,
) -> str:
    changes = FilterChanges(rig.config, CountingIds(), LoopClock(), rig.queue.greatest_id)
    return await changes.replace(UUID.format(number), priority, predicates or [], action, [])


async def delete(rig: Rig, number: int = 1) -> None:
    changes = FilterChanges(rig.config, CountingIds(), LoopClock(), rig.queue.greatest_id)
    await changes.delete(UUID.format(number))


def status(rig: Rig, job_id: int) -> JobStatus:
    view = rig.queue.view(job_id)
    assert view is not None
    return view.status


async def test_paused_jobs_stay_until_the_filter_is_gone_also_at_the_next_master() -> None:
    rig = await Rig.loaded()
    rig.executor.hold("gate")
    early = await rig.queue.submit([act(comment="gate")])
    await rig.until(early, JobStatus.RUNNING)
    uuid = await add(rig, "PAUSE", NEW)
    late = await rig.queue.submit([act()])
    await settle()
    view = rig.queue.view(late)
    assert view is not None
    assert (view.status, view.waiting_for) == (
        JobStatus.QUEUED, f"paused by the job filter {uuid}",
    )  # fmt: skip
    assert status(rig, early) is JobStatus.RUNNING
    rig = await rig.restart()
    await settle()
    assert status(rig, late) is JobStatus.QUEUED
    await delete(rig)
    assert (await rig.final(late)).status is JobStatus.SUCCESS
    await rig.end()


async def test_rejected_jobs_are_cancelled_queued_or_new_and_their_logs_say_why() -> None:
    rig = await Rig.loaded()
    await add(rig, "PAUSE")
    queued = await rig.queue.submit([act()])
    other = await rig.queue.submit([delay()])
    uuid = await add(rig, "REJECT", STARTUPS)
    assert (await rig.final(queued)).status is JobStatus.CANCELED
    assert (await rig.final(other)).status is JobStatus.SUCCESS
    new = await rig.queue.submit([delay(), act()])
    view = await rig.final(new)
    assert view.status is JobStatus.CANCELED
    assert view.log[0][0][3] == f"rejected by the job filter {uuid}"
    assert rig.world.effects == []
    await rig.end()


async def test_a_running_job_is_not_rejected() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("gate")
    job_id = await rig.queue.submit([act(comment="gate"), act()])
    await rig.until(job_id, JobStatus.RUNNING)
    await add(rig, "REJECT")
    await settle()
    gate.set()
    assert (await rig.final(job_id)).status is JobStatus.SUCCESS
    await rig.end()


async def test_a_full_disk_keeps_a_rejected_job_paused_until_it_can_be_cancelled() -> None:
    rig = await Rig.loaded()
    await add(rig, "PAUSE", priority=1, number=2)
    job_id = await rig.queue.submit([act()])
    await add(rig, "REJECT")
    rig.store.set_full(full=True)
    await asyncio.sleep(12)
    assert status(rig, job_id) is JobStatus.QUEUED
    rig.store.set_full(full=False)
    assert (await rig.final(job_id)).status is JobStatus.CANCELED
    assert rig.world.effects == []
    await rig.end()


async def test_an_earlier_filter_lets_jobs_pass_a_later_one() -> None:
    rig = await Rig.loaded()
    await add(rig, "PAUSE", priority=1, number=2)
    await add(rig, "ACCEPT", [["reason", ["=~", "reason", "pink bunny"]]])
    await add(rig, "CONTINUE", number=3)
    bunny = await rig.queue.submit([because("maintenance pink bunny")])
    other = await rig.queue.submit([because("maintenance")])
    assert (await rig.final(bunny)).status is JobStatus.SUCCESS
    assert status(rig, other) is JobStatus.QUEUED
    await rig.end()


async def test_only_so_many_run_at_once_while_others_pass() -> None:
    rig = await Rig.loaded()
    await add(rig, ["RATE_LIMIT", 2], STARTUPS)
    gate = rig.executor.hold("gate")
    jobs = await rig.queue.submit_many([[act(comment="gate")] for _ in range(5)])
    ids = [one for one in jobs if isinstance(one, int)]
    other = await rig.queue.submit([delay()])
    await rig.final(other)
    await settle()
    assert rig.executor.started == [*ids[:2], other]
    view = rig.queue.view(ids[4])
    assert view is not None
    assert view.waiting_for is not None
    assert view.waiting_for.startswith(
        "waiting until fewer than 2 jobs run, as required by the job filter"
    )
    gate.set()
    for job_id in ids:
        assert (await rig.final(job_id)).status is JobStatus.SUCCESS
    assert rig.executor.started == [*ids[:2], other, *ids[2:]]
    await rig.end()


async def test_jobs_that_run_when_a_limit_comes_count() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("gate")
    first = await rig.queue.submit([act(comment="gate")])
    await rig.until(first, JobStatus.RUNNING)
    await add(rig, ["RATE_LIMIT", 1], STARTUPS)
    second = await rig.queue.submit([act()])
    await settle()
    assert status(rig, second) is JobStatus.QUEUED
    gate.set()
    assert (await rig.final(second)).status is JobStatus.SUCCESS
    await rig.end()


async def test_a_reason_limits_its_own_jobs_without_any_filter() -> None:
    rig = await Rig.loaded()
    gate = rig.executor.hold("gate")
    ops = [because("rate-limit:1:bunny", comment="gate") for _ in range(3)]
    ids = [await rig.queue.submit([op]) for op in ops]
    free = await rig.queue.submit([because("rate-limit:0:bunny")])
    other = await rig.queue.submit([because("rate-limit:1:fox")])
    await rig.final(other)
    await rig.final(free)
    await settle()
    assert rig.executor.started == [ids[0], free, other]
    gate.set()
    await rig.final(ids[2])
    await rig.end()


async def test_a_predicate_may_be_about_any_field_of_an_opcode() -> None:
    rig = await Rig.loaded()
    await add(rig, "REJECT", [["opcode", ["=~", "comment", "needle"]]])
    op = msgspec.structs.replace(act(), comment="a needle")
    assert (await rig.final(await rig.queue.submit([op]))).status is JobStatus.CANCELED
    await rig.end()


async def test_all_jobs_are_looked_at_again_when_a_filter_changes() -> None:
    rig = await Rig.loaded()
    await add(rig, "PAUSE")
    jobs = await rig.queue.submit_many([[delay()] for _ in range(300)])
    ids = [one for one in jobs if isinstance(one, int)]
    await add(rig, "REJECT", NEW, number=2, priority=0)
    late = await rig.queue.submit([delay()])
    await delete(rig)
    await asyncio.sleep(1)
    views = [status(rig, job_id) for job_id in ids]
    assert set(views) == {JobStatus.SUCCESS}
    assert status(rig, late) is JobStatus.CANCELED
    await rig.end()
