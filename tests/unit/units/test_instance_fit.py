"""Memory of a guest that migrates: it gives some back where the other node has less, if it may."""

import pytest

from ganeti.model.opcodes.moving import OpNodeMigrate
from ganeti.simulation.nodes.model import ModelNode
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G5")]


@pytest.fixture
async def uuid(master: Master) -> str:
    """A guest that runs with 512 MiB on the first node and could do with 256; the second has 300 left."""
    op = create(beparams={"minmem": 256, "maxmem": 512})
    succeeded(await master.run(op))
    master.rpc.reset()
    master.world.node(2).memory = 300
    return master.instance(NAME).uuid


def memory_at(node: ModelNode, uuid: str) -> int:
    return node.guests[uuid].spec.memory


async def test_a_guest_gives_memory_back_to_fit(master: Master, uuid: str) -> None:
    view = await master.run(migrate())
    assert succeeded(view) == ["node2.example.com"]
    assert master.rpc.acts()[0] == "instance_memory"
    assert memory_at(master.world.node(2), uuid) == 300
    assert "changing the memory of the guest from 512 to 300 MiB" in said(view)
    master.check()


async def test_without_runtime_changes_it_does_not_migrate(master: Master, uuid: str) -> None:
    _, (text, code) = failed(await master.run(migrate(allow_runtime_changes=False)))
    assert code == "insufficient_resources"
    assert "has 300 MiB of memory free but needs 512 MiB" in text
    assert "down to 256 MiB" in text
    assert "--no-runtime-changes" in text
    assert master.rpc.acts() == []
    assert memory_at(master.world.node(1), uuid) == 512


async def test_nothing_is_changed_where_it_fits(master: Master, uuid: str) -> None:
    master.world.node(2).memory = 512
    succeeded(await master.run(migrate(allow_runtime_changes=False)))
    assert "instance_memory" not in master.rpc.acts()
    assert memory_at(master.world.node(2), uuid) == 512


async def test_it_never_gets_less_than_its_least_memory(master: Master, uuid: str) -> None:
    master.world.node(2).memory = 255
    _, (text, code) = failed(await master.run(migrate()))
    assert code == "insufficient_resources"
    assert "has 255 MiB of memory free but needs 256 MiB" in text
    assert memory_at(master.world.node(1), uuid) == 512


async def test_a_guest_that_keeps_its_memory_stays(master: Master, uuid: str) -> None:
    master.world.node(1).guests_keep_memory = True
    _, (text,) = failed(await master.run(migrate()))
    assert "still uses 512 MiB of memory instead of 300 MiB" in text
    assert master.rpc.acts() == ["instance_memory", "instance_memory"]  # asked, and asked back
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    assert master.instance(NAME).migrating_to is None
    master.check()


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_what_fails_gives_the_memory_back(
    master: Master, uuid: str, number: int, fault: Fault
) -> None:
    master.rpc.fail(number, fault)
    failed(await master.run(migrate()))
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    assert memory_at(master.world.node(1), uuid) == 512
    master.check()


async def test_a_node_is_emptied_without_runtime_changes_if_that_is_asked_for(
    master: Master, uuid: str
) -> None:
    order = OpNodeMigrate(
        node_name="node1.example.com",
        target_node="node2.example.com",
        allow_runtime_changes=False,
    )
    result = succeeded(await master.run(order))
    ((_, job_id),) = result["jobs"]
    _, (text, _) = failed(await master.final(job_id))
    assert "--no-runtime-changes" in text
    assert master.world.where(uuid) == {"node1.example.com": "running"}
