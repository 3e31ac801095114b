"""Failover: the old copy is proven down, or its node marked offline, before the new one starts."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.model.names import AdminState
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.simulation.faulty_store import Crash
from ganeti.simulation.nodes.state import Guest
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G5", "F21")]

COMMITS = 6


def failover(**fields: Any) -> OpInstanceFailover:
    given: dict[str, Any] = {"instance_name": NAME, "target_node": "node2.example.com"}
    return OpInstanceFailover(**{**given, **fields})


async def mark_offline(master: Master, number: int, *, offline: bool = True) -> None:
    def change(draft: Draft) -> None:
        draft.put(replace(draft.nodes[NODES[number - 1]], offline=offline))

    await master.change(change)


async def on_node_3(master: Master, **fields: Any) -> str:
    """A running instance on a node that is not the master; its UUID."""
    succeeded(await master.run(create(pnode="node3.example.com", **fields)))
    master.rpc.reset()
    return master.instance(NAME).uuid


@pytest.mark.parametrize("template", ["sharedfile", "diskless"])
async def test_a_guest_is_stopped_and_then_started_elsewhere(master: Master, template: str) -> None:
    disks: dict[str, Any] = {} if template == "sharedfile" else {"disks": []}
    uuid = await on_node_3(master, disk_template=template, **disks)
    view = await master.run(failover())
    assert succeeded(view) == ["node2.example.com"]
    assert master.rpc.acts() == ["instance_shutdown", "instance_start"]
    assert master.world.where(uuid) == {"node2.example.com": "running"}
    master.check()


async def test_what_is_down_only_changes_its_node(master: Master) -> None:
    await on_node_3(master, start=False)
    succeeded(await master.run(failover()))
    assert master.instance(NAME).primary_node == NODES[1]
    assert master.instance(NAME).admin_state is AdminState.DOWN
    master.check()


async def test_a_node_that_does_not_answer_is_not_taken_for_dead(master: Master) -> None:
    uuid = await on_node_3(master)
    master.rpc.nodes.pop("node3.example.com")
    name, (text, code) = failed(await master.run(failover(ignore_consistency=True)))
    assert (name, code) == ("OpPrereqError", "environment_error")
    assert "gnt-node modify --offline yes node3.example.com" in text
    assert master.rpc.acts() == []
    assert master.world.where(uuid) == {"node3.example.com": "running"}


async def test_a_node_that_is_marked_offline_counts_as_dead(master: Master) -> None:
    uuid = await on_node_3(master)
    master.rpc.nodes.pop("node3.example.com")
    master.world.node(3).guests.clear()
    await mark_offline(master, 3)
    view = await master.run(failover())
    assert succeeded(view) == ["node2.example.com"]
    assert "it is treated as dead" in said(view)
    assert master.rpc.acts() == ["instance_start"]
    assert master.world.where(uuid) == {"node2.example.com": "running"}


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2])
async def test_a_failed_call_leaves_one_copy_or_none(
    master: Master, number: int, fault: Fault
) -> None:
    uuid = await on_node_3(master)
    master.rpc.fail(number, fault)
    failed(await master.run(failover()))
    instance = master.instance(NAME)
    where = master.world.where(uuid)
    if number == 1:
        assert instance.primary_node == NODES[2]
        assert where == {"node3.example.com": "running"}  # started again where it was
    else:
        assert instance.primary_node == NODES[1]
        assert where == {}
        succeeded(await master.run(failover(target_node="node3.example.com")))
    master.check()


async def test_a_guest_that_is_still_there_after_its_shutdown_is_not_started_elsewhere(
    master: Master,
) -> None:
    uuid = await on_node_3(master)
    node = master.world.node(3)
    guest = node.guests[uuid]
    master.rpc.after_act = lambda _number: node.guests.__setitem__(uuid, guest)
    _, (text,) = failed(await master.run(failover()))
    assert "is still on node3.example.com after it was shut down" in text
    assert master.rpc.acts() == ["instance_shutdown"]
    assert master.instance(NAME).primary_node == NODES[2]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_any_commit_leaves_one_copy_or_none(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await on_node_3(master)
    await master.submit(failover())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_it_can_be_done_again(master)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_master_that_dies_around_any_call_leaves_one_copy_or_none(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await on_node_3(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(failover())
    assert await master.is_dead_after_a_while()
    await check_it_can_be_done_again(master)


async def check_it_can_be_done_again(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        instance = after.instance(NAME)
        where = after.world.where(instance.uuid)
        primary = after.snapshot.nodes[instance.primary_node].name
        assert where == {primary: "running"}
        target = "node1.example.com"
        succeeded(await after.run(failover(target_node=target)))
        assert after.world.where(instance.uuid) == {target: "running"}
        after.check()
    finally:
        await after.end()


async def test_data_of_one_node_cannot_fail_over(master: Master) -> None:
    await on_node_3(master, disk_template="file")
    _, (text, code) = failed(await master.run(failover()))
    assert code == "wrong_state"
    assert "gnt-instance move" in text


async def test_remains_of_a_migration_are_found_first(master: Master) -> None:
    uuid = await on_node_3(master)
    spec = master.world.node(3).guests[uuid].spec
    master.world.node(2).guests[uuid] = Guest(spec, "incoming")
    _, (text, code) = failed(await master.run(failover()))
    assert (code, master.rpc.acts()) == ("wrong_state", [])
    assert "--cleanup" in text
    succeeded(await master.run(failover(target_node=None, cleanup=True)))
    assert master.world.where(uuid) == {"node3.example.com": "running"}


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"target_node": "node3"}, "wrong_input", "is on node3.example.com already"),
        ({"target_node": None}, "wrong_input", "no default allocator"),
        ({"iallocator": "hail"}, "wrong_input", "either a target node or an allocator"),
        ({"target_node": None, "iallocator": "../x"}, "wrong_input", "iallocator"),
        ({"shutdown_timeout": -1}, "wrong_input", "shutdown_timeout"),
    ],
)
async def test_a_wrong_request_is_refused(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    await on_node_3(master)
    name, arguments = failed(await master.run(failover(**fields)))
    assert (name, arguments[1]) == ("OpPrereqError", code)
    assert text in arguments[0]
    assert master.rpc.acts() == []


async def test_an_allocator_chooses_the_target(master: Master) -> None:
    uuid = await on_node_3(master)
    master.world.node(2).memory = 100
    view = await master.run(failover(target_node=None, iallocator="hail"))
    assert succeeded(view) == ["node1.example.com"]
    assert master.world.where(uuid) == {"node1.example.com": "running"}


async def test_a_migration_of_what_is_down_may_fail_over(master: Master) -> None:
    await on_node_3(master, start=False)
    view = await master.run(migrate(allow_failover=True))
    assert succeeded(view) == ["node2.example.com"]
    assert "Failing over" in said(view)
    assert master.instance(NAME).primary_node == NODES[1]


async def test_a_migration_of_what_runs_does_not_fail_over(master: Master) -> None:
    await on_node_3(master)
    succeeded(await master.run(migrate(allow_failover=True)))
    assert "migration_run" in master.rpc.acts()


async def test_always_failover_is_obeyed_where_a_failover_is_allowed(master: Master) -> None:
    await on_node_3(master, beparams={"memory": 512, "always_failover": True})
    succeeded(await master.run(migrate(allow_failover=True)))
    assert master.rpc.acts() == ["instance_shutdown", "instance_start"]
