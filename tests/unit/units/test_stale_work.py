"""An undo waits until what it undoes has ended: after an unknown outcome, and after the master's death (R11)."""

import asyncio

import pytest

from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.rpc.stale_work import KNOWN_FOR_S
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G7", "G11", "F24")]

OS_CREATE = 3
"""The create script's place among the acts of a creation."""


@pytest.mark.parametrize("fault", [Fault.LOST_CALL, Fault.LOST_ANSWER])
async def test_a_script_whose_answer_was_lost_is_ended_before_its_disks_go(
    master: Master, fault: Fault
) -> None:
    node = master.world.node(1)
    node.scripts_stay = True
    master.rpc.fail(OS_CREATE, fault)
    name, (text,) = failed(await master.run(create()))
    assert name == "OpExecError"
    assert "could not undo" not in text
    assert node.scripts == {}
    assert len(node.ended_scripts) == 1  # also one whose call may come yet
    assert master.world.disks() == set()
    master.check()


async def test_the_disks_of_a_script_that_cannot_be_ended_stay_and_that_is_reported(
    master: Master,
) -> None:
    node = master.world.node(1)
    node.scripts_stay = node.refuses_to_end = True
    master.rpc.fail(OS_CREATE, Fault.LOST_ANSWER)
    _name, (text,) = failed(await master.run(create()))
    assert "could not undo (remove_disk)" in text
    assert "cannot be ended" in text
    assert len(master.world.disks()) == 2
    # The next master finds the work and the steps, and both go once the script can be ended.
    after = await master.restart()
    with pytest.raises(AssertionError):
        after.check_disks_are_those_of_the_configuration()
    await after.end()


async def test_the_next_master_ends_the_script_before_it_undoes(world: World) -> None:
    world.node(1).scripts_stay = True
    master = await Master.begin(world)
    master.die_at_act(OS_CREATE, is_done=True)
    await master.submit(create())
    assert await master.is_dead_after_a_while()
    assert len(world.node(1).scripts) == 1
    after = await master.restart()
    await after.idle()
    assert world.node(1).scripts == {}
    after.check()
    await after.end()


async def test_an_instance_is_not_touched_while_an_earlier_masters_script_works_on_it(
    world: World,
) -> None:
    node = world.node(1)
    master = await Master.begin(world)
    succeeded(await master.run(create()))
    master = await master.restart()
    node.scripts["77/0/1"] = 0, node.guests[master.instance(NAME).uuid].spec
    node.refuses_to_end = True
    remove = OpInstanceRemove(instance_name=NAME)
    _name, (text,) = failed(await master.run(remove))
    assert "task 77/0/1 for an earlier master" in text
    assert f"this call for {NAME} was not sent" in text
    assert master.instance(NAME).disks
    # Another instance on the same node is none of that script's business.
    other = create(instance_name="other.example.com", no_install=True, os_type=None)
    succeeded(await master.run(other))
    node.refuses_to_end = False
    await asyncio.sleep(KNOWN_FOR_S)
    succeeded(await master.run(remove))
    assert node.scripts == {}
    master.check()
    await master.end()
