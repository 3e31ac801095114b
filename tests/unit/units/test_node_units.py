"""Taking nodes in and out."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.cluster import OpClusterDestroy, OpClusterPostInit, OpClusterQuery
from ganeti.model.opcodes.node import OpNodeAdd, OpNodeRemove
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import (
    CLUSTER,
    GROUP,
    NODES,
    Master,
    World,
    certificate,
    failed,
    said,
    succeeded,
)
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


def add(**fields: Any) -> OpNodeAdd:
    given: dict[str, Any] = {
        "node_name": "node4.example.com",
        "primary_ip": "192.0.2.4",
        "certificate": certificate(4),
    }
    return OpNodeAdd(**{**given, **fields})


@pytest.mark.requirement("S86")
async def test_a_joined_host_becomes_a_node(master: Master) -> None:
    name, uuid = succeeded(await master.run(add()))
    assert name == "node4.example.com"
    node = master.snapshot.nodes[uuid]
    assert (node.name, node.group, node.secondary_ip) == (name, GROUP, "192.0.2.4")
    succeeded(await master.run(create(pnode="node4")))
    master.check()


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"node_name": "no_host"}, "wrong_input", "node_name: "),
        ({"primary_ip": None}, "wrong_input", "use gnt-node add"),
        ({"certificate": ""}, "wrong_input", "use gnt-node add"),
        ({"certificate": "abc"}, "wrong_input", "certificate: must be a SHA-256 fingerprint"),
        ({"primary_ip": "host"}, "wrong_input", "primary_ip: 'host' is not an IP address"),
        ({"secondary_ip": "host"}, "wrong_input", "secondary_ip: "),
        ({"port": 0}, "wrong_input", "port: must be from 1 to 65535"),
        ({"ndparams": {"nosuch": 1}}, "wrong_input", "ndparams.nosuch: is not a node parameter"),
        ({"ndparams": {"spindle_count": "many"}}, "wrong_input", "ndparams.spindle_count: "),
        ({"group": "nosuch"}, "unknown_entity", "nosuch"),
        ({"node_name": "node2.example.com"}, "already_exists", "is already in the cluster"),
        ({"readd": True}, "unknown_entity", "cannot be added again"),
        ({"primary_ip": "192.0.2.2"}, "resource_not_unique", "192.0.2.2"),
        ({"certificate": certificate(2)}, "resource_not_unique", "certificate"),
        ({"node_name": "node5.example.com"}, "environment_error", "does not answer"),
    ],
)
async def test_a_wrong_addition_is_refused(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    position = master.snapshot.nodes
    name, (message, got) = failed(await master.run(add(**fields)))
    assert (name, got) == ("OpPrereqError", code)
    assert text in message
    assert master.snapshot.nodes == position
    master.check()


async def test_a_dry_run_checks_all_and_adds_nothing(master: Master) -> None:
    succeeded(await master.run(add(dry_run=True)))
    _, (_, code) = failed(await master.run(add(dry_run=True, primary_ip="192.0.2.2")))
    assert code == "resource_not_unique"
    assert master.snapshot.node_by_name("node4.example.com") is None
    master.check()


async def test_a_host_of_another_cluster_is_refused(master: Master) -> None:
    master.world.node(4).cluster_uuid = "another"
    _, (text, code) = failed(await master.run(add()))
    assert code == "wrong_state"
    assert "has joined another cluster (another)" in text


async def test_a_host_with_another_name_is_refused(master: Master) -> None:
    master.world.node(4).name = "node5.example.com"
    _, (text, code) = failed(await master.run(add()))
    assert code == "wrong_input"
    assert "has the name node5.example.com" in text


async def test_a_known_node_can_be_taken_in_again(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    again = add(node_name="node2.example.com", primary_ip="192.0.2.2", readd=True)
    assert succeeded(await master.run(again)) == ["node2.example.com", NODES[1]]
    node = master.node(2)
    assert not node.offline
    assert node.certificate == certificate(4)


async def test_a_node_may_be_drained_from_the_first_moment_on(master: Master) -> None:
    succeeded(await master.run(add(drained=True)))
    again = {"node_name": "node2.example.com", "primary_ip": "192.0.2.2", "readd": True}
    succeeded(await master.run(add(**again, certificate=certificate(5), drained=True)))
    for number in (4, 2):
        node = master.snapshot.node_by_name(f"node{number}.example.com")
        assert node is not None
        assert (node.drained, node.offline, node.master_candidate) == (True, False, False)


@pytest.mark.parametrize("number", range(5))
async def test_an_addition_is_whole_or_nothing(world: World, number: int) -> None:
    for fault in (Refuse(), Crash(written=False), Crash(written=True)):
        world = World()
        master = await Master.begin(world)
        await master.submit(add())
        master.store.inject(fault, after=number)
        await master.is_dead_after_a_while()
        after = await master.restart()
        await after.idle()
        if after.snapshot.node_by_name("node4.example.com") is None:
            succeeded(await after.run(add()))
        after.check()
        await after.end()


async def test_a_node_is_removed_and_told_so(master: Master) -> None:
    succeeded(await master.run(OpNodeRemove(node_name="node3")))
    assert NODES[2] not in master.snapshot.nodes
    assert master.world.node(3).left


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_node_that_does_not_listen_is_removed_with_a_warning(
    master: Master, fault: Fault
) -> None:
    master.rpc.fail(1, fault)
    view = await master.run(OpNodeRemove(node_name="node3"))
    succeeded(view)
    assert "run ganeti-node-join --reset there" in said(view)
    assert NODES[2] not in master.snapshot.nodes


async def test_an_offline_node_is_removed_without_a_call(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[2]], offline=True)))
    view = await master.run(OpNodeRemove(node_name="node3"))
    succeeded(view)
    assert "still has the data of this cluster" in said(view)
    assert master.rpc.acts() == []


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("written", [False, True])
async def test_a_removal_of_a_node_can_be_repeated_by_the_next_master(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await master.submit(OpNodeRemove(node_name="node3"))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    await after.idle()
    if NODES[2] in after.snapshot.nodes:
        succeeded(await after.run(OpNodeRemove(node_name="node3")))
    assert world.node(3).left
    after.check()
    await after.end()


async def test_the_master_and_nodes_with_instances_stay(master: Master) -> None:
    _, (text, code) = failed(await master.run(OpNodeRemove(node_name="node1")))
    assert (code, "is the master" in text) == ("wrong_input", True)
    succeeded(await master.run(create(pnode="node2")))
    _, (text, code) = failed(await master.run(OpNodeRemove(node_name="node2")))
    assert (code, NAME in text) == ("wrong_state", True)
    assert master.rpc.acts().count("leave_cluster") == 0


async def test_a_cluster_is_destroyed_only_when_it_is_empty(master: Master) -> None:
    _, (text, code) = failed(await master.run(OpClusterDestroy()))
    assert (code, "still has other nodes" in text) == ("wrong_state", True)
    for number in (2, 3):
        succeeded(await master.run(OpNodeRemove(node_name=f"node{number}")))
    succeeded(await master.run(create(disk_template="file")))
    _, (text, code) = failed(await master.run(OpClusterDestroy()))
    assert (code, "1 instances" in text) == ("wrong_state", True)


async def test_the_last_node_may_go(master: Master) -> None:
    for number in (2, 3):
        succeeded(await master.run(OpNodeRemove(node_name=f"node{number}")))
    assert succeeded(await master.run(OpClusterDestroy())) == "node1.example.com"


@pytest.mark.requirement("S86")
async def test_the_first_job_and_the_query_name_the_cluster(master: Master) -> None:
    assert succeeded(await master.run(OpClusterPostInit())) == CLUSTER
    assert succeeded(await master.run(OpClusterQuery()))["uuid"] == CLUSTER
