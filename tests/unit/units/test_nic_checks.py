"""No guest goes to a node that has not the networks that it needs."""

import pytest

from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove
from tests.support.units_cluster import Master, failed, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = pytest.mark.virtual_time

TARGET = "node2.example.com"


@pytest.mark.parametrize(
    ("op", "template"),
    [
        (migrate(), "sharedfile"),
        (OpInstanceFailover(instance_name=NAME, target_node=TARGET), "sharedfile"),
        (OpInstanceMove(instance_name=NAME, target_node=TARGET), "file"),
    ],
)
async def test_a_target_without_the_bridge_is_refused(
    master: Master, op: OpCode, template: str
) -> None:
    succeeded(await master.run(create(disk_template=template)))
    master.world.node(2).bridges.clear()
    master.rpc.reset()
    name, (text, code) = failed(await master.run(op))
    assert (name, code) == ("OpPrereqError", "environment_error")
    assert "node node2.example.com cannot connect instance" in text
    assert master.rpc.acts() == []
    master.check()


async def test_an_instance_is_not_changed_to_a_bridge_that_is_not_there(master: Master) -> None:
    succeeded(await master.run(create()))
    nics = [["modify", 0, {"link": "lan7"}]]
    assert "the bridge 'lan7' does not exist" in failed(await master.run(modify(nics=nics)))[1][0]
    assert master.instance(NAME).nics[0].nicparams == {}
    succeeded(await master.run(modify(nics=nics, force=True)))
    assert master.instance(NAME).nics[0].nicparams == {"link": "lan7"}


async def test_a_nic_gets_a_vlan_and_loses_it_again(master: Master) -> None:
    succeeded(await master.run(create()))
    for given, wanted in (("10", {"vlan": ".10"}), (":20:30", {"vlan": ":20:30"}), (None, {})):
        succeeded(await master.run(modify(nics=[["modify", 0, {"vlan": given}]])))
        assert master.instance(NAME).nics[0].nicparams == wanted
    wrong = modify(nics=[["modify", 0, {"vlan": "4095"}]])
    assert "vlan: " in failed(await master.run(wrong))[1][0]
