"""Roles of nodes, and what comes with them."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.model.objects import Node
from ganeti.model.opcodes.node import OpNodeAdd, OpNodeRemove, OpNodeSetParams
from ganeti.model.recovery import NodeState
from ganeti.recovery.status import RecoveryStatus
from ganeti.rpc.procedures.files import NodeFile
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.state import Guest
from tests.support.fake_rpc import Fault
from tests.support.recovery_status import FakeRecovery, node_status
from tests.support.units_cluster import (
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


def modify(number: int = 2, **fields: Any) -> OpNodeSetParams:
    return OpNodeSetParams(node_name=f"node{number}.example.com", **fields)


async def has(master: Master, number: int, **fields: Any) -> None:
    """Let a node be so, without a job."""

    def change(draft: Draft) -> None:
        draft.put(replace(draft.nodes[NODES[number - 1]], **fields))

    await master.change(change)


async def pool(master: Master, size: int) -> None:
    await master.change(lambda draft: draft.put(replace(draft.cluster, candidate_pool_size=size)))


def role(node: Node) -> str:
    flags = {"O": node.offline, "D": node.drained, "C": node.master_candidate}
    return "".join(letter for letter, is_set in flags.items() if is_set) or "R"


@pytest.mark.parametrize(
    ("before", "wish", "after"),
    [
        ({}, {"master_candidate": True}, "C"),
        ({}, {"offline": True}, "O"),
        ({}, {"drained": True}, "D"),
        ({"master_candidate": True}, {"offline": True}, "O"),
        ({"master_candidate": True}, {"drained": True}, "D"),
        ({"master_candidate": True}, {"master_candidate": False}, "R"),
        ({"master_candidate": True}, {"master_capable": False}, "R"),
        ({"offline": True}, {"offline": False}, "R"),
        ({"offline": True}, {"drained": True}, "D"),
        ({"offline": True}, {"offline": False, "master_candidate": True}, "C"),
        ({"drained": True}, {"drained": False}, "R"),
        ({"drained": True}, {"offline": True}, "O"),
        ({"drained": True}, {"drained": False, "master_candidate": True}, "C"),
    ],
)
async def test_a_node_has_one_role(
    master: Master, before: dict[str, Any], wish: dict[str, Any], after: str
) -> None:
    await has(master, 2, **before)
    succeeded(await master.run(modify(force=True, **wish)))
    assert role(master.node(2)) == after
    expected = [("enforce", "node2.example.com")] if "offline" in before else []
    if after == "C":
        expected.append(("promote", "node2.example.com"))
    elif before.get("master_candidate") or wish.get("offline") or "offline" in before:
        expected.append(("demote", "node2.example.com"))
    assert master.candidates.acts == expected
    master.check()


@pytest.mark.parametrize(
    ("number", "before", "wish", "code", "text"),
    [
        (2, {}, {}, "wrong_input", "nothing to change: pass at least one option"),
        (2, {}, {"offline": True, "drained": True}, "wrong_input", "exclude each other"),
        (2, {}, {"powered": True}, "wrong_state", "neither a fence agent nor"),
        (2, {}, {"secondary_ip": "host"}, "wrong_input", "secondary_ip"),
        (2, {}, {"ndparams": {"nosuch": 1}}, "wrong_input", "ndparams.nosuch"),
        (2, {}, {"ndparams": {"cpu_speed": "nan"}}, "wrong_input", "'nan' is not a number"),
        (2, {}, {"ndparams": {"cpu_speed": "1e9"}}, "wrong_input", "'1e9' is not a number"),
        (2, {}, {"ndparams": {"cpu_speed": True}}, "wrong_input", "True is not a number"),
        (2, {}, {"ndparams": {"cpu_speed": 0}}, "wrong_input", "must be greater than 0"),
        (2, {}, {"secondary_ip": "192.0.2.3"}, "resource_not_unique", "192.0.2.3"),
        (9, {}, {"offline": True}, "unknown_entity", "node9"),
        (1, {}, {"offline": True}, "wrong_state", "is the master"),
        (1, {}, {"drained": True}, "wrong_state", "is the master"),
        (1, {}, {"master_candidate": False}, "wrong_state", "is the master"),
        (1, {}, {"master_capable": False}, "wrong_state", "is the master"),
        (2, {"offline": True}, {"master_candidate": True}, "wrong_state", "is offline"),
        (2, {"drained": True}, {"master_candidate": True}, "wrong_state", "is drained"),
        (2, {"master_capable": False}, {"master_candidate": True}, "wrong_state", "not master_cap"),
        (
            2,
            {},
            {"master_candidate": True, "master_capable": False},
            "wrong_input",
            "cannot be a candidate",
        ),
    ],
)
async def test_a_wrong_role_or_value_is_refused(
    master: Master, number: int, before: dict[str, Any], wish: dict[str, Any], code: str, text: str
) -> None:
    await has(master, 2, **before)
    nodes = master.snapshot.nodes
    name, (message, got) = failed(await master.run(modify(number, **wish)))
    assert (name, got) == ("OpPrereqError", code), message
    assert text in message
    assert master.snapshot.nodes == nodes
    assert master.rpc.acts() == []


@pytest.mark.requirement("F29")
async def test_job_that_marks_a_node_offline_names_the_instances_that_may_run_there(
    master: Master,
) -> None:
    succeeded(await master.run(create(NAME, pnode="node2.example.com")))
    job = await master.run(modify(offline=True, force=True))
    succeeded(job)
    warning = f"node2.example.com is marked offline with 1 instances that are to run there ({NAME})"
    assert warning in said(job)


async def test_a_candidate_that_is_needed_goes_only_by_force_or_with_a_successor(
    master: Master,
) -> None:
    await pool(master, 2)
    await has(master, 2, master_candidate=True)
    _, (text, code) = failed(await master.run(modify(offline=True)))
    assert (code, "replace it by node3.example.com (--auto-promote)" in text) == (
        "wrong_state",
        True,
    )
    result = succeeded(await master.run(modify(offline=True, auto_promote=True)))
    assert ["auto_promoted", "node3.example.com"] in result
    assert [role(master.node(number)) for number in (1, 2, 3)] == ["C", "O", "C"]
    assert master.candidates.acts == [
        ("promote", "node3.example.com"),
        ("demote", "node2.example.com"),
    ]
    succeeded(await master.run(modify(3, drained=True, force=True)))
    assert [role(master.node(number)) for number in (1, 2, 3)] == ["C", "O", "D"]


async def test_a_pool_that_is_not_full_takes_a_node_that_comes_back(master: Master) -> None:
    await pool(master, 2)
    await has(master, 2, drained=True)
    succeeded(await master.run(modify(drained=False)))
    assert role(master.node(2)) == "C"
    await has(master, 3, offline=True)
    succeeded(await master.run(modify(3, offline=False)))
    assert role(master.node(3)) == "R"


async def test_a_new_node_fills_the_pool(master: Master) -> None:
    await pool(master, 2)
    op = OpNodeAdd(
        node_name="node4.example.com", primary_ip="192.0.2.4", certificate=certificate(4)
    )
    _, uuid = succeeded(await master.run(op))
    assert master.snapshot.nodes[uuid].master_candidate
    assert master.candidates.acts == [("promote", "node4.example.com")]


async def test_a_node_that_cannot_be_made_a_candidate_stays_as_it_is(master: Master) -> None:
    master.candidates.broken.add("node2.example.com")
    name, (text,) = failed(await master.run(modify(master_candidate=True)))
    assert (name, "cannot hold the state" in text) == ("OpExecError", True)
    assert role(master.node(2)) == "R"
    # It keeps no secret that only candidates may hold.
    assert master.candidates.acts == [("enforce", "node2.example.com")]


async def test_a_candidate_that_does_not_listen_is_none_all_the_same(master: Master) -> None:
    await has(master, 2, master_candidate=True)
    master.candidates.broken.add("node2.example.com")
    view = await master.run(modify(master_candidate=False))
    succeeded(view)
    assert "the state of a candidate: node2.example.com does not listen" in said(view)
    assert role(master.node(2)) == "R"


async def test_nodes_that_are_marked_offline_at_once_leave_the_state_one_after_the_other(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = []

    async def demote(node: Node) -> None:
        marked.append([one for one in NODES if master.snapshot.nodes[one].offline])
        await asyncio.sleep(5)

    monkeypatch.setattr(master.candidates, "demote", demote)
    jobs = [await master.submit(modify(number, offline=True)) for number in (2, 3)]
    for job_id in jobs:
        succeeded(await master.final(job_id))
    assert [len(one) for one in marked] == [1, 2]


@pytest.mark.requirement("F9")
async def test_a_node_comes_back_only_with_the_latest_facts(master: Master) -> None:
    await has(master, 2, offline=True)
    succeeded(await master.run(modify(offline=False)))
    assert master.world.node(2).ssconf["node_list"].split()[1] == "node2.example.com"
    assert role(master.node(2)) == "R"


async def test_returning_node_loses_what_it_had_as_a_candidate_before_it_is_one_again(
    master: Master,
) -> None:
    await has(master, 2, offline=True)
    succeeded(await master.run(modify(offline=False, master_candidate=True)))
    name = "node2.example.com"
    assert master.candidates.acts == [("enforce", name), ("promote", name)]


@pytest.mark.requirement("F9")
@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.REFUSED, Fault.LOST_CALL])
async def test_a_node_that_does_not_take_the_facts_stays_offline(
    master: Master, fault: Fault
) -> None:
    await has(master, 2, offline=True)
    master.rpc.fail(1, fault)
    name, (text,) = failed(await master.run(modify(offline=False)))
    assert (name, "does not accept the cluster's facts" in text) == ("OpExecError", True)
    assert role(master.node(2)) == "O"


@pytest.mark.requirement("F29")
@pytest.mark.parametrize("again", [False, True])
async def test_a_node_that_has_come_back_knows_it_when_the_job_ends(
    master: Master, again: bool
) -> None:
    await has(master, 2, offline=True)
    master.world.node(2).ssconf = {"offline_nodes": "node2.example.com"}
    op = OpNodeAdd(
        node_name="node2.example.com",
        primary_ip="192.0.2.2",
        certificate=certificate(2),
        readd=True,
    )
    succeeded(await master.run(op if again else modify(offline=False)))
    assert master.world.node(2).ssconf["offline_nodes"] == ""


@pytest.mark.requirement("F29")
async def test_a_node_that_cannot_be_notified_of_its_return_is_back_all_the_same(
    master: Master,
) -> None:
    await has(master, 2, offline=True)
    master.rpc.fail(2, Fault.LOST_CALL)
    view = await master.run(modify(offline=False))
    succeeded(view)
    assert "node2.example.com has not been notified yet that it is online" in said(view)
    assert role(master.node(2)) == "R"


@pytest.mark.requirement("F9")
async def test_a_node_that_runs_what_it_must_not_stays_offline(master: Master) -> None:
    succeeded(await master.run(create()))
    spec = next(iter(master.world.node(1).guests.values())).spec
    await has(master, 2, offline=True)
    master.world.node(1).guests.clear()
    master.world.node(2).guests[spec.uuid] = Guest(spec)
    _, (text, code) = failed(await master.run(modify(offline=False)))
    assert (code, f"it runs {NAME}, which must not run there" in text) == ("wrong_state", True)
    assert role(master.node(2)) == "O"
    master.world.node(2).guests.clear()
    succeeded(await master.run(modify(offline=False)))


@pytest.mark.requirement("F9")
async def test_what_cannot_be_trusted_stays_offline(master: Master) -> None:
    await has(master, 2, offline=True)
    model = master.world.node(2)
    model.older_calls = ["migration_run"]
    _, (text, code) = failed(await master.run(modify(offline=False)))
    assert (code, "migration_run for an earlier master" in text) == (
        "temp_insufficient_resources",
        True,
    )
    model.cluster_uuid = "another"
    _, (text, code) = failed(await master.run(modify(offline=False)))
    assert (code, "gnt-node add --readd" in text) == ("wrong_state", True)
    del master.rpc.nodes["node2.example.com"]
    _, (text, code) = failed(await master.run(modify(drained=True)))
    assert (code, "does not answer" in text) == ("environment_error", True)
    assert role(master.node(2)) == "O"


RAPI = NodeFile(path="/var/lib/ganeti/rapi.pem", content=b"k", mode=0o600, candidates_only=True)
LIST = NodeFile(path="/etc/ganeti/distributed-files", content=b"/etc/x\n", mode=0o644)


@pytest.mark.requirement("S69")
async def test_a_new_candidate_has_the_shared_files_at_once(master: Master) -> None:
    master.world.node(1).shared_files = [LIST, RAPI]
    succeeded(await master.run(modify(master_candidate=True)))
    assert master.world.node(2).files == {LIST.path: LIST, RAPI.path: RAPI}


@pytest.mark.requirement("S69")
async def test_a_new_node_has_the_shared_files_at_once(master: Master) -> None:
    master.world.node(1).shared_files = [LIST, RAPI]
    op = OpNodeAdd(
        node_name="node4.example.com", primary_ip="192.0.2.4", certificate=certificate(4)
    )
    succeeded(await master.run(op))
    assert master.world.node(4).files == {LIST.path: LIST}


async def test_parameters_of_a_node_are_set_and_taken_back(master: Master) -> None:
    result = succeeded(
        await master.run(
            modify(ndparams={"spindle_count": "4", "ovs": True}, secondary_ip="198.51.100.2")
        )
    )
    assert result == [["secondary_ip", "198.51.100.2"], ["nd/ovs", True], ["nd/spindle_count", 4]]
    succeeded(await master.run(modify(ndparams={"ovs": None})))
    assert master.node(2).ndparams == {"spindle_count": 4}


@pytest.mark.parametrize("given", ["1.5", 1.5, "2", 2])
async def test_speed_of_processors_is_a_number_in_each_notation(
    master: Master, given: str | float
) -> None:
    succeeded(await master.run(modify(ndparams={"cpu_speed": given})))
    stored = master.node(2).ndparams["cpu_speed"]
    assert (type(stored), stored) == (float, float(given))


async def test_a_node_with_instances_stays_vm_capable(master: Master) -> None:
    succeeded(await master.run(create(pnode="node2")))
    _, (text, code) = failed(await master.run(modify(vm_capable=False)))
    assert (code, NAME in text) == ("wrong_state", True)
    succeeded(await master.run(modify(3, vm_capable=False)))
    assert not master.node(3).vm_capable


async def test_another_node_takes_the_place_of_a_candidate_that_is_removed(
    master: Master,
) -> None:
    await pool(master, 2)
    await has(master, 2, master_candidate=True)
    succeeded(await master.run(OpNodeRemove(node_name="node2")))
    assert [one.name for one in master.snapshot.master_candidates()] == [
        "node1.example.com",
        "node3.example.com",
    ]
    assert master.candidates.acts == [
        ("promote", "node3.example.com"),
        ("demote", "node2.example.com"),
    ]
    assert master.world.node(2).left


@pytest.mark.sampled(4)
@pytest.mark.requirement("G2")
@pytest.mark.parametrize("wish", [{"master_candidate": True}, {"offline": True}])
@pytest.mark.parametrize("number", range(6))
async def test_a_change_of_role_is_whole_or_nothing(
    world: World, wish: dict[str, Any], number: int
) -> None:
    for fault in (Refuse(), Crash(written=False), Crash(written=True)):
        world = World()
        master = await Master.begin(world)
        await has(master, 2, master_candidate="offline" in wish)
        before = role(master.node(2))
        await master.submit(modify(force=True, **wish))
        master.store.inject(fault, after=number)
        await master.is_dead_after_a_while()
        after = await master.restart()
        await after.idle()
        wanted = "C" if "master_candidate" in wish else "O"
        assert role(after.node(2)) in (before, wanted)
        succeeded(await after.run(modify(force=True, **wish)))
        assert role(after.node(2)) == wanted
        after.check()
        await after.end()


async def test_offline_mark_of_an_administrator_outranks_that_of_recovery(master: Master) -> None:
    recovery = modify(offline=True, awaits_return=True, force=True)
    assert ["awaits_return", True] in succeeded(await master.run(recovery))
    assert master.node(2).awaits_return
    succeeded(await master.run(modify(offline=True)))
    assert not master.node(2).awaits_return
    succeeded(await master.run(recovery))  # it was decided before
    assert (master.node(2).offline, master.node(2).awaits_return) == (True, False)


async def test_mark_of_recovery_ends_with_the_return(master: Master) -> None:
    succeeded(await master.run(modify(offline=True, awaits_return=True, force=True)))
    succeeded(await master.run(modify(offline=False)))
    assert (master.node(2).offline, master.node(2).awaits_return) == (False, False)


@pytest.mark.requirement("G5")
@pytest.mark.parametrize("state", NodeState)
async def test_recovery_marks_no_node_that_answers_again(master: Master, state: NodeState) -> None:
    """Its job has waited for the lock of the node, which has returned: a guest may have been started there."""
    answers = state in (NodeState.HEALTHY, NodeState.RETURNING)
    recovery = FakeRecovery()
    recovery.state = RecoveryStatus((node_status(2, state=state),))
    object.__setattr__(master.services, "recovery", recovery)
    view = await master.run(modify(offline=True, awaits_return=True, force=True))
    assert ("answers again" in str(view.ops[0].result)) is answers
    assert master.node(2).offline is not answers
    succeeded(await master.run(modify(offline=True)))  # an administrator may know better


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_file_that_does_not_arrive_is_reported_and_the_node_promoted(
    master: Master, fault: Fault
) -> None:
    master.world.node(1).shared_files = [LIST]
    master.rpc.fail(1, fault)
    view = await master.run(modify(master_candidate=True))
    succeeded(view)
    assert f"{LIST.path} is not brought up to date on node2.example.com" in said(view)
    assert role(master.node(2)) == "C"
