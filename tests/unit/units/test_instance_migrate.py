"""Live migration: one running copy at every moment, and a configuration that says where it is."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import (
    OpInstanceQueryData,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.node import OpNodeRemove
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.state import Guest
from ganeti.units.relocation.location import record_location
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G5", "F20")]

ACTS = [
    "migration_accept",
    "migration_run",
    "migration_finish_target",
    "migration_finish_source",
]
COMMITS = 10


async def with_guest(master: Master) -> str:
    """A running instance; returns its UUID."""
    succeeded(await master.run(create()))
    master.rpc.reset()
    return master.instance(NAME).uuid


def runs_at(master: Master) -> ModelNode:
    """The node that runs the guest, which the configuration must name."""
    instance = master.instance(NAME)
    (place,) = master.world.where(instance.uuid).items()
    assert place == (master.snapshot.nodes[instance.primary_node].name, "running")
    assert instance.migrating_to is None
    assert instance.admin_state is AdminState.UP
    master.check()
    return master.world.nodes[place[0]]


async def test_a_guest_moves_and_the_configuration_follows(master: Master) -> None:
    await with_guest(master)
    view = await master.run(migrate())
    assert succeeded(view) == ["node2.example.com"]
    assert master.rpc.acts() == ACTS
    assert runs_at(master) is master.world.node(2)
    assert "Migrating instance web1.example.com from node1" in said(view)


async def test_a_paused_guest_arrives_paused(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME, startup_paused=True)))
    succeeded(await master.run(migrate()))
    assert master.world.where(master.instance(NAME).uuid) == {"node2.example.com": "paused"}


@pytest.mark.sampled(4)
@pytest.mark.requirement("F23")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 4))
async def test_after_a_failed_call_both_nodes_are_asked(
    master: Master, number: int, fault: Fault
) -> None:
    await with_guest(master)
    master.rpc.fail(number, fault)
    name, _ = failed(await master.run(migrate()))
    assert name == "OpExecError"
    asked = {call.node_name for call in master.rpc.calls if call.procedure == "instance_info"}
    assert asked == {"node1.example.com", "node2.example.com"}
    has_gone_on = number == 3 and fault is Fault.LOST_ANSWER
    assert runs_at(master) is master.world.node(2 if has_gone_on else 1)
    succeeded(await master.run(migrate(target_node="node3.example.com")))
    assert runs_at(master) is master.world.node(3)


@pytest.mark.requirement("G11", "F23")
@pytest.mark.parametrize("fault", list(Fault))
async def test_a_source_that_cannot_be_ended_now_is_ended_later(
    master: Master, fault: Fault
) -> None:
    uuid = await with_guest(master)
    master.rpc.fail(4, fault)
    view = await master.run(migrate())
    assert succeeded(view) == ["node2.example.com"]
    assert "could not clean up (end_source)" in said(view)
    assert master.world.where(uuid)["node2.example.com"] == "running"
    await master.nothing_is_left()
    assert runs_at(master) is master.world.node(2)
    succeeded(await master.run(migrate(target_node="node3.example.com")))
    assert runs_at(master) is master.world.node(3)


@pytest.mark.requirement("G11", "F23", "F20")
async def test_a_source_that_falls_silent_at_the_end_is_ended_when_it_answers_again(
    world: World,
) -> None:
    master = await Master.begin(world)
    uuid = await with_guest(master)
    go_silent(master, 1, after_act=3)
    succeeded(await master.run(migrate()))
    assert world.where(uuid) == {
        "node1.example.com": "postmigrate",
        "node2.example.com": "running",
    }
    await asyncio.sleep(600)
    (left,) = master.queue.pending_undo()
    assert left.procedure == "end_source"
    assert "node1.example.com" in left.why
    after = await master.restart()  # nobody forgets it
    try:
        await after.nothing_is_left()
        assert runs_at(after) is world.node(2)
    finally:
        await after.end()


async def test_a_migration_that_does_not_converge_leaves_the_guest_where_it_was(
    master: Master,
) -> None:
    await with_guest(master)
    master.world.node(1).migration_fails = "too slow"
    name, (text,) = failed(await master.run(migrate()))
    assert name == "OpExecError"
    assert f"the migration of {NAME} ended as failed: too slow" in text
    assert runs_at(master) is master.world.node(1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_one_copy_that_is_known(master: Master, number: int) -> None:
    await with_guest(master)
    job_id = await master.submit(migrate())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    if view.status is JobStatus.SUCCESS:
        assert runs_at(master) is master.world.node(2)
    elif master.instance(NAME).migrating_to is None:
        runs_at(master)
    else:  # the state could not take its outcome; the next clean-up does it
        succeeded(await master.run(migrate(target_node=None, cleanup=True)))
        runs_at(master)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_any_commit_leaves_one_copy_that_is_known(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await with_guest(master)
    await master.submit(migrate())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_the_next_master_knows(master)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, 5))
async def test_a_master_that_dies_around_any_call_leaves_one_copy_that_is_known(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await with_guest(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(migrate())
    assert await master.is_dead_after_a_while()
    await check_the_next_master_knows(master)


async def check_the_next_master_knows(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        runs_at(after)
    finally:
        await after.end()


def go_silent(master: Master, number: int, *, after_act: int) -> None:
    """Let a node answer nothing any more once that many acts are done."""

    def vanish(act: int) -> None:
        if act == after_act:
            master.rpc.nodes.pop(f"node{number}.example.com", None)

    master.rpc.after_act = vanish


def come_back(master: Master, number: int) -> None:
    master.rpc.after_act = None
    node = master.world.node(number)
    master.rpc.nodes[node.name] = node.handlers()


@pytest.mark.parametrize(("number", "act"), [(1, 1), (2, 1), (2, 2)])
async def test_while_a_node_is_silent_no_node_may_start_a_second_copy(
    master: Master, number: int, act: int
) -> None:
    await with_guest(master)
    go_silent(master, number, after_act=act)
    _, (text,) = failed(await master.run(migrate()))
    assert f"gnt-instance migrate --cleanup {NAME}" in text
    for op in operations_on_the_guest():
        name, (reason, code) = failed(await master.run(op))
        assert (name, code) == ("OpPrereqError", "wrong_state")
        assert "the node of the guest is unknown" in reason
    come_back(master, number)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    runs_at(master)


def operations_on_the_guest() -> list[OpCode]:
    return [
        OpInstanceStartup(instance_name=NAME),
        OpInstanceShutdown(instance_name=NAME),
        OpInstanceReboot(instance_name=NAME),
        OpInstanceRemove(instance_name=NAME),
        migrate(target_node="node3.example.com"),
    ]


async def test_a_node_that_may_have_the_guest_cannot_be_removed(master: Master) -> None:
    await with_guest(master)
    go_silent(master, 2, after_act=1)
    failed(await master.run(migrate()))
    name, (text, code) = failed(await master.run(OpNodeRemove(node_name="node2")))
    assert (name, code) == ("OpPrereqError", "wrong_state")
    assert NAME in text


@pytest.mark.requirement("F21")
@pytest.mark.parametrize(
    ("dead", "act", "left_on"), [(2, 1, 1), (2, 2, 1), (1, 1, 0), (1, 2, 2), (1, 3, 2)]
)
async def test_a_node_that_is_marked_offline_counts_as_dead(
    master: Master, dead: int, act: int, left_on: int
) -> None:
    uuid = await with_guest(master)
    go_silent(master, dead, after_act=act)
    view = await master.run(migrate())
    assert (view.status is JobStatus.SUCCESS) == (dead == 1 and act > 1)
    master.world.node(dead).guests.clear()
    await mark_offline(master, dead)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    instance = master.instance(NAME)
    assert instance.migrating_to is None
    if not left_on:  # the guest ended with its source before all of it had arrived
        assert master.world.where(uuid) == {}
        return
    assert instance.primary_node == NODES[left_on - 1]
    assert master.world.where(uuid) == {f"node{left_on}.example.com": "running"}


async def mark_offline(master: Master, number: int) -> None:
    """As an administrator does who has made sure that the node is dead; another one is the master then."""

    def change(draft: Draft) -> None:
        if number == 1:
            draft.put(replace(draft.nodes[NODES[2]], master_candidate=True))
            draft.put(replace(draft.cluster, master_node=NODES[2]))
        node = draft.nodes[NODES[number - 1]]
        draft.put(replace(node, offline=True, master_candidate=False))

    await master.change(change)


async def test_two_running_copies_are_reported_and_not_touched(master: Master) -> None:
    uuid = await with_guest(master)
    guest = master.world.node(1).guests[uuid]
    master.rpc._world = World()  # this test breaks the rule that is watched
    master.world.node(2).guests[uuid] = guest
    _, (text,) = failed(await master.run(migrate(target_node=None, cleanup=True)))
    assert "runs on node1.example.com and on node2.example.com" in text
    assert master.rpc.acts() == []


@pytest.mark.requirement("F23")
async def test_a_clean_up_removes_what_an_old_migration_left(master: Master) -> None:
    uuid = await with_guest(master)
    spec = master.world.node(1).guests[uuid].spec
    for state in ("incoming", "postmigrate"):
        master.world.node(3).guests[uuid] = Guest(spec, state)
        succeeded(await master.run(migrate(target_node=None, cleanup=True)))
        assert runs_at(master) is master.world.node(1)


async def test_a_clean_up_with_nothing_to_do_reports_it(master: Master) -> None:
    await with_guest(master)
    view = await master.run(migrate(target_node=None, cleanup=True))
    succeeded(view)
    assert f"nothing of {NAME} was found" in said(view)


async def test_remains_on_the_target_are_found_before_anything_is_done(master: Master) -> None:
    uuid = await with_guest(master)
    spec = master.world.node(1).guests[uuid].spec
    master.world.node(2).guests[uuid] = Guest(spec, "incoming")
    name, (text, code) = failed(await master.run(migrate()))
    assert (name, code) == ("OpPrereqError", "wrong_state")
    assert "is on node2.example.com already" in text
    assert master.rpc.acts() == []


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"target_node": "node1"}, "wrong_input", "is on node1.example.com already"),
        ({"target_node": "node9"}, "unknown_entity", "node9"),
        ({"target_node": None}, "wrong_input", "no default allocator"),
        ({"iallocator": "hail"}, "wrong_input", "either a target node or an allocator"),
        ({"target_node": None, "iallocator": "../x"}, "wrong_input", "iallocator"),
        ({"mode": "slow"}, "wrong_input", "mode"),
        ({"mode": "live", "live": True}, "wrong_input", "mode"),
    ],
)
async def test_a_wrong_request_is_refused(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    await with_guest(master)
    name, arguments = failed(await master.run(migrate(**fields)))
    assert name == "OpPrereqError"
    assert arguments[1] == code
    assert text in arguments[0]
    assert master.rpc.acts() == []


async def test_what_is_down_cannot_be_migrated(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    _, (text, code) = failed(await master.run(migrate()))
    assert code == "wrong_state"
    assert "is not running on node1.example.com" in text


async def test_data_of_one_node_stays_where_the_hypervisor_cannot_take_it_along(
    master: Master,
) -> None:
    succeeded(await master.run(create(disk_template="file")))
    master.world.node(1).mirrors_disks = False
    _, (text, code) = failed(await master.run(migrate()))
    assert code == "wrong_state"
    assert "keeps its data on one node" in text


async def test_a_target_without_memory_is_refused(master: Master) -> None:
    await with_guest(master)
    master.world.node(2).memory = 511
    _, (text, code) = failed(await master.run(migrate()))
    assert code == "insufficient_resources"
    assert "511 MiB of memory free but needs 512 MiB" in text


@pytest.mark.requirement("S172", "S234")
async def test_an_allocator_chooses_the_target(master: Master) -> None:
    await with_guest(master)
    master.world.node(2).memory = 600
    view = await master.run(migrate(target_node=None, iallocator="hail"))
    assert succeeded(view) == ["node3.example.com"]
    assert "via iallocator hail: node3.example.com" in said(view)


async def test_a_cleanup_whose_primary_node_is_silent_does_not_succeed(master: Master) -> None:
    await with_guest(master)
    del master.rpc.nodes["node1.example.com"]
    view = await master.run(migrate(target_node=None, cleanup=True))
    assert view.status == "error"
    assert "node1.example.com" in str(view.ops[0].result)


async def test_disks_of_one_node_need_a_target(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file", hypervisor="kvm")))
    view = await master.run(migrate(target_node=None, iallocator="hail"))
    _, (text, code) = failed(view)
    assert code == "wrong_input"
    assert "name the target (--target-node NODE) to migrate it with its disks" in text


async def test_info_shows_a_guest_in_memory_with_the_remedy(master: Master) -> None:
    uuid = await with_guest(master)
    master.world.node(1).guests[uuid].state = "postmigrate"
    await master.change(record_location(uuid, NODES[0], is_closed=True, migrating_to=NODES[1]))
    shown = succeeded(await master.run(OpInstanceQueryData(instances=[NAME])))[NAME]
    assert (shown["run_state"], shown["migrating_to"]) == ("waiting in memory", "node2.example.com")
