"""Many instances at once: placed together, moved for balance, counted."""

import re
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.jobs.record import has_lost_secrets, without_secrets
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.placing import (
    OpClusterBalance,
    OpClusterCapacity,
    OpInstanceMultiAlloc,
)
from ganeti.query.fields.job import REDACTED, shown_opcode
from ganeti.rpc.procedures.programs import AllocatorOutput
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    await one.change(lambda draft: draft.put(replace(draft.cluster, default_iallocator="hail")))
    yield one
    await one.end()


def many(number: int, **fields: Any) -> OpInstanceMultiAlloc:
    wishes = [
        create(f"web{n}.example.com", pnode=None, disk_template="diskless", disks=[])
        for n in range(1, number + 1)
    ]
    return OpInstanceMultiAlloc(instances=wishes, **fields)


@pytest.mark.requirement("S175", "S179")
async def test_many_instances_are_placed_together_and_made_by_jobs(master: Master) -> None:
    result = succeeded(await master.run(many(6)))
    assert result["failed"] == []
    assert result["allocatable"] == [f"web{n}.example.com" for n in range(1, 7)]
    chosen = [succeeded(await master.final(job_id))[0] for _ok, job_id in result["jobs"]]
    assert sorted(chosen.count(f"node{n}.example.com") for n in (1, 2, 3)) == [2, 2, 2]
    master.check()


@pytest.mark.requirement("S175", "S179")
async def test_what_finds_no_place_is_named_and_the_others_are_made(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).memory = 600 if number < 3 else 100
    planned = succeeded(await master.run(many(3, dry_run=True)))
    assert planned["allocatable"] == ["web1.example.com", "web2.example.com"]
    assert set(planned["nodes"].values()) == {"node1.example.com", "node2.example.com"}
    assert planned["failed"] == ["web3.example.com"]
    view = await master.run(many(3))
    result = succeeded(view)
    assert "no node has room for web3.example.com" in said(view)
    for _accepted, job_id in result["jobs"]:
        succeeded(await master.final(job_id))
    assert len(master.snapshot.instances) == 2
    master.check()


@pytest.mark.requirement("S175")
async def test_instances_that_name_their_nodes_are_made_there_without_an_allocator(
    master: Master,
) -> None:
    await master.change(lambda draft: draft.put(replace(draft.cluster, default_iallocator="")))
    wishes = [replace(one, pnode="node2") for one in many(2).instances]
    result = succeeded(await master.run(OpInstanceMultiAlloc(instances=wishes)))
    assert result["allocatable"] == ["web1.example.com", "web2.example.com"]
    for _accepted, job_id in result["jobs"]:
        assert succeeded(await master.final(job_id)) == ["node2.example.com"]


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (OpInstanceMultiAlloc(), "instances: must have from 1 to"),
        (OpInstanceMultiAlloc(instances=[create(), *many(2).instances]), "a node for each"),
        (OpInstanceMultiAlloc(instances=[create(pnode=None, iallocator="hail")]), "instances[0]"),
        (many(1, iallocator="../x"), "iallocator"),
        (OpInstanceMultiAlloc(instances=[*many(1).instances] * 2), "occurs twice"),
        (OpClusterBalance(max_moves=-1), "max_moves"),
        (OpClusterBalance(iallocator="a b"), "iallocator"),
        (OpClusterCapacity(memory=0), "memory: must be at least 1"),
        (OpClusterCapacity(disk_template="tape"), "tape"),
        (OpClusterCapacity(disks=[DiskRequest(size=0)]), "disk"),
    ],
    ids=str,
)
async def test_a_wrong_role_or_value_is_refused(master: Master, op: Any, text: str) -> None:
    name, (message, code) = failed(await master.run(op))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text in message


@pytest.mark.requirement("G23")
def test_secrets_are_refused_before_anything_is_stored() -> None:
    value = {
        "OP_ID": "OP_INSTANCE_MULTI_ALLOC",
        "instances": [
            {
                "OP_ID": "OP_INSTANCE_CREATE",
                "instance_name": NAME,
                "osparams_secret": {"password": "x"},
            }
        ],
    }
    with pytest.raises(InputError, match="submit a separate job"):
        parse_opcode(value)


@pytest.mark.requirement("S186")
async def test_a_balance_moves_instances_by_jobs_and_then_has_nothing_to_do(
    master: Master,
) -> None:
    for number in range(1, 5):
        succeeded(await master.run(create(f"web{number}.example.com")))
    planned = succeeded(await master.run(OpClusterBalance(dry_run=True)))
    assert planned["moved"]
    assert set(map(tuple, planned["before"])) == {("node1.example.com",)}
    assert planned["needs"][0] == []
    assert 0 in planned["needs"][1]
    assert re.search(r"score [0-9.]+ to [0-9.]+$", planned["info"])
    assert {one.primary_node for one in master.snapshot.instances.values()} == {NODES[0]}
    result = succeeded(await master.run(OpClusterBalance()))
    assert result["moved"] == planned["moved"]
    for _accepted, job_id in result["jobs"]:
        succeeded(await master.final(job_id))
    assert len({one.primary_node for one in master.snapshot.instances.values()}) == 3
    again = succeeded(await master.run(OpClusterBalance()))
    assert (again["moved"], again["jobs"]) == ([], [])
    master.check()


@pytest.mark.requirement("S186")
async def test_a_balance_has_an_upper_limit_of_moves(master: Master) -> None:
    for number in range(1, 5):
        succeeded(await master.run(create(f"web{number}.example.com")))
    assert len(succeeded(await master.run(OpClusterBalance(max_moves=1)))["moved"]) == 1


@pytest.mark.requirement("S187")
async def test_capacity_counts_what_fits_and_reports_where(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).memory = 1100 if number < 3 else 100
    op = OpClusterCapacity(memory=512, disk_template="diskless", disks=[], nics=[])
    found = succeeded(await master.run(op))
    assert found["count"] == len(found["nodes"]) == 4
    assert sorted({node for nodes in found["nodes"] for node in nodes}) == [
        "node1.example.com", "node2.example.com",
    ]  # fmt: skip
    assert found["spec"]["memory"] == 512
    limited = succeeded(await master.run(replace(op, max_instances=1)))
    assert limited["count"] == 1


@pytest.mark.requirement("S178", "A22")
async def test_a_hostile_answer_makes_no_jobs(master: Master) -> None:
    answer = '{"success": true, "info": "", "result": [[], [], [[{"OP_ID": "OP_CLUSTER_DESTROY"}]]]}'  # fmt: skip
    master.world.node(1).allocators["evil"] = lambda _message: AllocatorOutput(
        found=True, stdout=answer
    )
    _, (text, code) = failed(await master.run(OpClusterBalance(iallocator="evil")))
    assert code == "environment_error"
    assert "is not an opcode that an allocator may return" in text


@pytest.mark.requirement("G23")
async def test_private_parameters_of_nested_instances_are_not_shown(master: Master) -> None:
    wish = replace(many(1).instances[0], osparams_private={"key": "hush"})
    view = await master.run(OpInstanceMultiAlloc(instances=[wish]))
    result = succeeded(view)
    [shown] = shown_opcode(view.ops[0].op)["instances"]
    assert shown["osparams_private"] == {"key": REDACTED}
    assert "hush" not in repr(view)
    [[_accepted, job_id]] = result["jobs"]
    succeeded(await master.final(job_id))
    assert master.instance(NAME).osparams_private == {"key": "hush"}


@pytest.mark.requirement("G23", "F38")
def test_secrets_of_nested_opcodes_would_not_be_stored() -> None:
    """Whatever holds opcodes: the refusal of OP_INSTANCE_MULTI_ALLOC is not the only fence."""

    class Holder(OpCode, frozen=True, kw_only=True, tag="OP_HOLDER"):
        parts: list[OpInstanceCreate]
        nested_field: ClassVar[str | None] = "parts"

    op = Holder(parts=[create(), create(osparams_secret={"password": "hush"})])
    stored = without_secrets(op)
    assert "hush" not in repr(stored)
    assert has_lost_secrets(stored)
    plain = Holder(parts=[create()])
    assert without_secrets(plain) is plain
    assert not has_lost_secrets(plain)


async def test_moves_of_a_balance_wait_for_the_success_of_those_that_they_need(
    master: Master,
) -> None:
    for number in range(1, 5):
        succeeded(await master.run(create(f"web{number}.example.com")))
    result = succeeded(await master.run(OpClusterBalance()))
    ids = [job_id for _accepted, job_id in result["jobs"]]
    depends = [(await master.final(job_id)).ops[0].op.depends for job_id in ids]
    assert depends[1:] == [
        [(ids[one], ["success"]) for one in needs] for needs in result["needs"][1:]
    ]
    assert depends[0] is None
