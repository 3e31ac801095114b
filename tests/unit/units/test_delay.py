"""Doing nothing, for a while, somewhere."""

import asyncio
from typing import Any

import pytest

from ganeti.locking.levels import Level
from ganeti.model.names import JobStatus
from ganeti.model.opcodes.test import OpTestDelay
from tests.support.units_cluster import NODES, Master, failed, said, succeeded

pytestmark = pytest.mark.virtual_time


async def test_a_delay_takes_its_time_and_no_more(master: Master) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    view = await master.run(OpTestDelay(duration=10, repeat=2))
    succeeded(view)
    assert loop.time() - begin == pytest.approx(30, abs=0.1)
    assert "Test delay iteration 2/2" in said(view)


async def test_a_delay_of_no_time_is_accepted(master: Master) -> None:
    succeeded(await master.run(OpTestDelay(duration=0)))
    master.check_nothing_is_held()


async def test_nodes_sleep_under_their_locks(master: Master) -> None:
    op = OpTestDelay(duration=1, on_master=True, on_nodes=["node2", "node3"])
    job_id = await master.submit(op)
    await asyncio.sleep(0.5)
    assert set(master.locks.owned(job_id)[Level.NODE]) == {NODES[1], NODES[2]}
    succeeded(await master.final(job_id))
    called = [(call.node_name, call.args.duration_s) for call in master.rpc.calls]
    assert called == [("node2.example.com", 1), ("node3.example.com", 1)]


@pytest.mark.parametrize("kill", [False, True])
async def test_a_delay_ends_when_its_job_is_killed_or_if_interruptible_cancelled(
    master: Master, kill: bool
) -> None:
    job_id = await master.submit(OpTestDelay(duration=3600, interruptible=not kill))
    await asyncio.sleep(5)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    assert (await master.queue.cancel(job_id, kill=kill))[0]
    view = await master.final(job_id)
    assert view.status is JobStatus.CANCELED
    assert loop.time() - begin < 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"duration": -1}, "duration: must be from 0 seconds to 7 days"),
        ({"duration": float("nan")}, "duration: "),
        ({"duration": 0, "repeat": -1}, "repeat: must be from 0 to"),
        ({"duration": 0, "on_nodes": ["no_node"]}, "node name: "),
    ],
)
async def test_a_wrong_delay_is_refused(master: Master, fields: dict[str, Any], text: str) -> None:
    name, (message, code) = failed(await master.run(OpTestDelay(**fields)))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text in message
