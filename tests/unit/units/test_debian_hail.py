"""Debian's own allocator serves our cluster: our messages are understood, its answers carried out."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from htools_peer import Peer

from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.group import OpGroupAdd, OpGroupAssignNodes, OpInstanceChangeGroup
from ganeti.model.opcodes.moving import OpNodeEvacuate
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.rpc.procedures.programs import AllocatorOutput
from tests.support.units_cluster import NODES, Master, World, succeeded
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S169", "S183")]


@pytest.fixture
async def master(world: World, tmp_path: Path) -> AsyncIterator[Master]:
    """`debian` is the program of the package, as an allocator."""
    peer = Peer()
    if not peer.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")

    def run(message: dict[str, Any]) -> AllocatorOutput:
        path = tmp_path / f"message-{os.urandom(4).hex()}"
        path.write_text(json.dumps(message))
        printed, _spent = peer.run("hail", str(path), "--no-capacity-checks")
        return AllocatorOutput(found=True, stdout=printed)

    world.node(1).allocators["debian"] = run
    one = await Master.begin(world)
    yield one
    await one.end()


async def two_groups(master: Master) -> None:
    succeeded(await master.run(OpGroupAdd(group_name="other")))
    succeeded(await master.run(OpGroupAssignNodes(group_name="other", nodes=["node3"])))


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "allocate"},
        {"mode": "allocate", "disk_template": "sharedfile", "disks": [DiskRequest(size=512)]},
        {"mode": "relocate", "name": NAME},
        {"mode": "node-evacuate", "instances": [NAME], "evac_mode": "primary-only"},
        {"mode": "change-group", "instances": [NAME]},
        {"mode": "multi-allocate", "count": 3},
    ],
    ids=lambda fields: fields["mode"],
)
async def test_each_type_of_request_is_answered(master: Master, fields: dict[str, Any]) -> None:
    await two_groups(master)
    succeeded(await master.run(create()))
    op = OpTestAllocator(iallocator="debian", **fields)
    answered = json.loads(succeeded(await master.run(op)))
    assert answered["success"], answered["info"]


async def test_a_creation_and_a_migration_follow_the_allocator(master: Master) -> None:
    master.world.node(1).memory = master.world.node(3).memory = 300
    assert succeeded(await master.run(create(pnode=None, iallocator="debian"))) == [
        "node2.example.com"
    ]
    master.world.node(3).memory = 4096
    succeeded(await master.run(migrate(target_node=None, iallocator="debian")))
    assert master.instance(NAME).primary_node == NODES[2]
    master.check()


@pytest.mark.requirement("S100", "S173", "S178")
async def test_a_node_is_emptied_by_the_allocators_jobs(master: Master) -> None:
    succeeded(await master.run(create()))
    op = OpNodeEvacuate(node_name="node1", mode="primary-only", iallocator="debian")
    for _accepted, job_id in succeeded(await master.run(op))["jobs"]:
        succeeded(await master.final(job_id))
    assert master.instance(NAME).primary_node != NODES[0]
    master.check()


@pytest.mark.requirement("S174", "S178")
async def test_an_instance_changes_its_group_by_the_allocators_answer(master: Master) -> None:
    await two_groups(master)
    succeeded(await master.run(create()))
    op = OpInstanceChangeGroup(instance_name=NAME, iallocator="debian")
    for _accepted, job_id in succeeded(await master.run(op))["jobs"]:
        succeeded(await master.final(job_id))
    assert master.instance(NAME).primary_node == NODES[2]
    master.check()
