"""`gnt-job cancel --kill` ends what the nodes run for a job, whichever call waits for it."""

import asyncio
from typing import Any

import pytest

from ganeti.base.errors import GuestOsError
from ganeti.model.names import JobStatus
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.disks import BLOCKDEV_CREATE, BLOCKDEV_REMOVE
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.programs import OS_CREATE, OS_VALIDATE
from ganeti.rpc.procedures.stale_work import END_STALE_WORK, EndWorkArgs
from tests.support.slow_calls import Slow
from tests.support.units_cluster import Master, failed, node_name
from tests.unit.units.opcodes import create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G9", "G11")]


class HangingNode:
    """Lets the calls of some procedures hang on node 1 until their keys are to end; they fail then."""

    def __init__(self, master: Master, *procedures: Procedure[Any, Any]) -> None:
        self.hanging: dict[str, asyncio.Event] = {}
        handlers = master.rpc.nodes[node_name(1)] = dict(master.rpc.nodes[node_name(1)])
        self._end = handlers[END_STALE_WORK.name]
        handlers[END_STALE_WORK.name] = self.end
        for procedure in procedures:
            handlers[procedure.name] = self.hang

    async def hang(self, _args: Any, call: Call) -> Any:
        ended = self.hanging[call.key] = asyncio.Event()
        await ended.wait()
        del self.hanging[call.key]
        raise GuestOsError("a script was ended by signal 15")

    async def end(self, args: EndWorkArgs, call: Call) -> Any:
        for key in args.keys:
            if key in self.hanging:
                self.hanging[key].set()
        return await self._end(args, call)

    async def hangs(self) -> str:
        while not self.hanging:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        return next(iter(self.hanging))


@pytest.mark.parametrize("procedure", [OS_VALIDATE, OS_CREATE], ids=lambda one: str(one.name))
async def test_the_script_of_a_call_is_ended_and_what_was_done_is_undone(
    master: Master, procedure: Procedure[Any, Any]
) -> None:
    node = HangingNode(master, procedure)
    job_id = await master.submit(create())
    await node.hangs()
    assert not (await master.queue.cancel(job_id))[0], "a plain cancel promises nothing"
    assert (await master.queue.cancel(job_id, kill=True))[0]
    async with asyncio.timeout(10):
        view = await master.final(job_id)
    assert "ended by signal 15" in failed(view)[1][0]
    assert "could not undo" not in failed(view)[1][0]
    master.check()
    master.check_nothing_is_held()


async def test_a_question_how_far_a_call_is_does_not_take_the_kill(master: Master) -> None:
    """Space that is being cleared is no program: the node goes on to its end, and the job ends behind it."""
    Slow(master, 1, BLOCKDEV_CREATE.name)
    job_id = await master.submit(create())
    await asyncio.sleep(12)  # after the first question, before the next ones
    assert (await master.queue.cancel(job_id, kill=True))[0]
    text = failed(await master.final(job_id))[1][0]
    assert "the job was cancelled" in text
    master.check()
    master.check_nothing_is_held()


async def test_an_undo_that_hangs_is_ended_by_another_kill_and_stays_recorded(
    master: Master,
) -> None:
    node = HangingNode(master, OS_CREATE, BLOCKDEV_REMOVE)
    job_id = await master.submit(create())
    for _ in range(3):  # the script, then the removal of each of two disks
        key = await node.hangs()
        assert (await master.queue.cancel(job_id, kill=True))[0]
        async with asyncio.timeout(10):
            while key in node.hanging:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        view = await master.final(job_id)
    assert view.status is JobStatus.ERROR
    assert "could not undo (remove_disk)" in failed(view)[1][0]
    assert len(master.queue.pending_undo()) == 2
