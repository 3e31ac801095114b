"""The limits and batches of job logs."""

import asyncio
from typing import Any

import pytest

from ganeti.jobs.executor import OpRun, Outcome
from ganeti.jobs.feedback import JOB_LIMIT, LINE_LIMIT, cut
from ganeti.jobs.record import timestamp
from ganeti.simulation.faulty_store import Delay
from tests.unit.jobs.rig import Rig, act, delay

pytestmark = pytest.mark.virtual_time


def test_long_lines_are_cut_and_say_so() -> None:
    assert cut("short") == "short"
    assert cut({"a": 1}) == {"a": 1}
    for text in ("x" * 10_000, "ä" * 5_000, "€" * 5_000):
        line = cut(text)
        assert len(line.encode()) <= LINE_LIMIT
        assert f"({len(text.encode())} bytes)" in line
    assert cut(["x" * 10_000]).startswith('["xxx')


def test_times_are_seconds_and_microseconds() -> None:
    assert timestamp(1.5) == (1, 500_000)
    assert timestamp(1.9999999) == (2, 0)


async def test_full_log_ends_with_a_notice() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        for _ in range(1000):
            run.log("y" * 3000)
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk"), delay(comment="talk")])
    view = await rig.final(job_id)
    lines = [entry for entries in view.log for entry in entries]
    assert "the log of this job ends here" in lines[-1][3]
    assert sum(len(entry[3]) for entry in lines) <= JOB_LIMIT + 100
    assert [entry[0] for entry in lines] == list(range(1, len(lines) + 1))
    stored = [key for kind, key in rig.world.disk.rows if kind == "joblog"]
    assert len(stored) == len(lines)
    rig = await rig.restart()
    again = rig.queue.view(job_id)
    assert again is not None
    assert again.log == view.log
    await rig.end()


@pytest.mark.requirement("G16", "S199")
async def test_log_lines_wait_for_a_full_disk_without_blocking_jobs() -> None:
    rig = await Rig.loaded()
    said = asyncio.Event()

    async def talk(run: OpRun) -> Outcome:
        run.log("before")
        await asyncio.sleep(1)
        run.log("while full")
        said.set()
        await asyncio.sleep(5)
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk")])
    await asyncio.sleep(0.9)
    rig.store.set_full(full=True)
    await said.wait()
    answer = await rig.queue.wait_for_change(job_id, lambda view: [view.status], ["running"], 1, 1)
    assert answer is not None
    assert answer[1][0][3] == "while full"
    rig.store.set_full(full=False)
    await rig.final(job_id)
    assert len([1 for kind, _ in rig.world.disk.rows if kind == "joblog"]) == 2
    await rig.end()


async def test_lines_of_many_jobs_share_transactions() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        run.log("hello")
        await asyncio.sleep(10)
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    ids = await rig.queue.submit_many([[delay(comment="talk")]] * 300)
    await asyncio.sleep(0.01)
    before = rig.store.statistics().transactions
    await asyncio.sleep(1)
    assert rig.store.statistics().transactions - before <= 4
    assert len([1 for kind, _ in rig.world.disk.rows if kind == "joblog"]) == len(ids)
    await rig.end()


@pytest.mark.requirement("S199", "G1")
async def test_the_last_lines_of_a_job_are_durable_with_its_end() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        await run.acquire([])
        run.log("the last words")
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([delay(comment="talk")])
    await rig.final(job_id)
    rig = await rig.restart()
    view = rig.queue.view(job_id)
    assert view is not None
    assert view.status.value == "success"
    assert [line[3] for line in view.log[0]] == ["the last words"]
    await rig.end()


@pytest.mark.requirement("S199")
async def test_readers_and_waiters_do_not_wait_for_a_slow_candidate() -> None:
    rig = await Rig.loaded()

    async def talk(run: OpRun) -> Outcome:
        await run.acquire([])
        rig.store.inject(Delay(5.0))
        run.log("while a candidate is slow")
        await asyncio.sleep(0.3)
        await run.started()
        return Outcome()

    rig.executor.behaviours["talk"] = talk
    job_id = await rig.queue.submit([act(comment="talk")])
    loop = asyncio.get_running_loop()
    begun = loop.time()
    info: list[Any] | None = None
    lines: list[Any] = []
    while not lines:
        answer = await rig.queue.wait_for_change(job_id, lambda view: [view.status], info, 0, 10)
        assert answer is not None
        info, lines = answer
    assert lines[0][3] == "while a candidate is slow"
    assert loop.time() - begun < 0.5
    await asyncio.sleep(1)
    view = rig.queue.view(job_id)
    assert view is not None
    assert view.status.value == "running"
    assert len(view.log[0]) == 1
    assert loop.time() - begun < 2
    await rig.final(job_id)
    assert loop.time() - begun > 4
    await rig.end()
