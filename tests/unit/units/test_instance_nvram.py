"""Firmware variables of instances that fail over or migrate: with the guest, and nowhere else."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.simulation.faulty_store import Crash
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate
from tests.unit.units.test_instance_failover import mark_offline

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

VARIABLES = b"boot entries"
ACTS = ["instance_shutdown", "nvram_write", "nvram_forget", "instance_start"]
COMMITS = 6


async def begin(world: World) -> Master:
    one = await Master.begin(world)
    await one.change(lambda draft: draft.put(replace(draft.cluster, enabled_hypervisors=("kvm",))))
    return one


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    """With kvm in place of the fake hypervisor."""
    one = await begin(world)
    yield one
    await one.end()


def failover(**fields: Any) -> OpInstanceFailover:
    return OpInstanceFailover(instance_name=NAME, target_node="node2.example.com", **fields)


async def on_node_3(master: Master, **fields: Any) -> str:
    """A running UEFI guest without disks, on a node that is not the master; its UUID."""
    given: dict[str, Any] = {
        "disk_template": "diskless", "disks": [], "hvparams": {"firmware": "uefi"}, **fields,
    }  # fmt: skip
    op = create(pnode="node3.example.com", **given)
    succeeded(await master.run(op))
    uuid = master.instance(NAME).uuid
    master.world.node(3).nvram[uuid] = VARIABLES
    master.rpc.reset()
    return uuid


def places(world: World) -> dict[int, dict[str, bytes]]:
    return {number: found for number in (1, 2, 3) if (found := world.node(number).nvram)}


async def test_variables_fail_over_with_their_guest(master: Master) -> None:
    uuid = await on_node_3(master)
    succeeded(await master.run(failover()))
    assert master.rpc.acts() == ACTS
    assert places(master.world) == {2: {uuid: VARIABLES}}
    assert master.world.where(uuid) == {"node2.example.com": "running"}
    master.check()


async def test_variables_beside_shared_disks_stay_where_they_are(master: Master) -> None:
    await on_node_3(master, disk_template="sharedfile", disks=create().disks)
    succeeded(await master.run(failover()))
    assert master.rpc.acts() == ["instance_shutdown", "instance_start"]
    succeeded(await master.run(migrate(target_node="node1.example.com")))
    assert "nvram_forget" not in master.rpc.acts()


async def test_those_of_a_dead_node_are_lost_and_that_is_reported(master: Master) -> None:
    uuid = await on_node_3(master)
    master.world.node(3).guests.clear()
    await mark_offline(master, 3)
    view = await master.run(failover())
    succeeded(view)
    assert "its NVRAM is on node3.example.com; it starts with an empty NVRAM" in said(view)
    assert master.world.where(uuid) == {"node2.example.com": "running"}


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_a_failed_call_leaves_the_variables_with_the_instance(
    master: Master, number: int, fault: Fault
) -> None:
    uuid = await on_node_3(master)
    master.rpc.fail(number, fault)
    await master.run(failover())
    instance = master.instance(NAME)
    home = 1 + NODES.index(instance.primary_node)
    assert home == (3 if number < 3 else 2)
    assert master.world.node(home).nvram == {uuid: VARIABLES}
    if number != 3:  # what could not be removed is left, and said
        assert list(places(master.world)) == [home]
    there = {master.snapshot.nodes[instance.primary_node].name: "running"}
    assert master.world.where(uuid) in ({}, there)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_any_commit_leaves_the_variables_with_the_instance(
    world: World, number: int, written: bool
) -> None:
    master = await begin(world)
    uuid = await on_node_3(master)
    await master.submit(failover())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        home = 1 + NODES.index(after.instance(NAME).primary_node)
        assert places(world) == {home: {uuid: VARIABLES}}
        there = {after.snapshot.nodes[after.instance(NAME).primary_node].name: "running"}
        assert world.where(uuid) in ({}, there)
    finally:
        await after.end()


async def test_the_tpm_of_a_guest_with_shared_disks_goes_with_it(master: Master) -> None:
    uuid = await on_node_3(
        master, disk_template="sharedfile", disks=create().disks, hvparams={"tpm": True}
    )
    succeeded(await master.run(failover()))
    assert places(master.world) == {2: {uuid: VARIABLES}}


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_migration_leaves_no_variables_behind(master: Master, fault: Fault) -> None:
    uuid = await on_node_3(master)
    master.world.node(2).nvram[uuid] = VARIABLES  # written by the guest's flash as it arrives
    succeeded(await master.run(migrate()))
    assert places(master.world) == {2: {uuid: VARIABLES}}
    master.world.node(1).nvram[uuid] = VARIABLES
    master.rpc.reset()
    master.rpc.fail(2, fault)
    failed(await master.run(migrate(target_node="node1.example.com")))
    assert places(master.world) == {2: {uuid: VARIABLES}}
    master.check()
