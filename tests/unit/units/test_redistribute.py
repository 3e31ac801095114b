"""The same files on all nodes."""

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.cluster import OpClusterRedistConf
from ganeti.rpc.procedures.files import NodeFile
from tests.support.units_cluster import NODES, Master, failed, said, succeeded

pytestmark = pytest.mark.virtual_time

LIST = NodeFile(path="/etc/ganeti/distributed-files", content=b"/etc/own.conf\n", mode=0o644)
OWN = NodeFile(path="/etc/own.conf", content=b"x", mode=0o640)
RAPI = NodeFile(path="/var/lib/ganeti/rapi.pem", content=b"k", mode=0o600, candidates_only=True)


@pytest.mark.requirement("S65", "S66", "S68")
async def test_all_nodes_get_the_facts_and_the_files(master: Master) -> None:
    await master.change(
        lambda draft: draft.put(replace(draft.nodes[NODES[1]], master_candidate=True))
    )
    master.world.node(1).shared_files = [LIST, OWN, RAPI]
    succeeded(await master.run(OpClusterRedistConf()))
    common = {LIST.path: LIST, OWN.path: OWN}
    assert master.world.node(1).files == {}
    assert master.world.node(2).files == {**common, RAPI.path: RAPI}
    assert master.world.node(3).files == common
    for number in (1, 2, 3):
        assert master.world.node(number).ssconf["cluster_name"] == "cluster.example.com"


@pytest.mark.requirement("G23")
async def test_redist_conf_makes_the_table_of_roles_true(master: Master) -> None:
    succeeded(await master.run(OpClusterRedistConf()))
    names = [f"node{number}.example.com" for number in (1, 2, 3)]
    assert master.candidates.acts == [("enforce", name) for name in names]


@pytest.mark.requirement("F37")
async def test_what_a_node_does_not_take_fails_the_job_and_is_reported(master: Master) -> None:
    master.world.node(1).shared_files = [LIST, OWN]
    master.world.node(3).forbidden_files = {OWN.path}
    view = await master.run(OpClusterRedistConf())
    assert failed(view)[0] == "OpExecError"
    assert "/etc/own.conf is not brought up to date on node3.example.com: not allowed" in said(view)
    assert set(master.world.node(2).files) == {LIST.path, OWN.path}
    assert set(master.world.node(3).files) == {LIST.path}


async def test_a_silent_node_does_not_keep_the_others_waiting(master: Master) -> None:
    master.world.node(1).shared_files = [LIST]
    del master.rpc.nodes["node2.example.com"]
    view = await master.run(OpClusterRedistConf())
    assert failed(view)[0] == "OpExecError"
    assert "node2.example.com does not get its ssconf files" in said(view)
    assert set(master.world.node(3).files) == {LIST.path}


async def test_offline_nodes_are_not_touched(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    succeeded(await master.run(OpClusterRedistConf()))
    assert "node2.example.com" not in {call.node_name for call in master.rpc.calls}


@pytest.mark.requirement("F39")
async def test_a_master_that_missed_a_renewal_hands_out_nothing_of_it(master: Master) -> None:
    await master.change(
        lambda draft: draft.put(replace(draft.nodes[NODES[1]], master_candidate=True))
    )
    first, second = replace(RAPI, content=b"first"), replace(RAPI, content=b"second")
    master.world.node(1).shared_files = [LIST, second]
    succeeded(await master.run(OpClusterRedistConf(renewed=[RAPI.path])))
    assert master.world.node(2).files[RAPI.path] == second
    master.world.node(1).shared_files = [LIST, first]  # as another master has it
    view = await master.run(OpClusterRedistConf())
    assert failed(view)[0] == "OpExecError"
    assert "rapi.pem is not distributed: the master does not have the version" in said(view)
    assert master.world.node(2).files == {LIST.path: LIST, RAPI.path: second}
    succeeded(await master.run(OpClusterRedistConf(renewed=[RAPI.path])))
    assert master.world.node(2).files[RAPI.path] == first
