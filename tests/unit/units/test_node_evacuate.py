"""Emptying a node: one job for each instance, by the way that its disks allow."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.model.names import JobStatus
from ganeti.model.opcodes.base import Reason
from ganeti.model.opcodes.moving import OpNodeEvacuate, OpNodeMigrate
from ganeti.rpc.procedures.programs import AllocatorOutput
from tests.support.units_cluster import NODES, Master, failed, succeeded
from tests.unit.units.opcodes import create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S99", "S100")]


async def with_instances(master: Master, **templates: str) -> None:
    for name, template in templates.items():
        wanted = create(f"{name}.example.com", disk_template=template, pnode="node3.example.com",
                        beparams={"memory": 100})  # fmt: skip
        succeeded(await master.run(wanted))
    master.rpc.reset()


async def jobs_of(master: Master, op: Any) -> list[JobStatus]:
    """Run an opcode that submits jobs; how these ended."""
    result = succeeded(await master.run(op))
    ids = [job_id for accepted, job_id in result["jobs"] if accepted]
    return [(await master.final(job_id)).status for job_id in ids]


def where(master: Master, name: str) -> str:
    instance = master.instance(f"{name}.example.com")
    return master.snapshot.nodes[instance.primary_node].name


async def test_all_instances_of_a_node_migrate_each_by_its_own_job(master: Master) -> None:
    await with_instances(master, web1="sharedfile", web2="file")
    op = OpNodeMigrate(node_name="node3", target_node="node2")
    assert await jobs_of(master, op) == [JobStatus.SUCCESS] * 2
    assert where(master, "web1") == where(master, "web2") == "node2.example.com"
    master.check()


async def test_an_allocator_spreads_what_leaves_a_node(master: Master) -> None:
    await with_instances(master, web1="sharedfile", web2="sharedfile")
    op = OpNodeEvacuate(node_name="node3", mode="all", iallocator="hail")
    assert await jobs_of(master, op) == [JobStatus.SUCCESS] * 2
    assert {where(master, "web1"), where(master, "web2")} == {
        "node1.example.com", "node2.example.com",
    }  # fmt: skip


async def test_instances_of_a_dead_node_fail_over(master: Master) -> None:
    await with_instances(master, web1="sharedfile")
    master.world.node(3).guests.clear()
    await mark_offline(master)
    op = OpNodeEvacuate(node_name="node3", mode="primary-only", remote_node="node2")
    assert await jobs_of(master, op) == [JobStatus.SUCCESS]
    assert where(master, "web1") == "node2.example.com"
    master.check()


async def mark_offline(master: Master) -> None:
    def change(draft: Draft) -> None:
        draft.put(replace(draft.nodes[NODES[2]], offline=True))

    await master.change(change)


async def test_data_on_a_dead_node_is_named(master: Master) -> None:
    await with_instances(master, web1="file")
    await mark_offline(master)
    op = OpNodeEvacuate(node_name="node3", mode="primary-only", remote_node="node2")
    _, (text, code) = failed(await master.run(op))
    assert code == "wrong_state"
    assert "web1.example.com has its only data on node3.example.com" in text


async def test_what_is_down_with_disks_of_its_own_is_copied(master: Master) -> None:
    wanted = create(disk_template="file", pnode="node3.example.com", start=False)
    succeeded(await master.run(wanted))
    op = OpNodeEvacuate(node_name="node3", mode="all", remote_node="node1")
    assert await jobs_of(master, op) == [JobStatus.SUCCESS]
    assert where(master, "web1") == "node1.example.com"
    master.check()


async def test_a_node_without_instances_and_copies_of_none_submit_no_jobs(master: Master) -> None:
    assert await jobs_of(master, OpNodeMigrate(node_name="node3", target_node="node2")) == []
    await with_instances(master, web1="sharedfile")
    op = OpNodeEvacuate(node_name="node3", mode="secondary-only", iallocator="hail")
    assert await jobs_of(master, op) == []


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (OpNodeEvacuate(node_name="node3", mode="some", iallocator="hail"), "mode"),
        (OpNodeEvacuate(node_name="node3", mode="all"), "no default allocator"),
        (OpNodeEvacuate(node_name="node3", mode="all", remote_node="node3"), "choose another target"),
        (OpNodeEvacuate(node_name="node3", mode="all", remote_node="node1", iallocator="hail"),
         "either a target node or an allocator"),
        (OpNodeMigrate(node_name="node9"), "node9"),
        (OpNodeMigrate(node_name="node3", mode="live", live=True), "not both"),
        (OpNodeMigrate(node_name="node3", mode="x"), "must be live or non-live"),
        (OpNodeMigrate(node_name="node3", target_node="node3"), "choose another target"),
    ],
)  # fmt: skip
async def test_a_wrong_request_is_refused(master: Master, op: Any, text: str) -> None:
    name, arguments = failed(await master.run(op))
    assert name == "OpPrereqError"
    assert text in arguments[0]


def scripted(master: Master, answer: Any) -> list[dict[str, Any]]:
    """An allocator `mine` that gives `answer`; what it is asked."""
    asked: list[dict[str, Any]] = []

    def program(message: dict[str, Any]) -> AllocatorOutput:
        asked.append(message)
        return AllocatorOutput(found=True, stdout=json.dumps(answer))

    master.world.node(1).allocators["mine"] = program
    return asked


@pytest.mark.requirement("S173", "S178")
async def test_one_request_is_about_all_and_its_jobs_have_reason_and_priority(
    master: Master,
) -> None:
    await with_instances(master, web1="sharedfile", web2="sharedfile")
    move = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "web2.example.com",
            "target_node": "node1.example.com", "allow_failover": True}  # fmt: skip
    moved = [["web2.example.com", "default", ["node1.example.com"]]]
    asked = scripted(master, {"success": True, "info": "", "result": [moved, [], [[move]]]})
    reason: Reason = ("gnt:user", "repair", 1)
    op = OpNodeEvacuate(node_name="node3", mode="primary-only", iallocator="mine",
                        reason=[reason], priority=-5)  # fmt: skip
    result = succeeded(await master.run(op))
    assert [message["request"] for message in asked] == [
        {"type": "node-evacuate", "instances": ["web1.example.com", "web2.example.com"],
         "evac_mode": "primary-only"}
    ]  # fmt: skip
    [[_accepted, job_id]] = result["jobs"]
    view = await master.final(job_id)
    assert view.priority == -5
    assert reason in view.ops[0].op.reason
    assert (where(master, "web1"), where(master, "web2")) == (
        "node3.example.com", "node1.example.com",
    )  # fmt: skip


@pytest.mark.requirement("S173")
@pytest.mark.parametrize(
    ("mode", "names"),
    [("primary-only", ["web1"]), ("secondary-only", ["web2"]), ("all", ["web1", "web2"])],
)
async def test_the_mode_selects_the_instances_of_the_request(
    master: Master, mode: str, names: list[str]
) -> None:
    await with_instances(master, web1="sharedfile")
    succeeded(await master.run(create("web2.example.com", pnode="node1")))

    def mirrored(draft: Draft) -> None:
        one = master.instance("web2.example.com")
        draft.put(replace(draft.instances[one.uuid], secondary_nodes=(NODES[2],)))

    await master.change(mirrored)
    asked = scripted(master, {"success": True, "info": "", "result": [[], [], []]})
    op = OpNodeEvacuate(node_name="node3", mode=mode, iallocator="mine")
    assert succeeded(await master.run(op))["jobs"] == []
    assert asked[0]["request"]["instances"] == [f"{name}.example.com" for name in names]


@pytest.mark.requirement("S178", "A22")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([[], [["web1.example.com", "no room"]], []], "web1.example.com: no room"),
        ([[["web9", "default", []]], [], []], "'web9' is not an instance of the request"),
        ([[], [], [[{"OP_ID": "OP_NODE_REMOVE", "node_name": "node2"}]]], "may return"),
        ({"jobs": []}, "wrong result"),
    ],
)
async def test_what_an_allocator_cannot_or_must_not_do_moves_nothing(
    master: Master, result: Any, text: str
) -> None:
    await with_instances(master, web1="sharedfile")
    scripted(master, {"success": True, "info": "", "result": result})
    op = OpNodeEvacuate(node_name="node3", mode="all", iallocator="mine")
    name, (message, _code) = failed(await master.run(op))
    assert name == "OpPrereqError"
    assert text in message
    assert where(master, "web1") == "node3.example.com"
    assert master.rpc.acts() == []


async def test_disks_that_only_the_node_has_are_named_before_anything_moves(
    master: Master,
) -> None:
    await with_instances(master, web1="sharedfile", web2="file")
    op = OpNodeEvacuate(node_name="node3", mode="all", iallocator="hail")
    _, (text, code) = failed(await master.run(op))
    assert code == "wrong_state"
    assert "has the disks of web2.example.com" in text
    assert "--new-secondary" in text


async def test_a_dry_run_reports_which_jobs_there_would_be(master: Master) -> None:
    await with_instances(master, web1="sharedfile")
    op = OpNodeEvacuate(node_name="node3", mode="all", iallocator="hail", dry_run=True)
    assert succeeded(await master.run(op)) == [["INSTANCE_MIGRATE(web1.example.com)"]]
    assert where(master, "web1") == "node3.example.com"


@pytest.mark.parametrize("is_wanted", [True, None])
async def test_soft_errors_are_passed_over_on_request(
    master: Master, is_wanted: bool | None
) -> None:
    await with_instances(master, web1="sharedfile")
    op = OpNodeEvacuate(node_name="node3", mode="all", iallocator="hail",
                        ignore_soft_errors=is_wanted)  # fmt: skip
    succeeded(await master.run(op))
    [call] = [call for call in master.rpc.calls if call.procedure == "allocator_run"]
    assert call.args.options == (["--ignore-soft-errors"] if is_wanted else [])
