"""Restarting a node by force."""

import asyncio

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.node import OpNodePowercycle
from ganeti.model.opcodes.test import OpTestDelay
from tests.support.units_cluster import NODES, Master, failed, succeeded

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S32")]


async def test_a_node_is_restarted(master: Master) -> None:
    view = await master.run(OpNodePowercycle(node_name="node2"))
    assert succeeded(view) == "Reboot scheduled in 5 seconds"
    assert [master.world.node(number).restarts for number in (1, 2, 3)] == [0, 1, 0]
    master.check_nothing_is_held()


async def test_the_master_is_restarted_only_by_force(master: Master) -> None:
    name, (text, code) = failed(await master.run(OpNodePowercycle(node_name="node1")))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert "is the master; --force" in text
    assert master.world.node(1).restarts == 0
    succeeded(await master.run(OpNodePowercycle(node_name="node1", force=True)))
    assert master.world.node(1).restarts == 1


async def test_it_does_not_wait_for_jobs_that_hang_on_the_node(master: Master) -> None:
    hanging = OpTestDelay(duration=3000, on_nodes=["node2.example.com"], on_master=False)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    job_id = await master.submit(hanging)
    await asyncio.sleep(1)
    succeeded(await master.run(OpNodePowercycle(node_name="node2")))
    assert loop.time() - begun < 60
    await master.final(job_id)


async def test_a_node_that_is_marked_offline_is_not_asked(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    assert failed(await master.run(OpNodePowercycle(node_name="node2")))[1][1] == "wrong_state"


async def test_a_dry_run_restarts_nothing(master: Master) -> None:
    succeeded(await master.run(OpNodePowercycle(node_name="node2", dry_run=True)))
    assert master.world.node(2).restarts == 0


async def test_an_unknown_node_is_named(master: Master) -> None:
    text, code = failed(await master.run(OpNodePowercycle(node_name="node9")))[1]
    assert code == "unknown_entity"
    assert "node9" in text
