"""Emptying a node: one job for each instance, by the way that its disks allow."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.model.names import JobStatus
from ganeti.model.opcodes.moving import OpNodeEvacuate, OpNodeMigrate
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
        (OpNodeEvacuate(node_name="node3", mode="all", remote_node="node3"), "to be emptied"),
        (OpNodeEvacuate(node_name="node3", mode="all", remote_node="node1", iallocator="hail"),
         "either a target node or an allocator"),
        (OpNodeMigrate(node_name="node9"), "node9"),
        (OpNodeMigrate(node_name="node3", mode="live", live=True), "not both"),
        (OpNodeMigrate(node_name="node3", target_node="node3"), "to be emptied"),
    ],
)  # fmt: skip
async def test_a_wrong_request_is_refused(master: Master, op: Any, text: str) -> None:
    name, arguments = failed(await master.run(op))
    assert name == "OpPrereqError"
    assert text in arguments[0]
