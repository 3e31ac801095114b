"""Allocations without a program: lists of defaults, explanations, and answers of nodes that are some seconds old."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.daemons.allocation_client import AllocationClient
from ganeti.daemons.allocation_worker import Worker
from ganeti.model.opcodes.base import NicRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.network import OpNetworkAdd
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.rpc.procedures.programs import AllocatorOutput
from ganeti.units.node_data import UNCHANGED_S
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


class Inline(AllocationClient):
    """The built-in allocator without its process."""

    def __init__(self) -> None:
        super().__init__(Worker().exchange)
        self.messages: list[dict[str, Any]] = []

    async def answer(self, message: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        self.messages.append(message)
        return await super().answer(message, options)


@pytest.fixture
def built_in() -> Inline:
    return Inline()


@pytest.fixture
async def master(world: World, built_in: Inline) -> AsyncIterator[Master]:
    world.built_in, world.node_data_age_s = built_in, 2.0
    one = await Master.begin(world)
    params = {"no-capacity-checks": True}
    wish = OpClusterSetParams(default_iallocator="hail", default_iallocator_params=params)
    succeeded(await one.run(wish))
    yield one
    await one.end()


def calls(master: Master, procedure: str) -> int:
    return sum(call.procedure == procedure for call in master.rpc.calls)


async def defaults(master: Master, text: str) -> None:
    await master.change(lambda draft: draft.put(replace(draft.cluster, default_iallocator=text)))


def refuses(message: dict[str, Any]) -> AllocatorOutput:
    del message
    answer = {"success": False, "info": "never on a Friday", "result": []}
    return AllocatorOutput(found=True, stdout=json.dumps(answer))


@pytest.mark.requirement("S183", "S184")
async def test_the_built_in_allocator_needs_no_program(master: Master) -> None:
    assert len(succeeded(await master.run(create(pnode=None)))) == 1
    assert calls(master, "allocator_run") == 0


@pytest.mark.requirement("S184")
async def test_allocators_are_tried_in_order_until_one_succeeds(master: Master) -> None:
    master.world.node(1).allocators["mine"] = refuses
    await defaults(master, "absent,mine,hail")
    succeeded(await master.run(create(pnode=None)))
    await defaults(master, "absent,mine")
    _, (text, code) = failed(await master.run(create("web2.example.com", pnode=None)))
    assert code == "insufficient_resources"
    assert "Can't find iallocator 'absent'" in text
    assert "using iallocator 'mine': never on a Friday" in text


@pytest.mark.requirement("S184")
async def test_each_kind_of_request_can_have_a_list_of_its_own(master: Master) -> None:
    master.world.node(1).allocators["mine"] = refuses
    await defaults(master, "allocate=mine/capacity=hail")
    _, (text, _code) = failed(await master.run(create(pnode=None)))
    assert "never on a Friday" in text
    answered = json.loads(succeeded(await master.run(OpTestAllocator(mode="capacity"))))
    assert answered["success"]
    _, (_text, code) = failed(await master.run(OpTestAllocator(mode="balance")))
    assert code == "wrong_input"


@pytest.mark.requirement("S184")
async def test_a_named_node_and_a_named_allocator_win_over_the_default(master: Master) -> None:
    master.world.node(1).allocators["mine"] = refuses
    await defaults(master, "mine")
    succeeded(await master.run(create(pnode="node3")))
    succeeded(await master.run(create("web2.example.com", pnode=None, iallocator="hail")))


@pytest.mark.requirement("S185", "S188")
async def test_a_dry_run_reports_where_and_why_not_elsewhere(master: Master) -> None:
    master.world.node(2).memory = 100
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[2]], drained=True)))
    position = master.snapshot.position
    wish = create(pnode=None, dry_run=True, explain=True)
    found = succeeded(await master.run(wish))
    assert found["nodes"] == ["node1.example.com"]
    reasons = dict(found["why_not"])
    assert reasons["node2.example.com"].endswith("MiB of memory short")
    assert reasons["node3.example.com"] == "drained"
    assert master.snapshot.position == position
    assert master.rpc.acts() == []


@pytest.mark.requirement("S182", "S237")
async def test_an_external_refusal_is_explained_by_our_rules(master: Master) -> None:
    master.world.node(1).allocators["mine"] = refuses
    for number in (1, 2, 3):
        master.world.node(number).memory = 100
    _, (text, _) = failed(await master.run(create(pnode=None, iallocator="mine", explain=True)))
    names = "node1.example.com, node2.example.com, node3.example.com"
    assert f"never on a Friday; {names}: " in text
    assert text.count("node3.example.com") == 1


async def test_a_choice_is_explained_in_the_jobs_log(master: Master) -> None:
    master.world.node(2).memory = 100
    view = await master.run(create(pnode=None, explain=True))
    succeeded(view)
    [row] = [line for line in said(view).splitlines() if "of memory short" in line]
    assert row.endswith("  node2.example.com")


async def test_nothing_can_be_explained_where_a_node_is_named(master: Master) -> None:
    _, (text, _code) = failed(await master.run(create(explain=True)))
    assert text.startswith("explain: ")


@pytest.mark.requirement("G11")
async def test_creations_in_quick_succession_ask_the_nodes_once_and_share_them_evenly(
    master: Master, built_in: Inline
) -> None:
    ops = [create(f"web{n}.example.com", pnode=None, disk_template="diskless", disks=[]) for n in range(9)]  # fmt: skip
    before = calls(master, "node_info")
    jobs = [await master.submit(op) for op in ops]
    chosen = [succeeded(await master.final(job_id))[0] for job_id in jobs]
    assert sorted(chosen.count(f"node{n}.example.com") for n in (1, 2, 3)) == [3, 3, 3]
    checks = len(ops)  # each job looks at its chosen node itself
    assert calls(master, "node_info") - before == len(NODES) + checks
    assert len(built_in.messages) == len(ops)
    master.check()


@pytest.mark.requirement("G11")
async def test_what_was_given_away_since_the_nodes_were_asked_is_not_given_again(
    master: Master,
) -> None:
    for number in (1, 2, 3):
        master.world.node(number).memory = 600
    for number in range(3):
        succeeded(await master.run(create(f"web{number}.example.com", pnode=None)))
    _, (_text, code) = failed(await master.run(create("web3.example.com", pnode=None)))
    assert code == "insufficient_resources"
    master.check()


async def test_memory_that_became_free_is_found_by_asking_again(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).memory = 600 if number == 1 else 100
    succeeded(await master.run(create(pnode=None)))
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    succeeded(await master.run(create("web2.example.com", pnode=None)))
    master.check()


async def test_node_that_no_job_changed_is_asked_again_after_minutes_only(master: Master) -> None:
    succeeded(await master.run(create(pnode=None)))
    for wait_s, asked in ((3, 1), (UNCHANGED_S, len(NODES))):
        before = calls(master, "node_info")
        await asyncio.sleep(wait_s)
        succeeded(await master.run(create(f"web{wait_s:g}.example.com", pnode=None)))
        assert calls(master, "node_info") - before == asked + 1  # the job checks its node itself


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"default_iallocator": "nothing=hail"}, "default_iallocator"),
        ({"default_iallocator": "../hail"}, "default_iallocator"),
        ({"default_iallocator_params": {"-x": 1}}, "default_iallocator_params.-x"),
        ({"default_iallocator_params": {"x": "a\nb"}}, "default_iallocator_params.x"),
        ({"default_iallocator_params": {"x": [1]}}, "default_iallocator_params.x"),
    ],
)
async def test_wrong_defaults_are_refused(
    master: Master, fields: dict[str, Any], where: str
) -> None:
    _, (text, code) = failed(await master.run(OpClusterSetParams(**fields)))
    assert code == "wrong_input"
    assert text.startswith(f"{where}: ")


@pytest.mark.requirement("S237")
async def test_a_refusal_names_the_network_that_a_group_lacks(master: Master) -> None:
    succeeded(await master.run(OpNetworkAdd(network_name="lan", network="192.0.2.0/24")))
    nics = [NicRequest(network="lan")]
    _, (text, _code) = failed(await master.run(create(pnode=None, nics=nics, explain=True)))
    assert "not connected to network lan" in text
    [uuid] = master.snapshot.networks
    assert uuid not in text


@pytest.mark.requirement("S184")
async def test_a_named_list_is_tried_in_order_and_what_was_passed_over_is_reported(
    master: Master,
) -> None:
    view = await master.run(create(pnode=None, iallocator="missing,hail"))
    succeeded(view)
    assert "WARNING: Can't find iallocator 'missing' on node1.example.com" in said(view)
    assert "iallocator 'hail' answered instead" in said(view)
    await defaults(master, "missing,hail")
    view = await master.run(create("web2.example.com", pnode=None))
    assert "Can't find iallocator 'missing'" in said(view)
    _, (text, _code) = failed(
        await master.run(create("web3.example.com", pnode=None, iallocator="no such,hail"))
    )
    assert "'no such' is not a name" in text
