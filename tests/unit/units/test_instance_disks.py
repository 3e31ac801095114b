"""Growing, activating and making anew the disks of instances, with failures at every step."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
)
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time

COMMITS = 6


def grow(amount: int = 100, **fields: Any) -> OpInstanceGrowDisk:
    return OpInstanceGrowDisk(instance_name=NAME, disk=1, amount=amount, **fields)


def recreate(**fields: Any) -> OpInstanceRecreateDisks:
    return OpInstanceRecreateDisks(instance_name=NAME, **fields)


async def running(master: Master) -> str:
    succeeded(await master.run(create()))
    master.rpc.reset()
    return master.instance(NAME).uuid


async def lost(master: Master, **fields: Any) -> None:
    """An instance that is down, and whose disks are gone."""
    given = {"start": False, "disk_template": "file", **fields}
    succeeded(await master.run(create(**given)))
    master.world.node(1).local.disks.clear()
    master.rpc.reset()


def sizes(master: Master) -> list[int]:
    return [disk.size for disk in master.instance(NAME).disks]


async def test_a_disk_grows_on_the_node_in_the_configuration_and_in_the_guest(
    master: Master,
) -> None:
    uuid = await running(master)
    succeeded(await master.run(grow()))
    assert sizes(master) == [512, 356]
    assert sorted(master.world.shared.disks.values()) == [356, 512]
    assert master.world.node(1).guests[uuid].spec.disks[1].size == 356
    assert master.rpc.acts() == ["blockdev_grow", "hotplug_disk"]
    succeeded(await master.run(grow(1000, absolute=True)))
    succeeded(await master.run(grow(1000, absolute=True)))
    assert sizes(master) == [512, 1000]
    master.check()
    master.check_guests_have_what_the_configuration_says()


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_growth_that_broke_off_can_be_repeated(master: Master, fault: Fault) -> None:
    await running(master)
    master.rpc.fail(1, fault)
    failed(await master.run(grow(1000, absolute=True)))
    assert sizes(master) == [512, 256]
    succeeded(await master.run(grow(1000, absolute=True)))
    assert sizes(master) == [512, 1000]
    master.check()


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_guest_that_cannot_be_notified_of_the_growth_is_a_warning(
    master: Master, fault: Fault
) -> None:
    await running(master)
    master.rpc.fail(2, fault)
    view = await master.run(grow())
    succeeded(view)
    assert "sees the new size of the disk at its next start" in said(view)
    assert sizes(master) == [512, 356]


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_growth_is_repeated_under_the_next_master(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await running(master)
    await master.submit(grow(1000, absolute=True))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        succeeded(await after.run(grow(1000, absolute=True)))
        assert sizes(after) == [512, 1000]
        after.check()
        after.check_guests_have_what_the_configuration_says()
    finally:
        await after.end()


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (grow(0), "wrong_input"),
        (grow(-1), "wrong_input"),
        (grow(10, absolute=True), "wrong_state"),
        (grow(2**40), "wrong_input"),
        (grow(10**6), "insufficient_resources"),
        (replace(grow(), disk=2), "wrong_input"),
        (recreate(), "wrong_state"),
        (recreate(nodes=["node1", "node2"], iallocator="hail"), "wrong_input"),
        (recreate(disks=[-1]), "wrong_input"),
        (recreate(disks=[0, 0]), "wrong_input"),
        (recreate(disks=[[0, {"name": "x"}]]), "wrong_input"),
        (recreate(disks=[[]]), "wrong_input"),
        (OpInstanceDeactivateDisks(instance_name=NAME), "wrong_state"),
        (OpInstanceActivateDisks(instance_name="nobody"), "unknown_entity"),
    ],
)
async def test_a_wrong_request_changes_nothing(master: Master, op: OpCode, code: str) -> None:
    await running(master)
    name, (_, found) = failed(await master.run(op))
    assert (name, found) == ("OpPrereqError", code)
    assert master.rpc.acts() == []
    master.check()


async def test_disks_are_activated_and_abandoned(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    paths = [str(disk.logical_id[1]) for disk in master.instance(NAME).disks]
    answer = succeeded(await master.run(OpInstanceActivateDisks(instance_name=NAME)))
    assert answer == [
        ["node1.example.com", "disk/0", paths[0]],
        ["node1.example.com", "disk/1", paths[1]],
    ]
    succeeded(await master.run(OpInstanceDeactivateDisks(instance_name=NAME)))
    assert master.rpc.acts()[-4:] == ["blockdev_assemble"] * 2 + ["blockdev_shutdown"] * 2
    master.world.shared.disks.popitem()
    failed(await master.run(OpInstanceActivateDisks(instance_name=NAME)))
    succeeded(await master.run(OpInstanceDeactivateDisks(instance_name=NAME, force=True)))


async def test_lost_disks_are_recreated_where_they_were(master: Master) -> None:
    await lost(master)
    before = master.instance(NAME)
    succeeded(await master.run(recreate()))
    assert master.instance(NAME).disks == before.disks
    assert sorted(master.world.node(1).local.disks.values()) == [256, 512]
    master.check()


@pytest.mark.requirement("G12")
async def test_nothing_is_recreated_over_a_disk_that_is_there(master: Master) -> None:
    await lost(master)
    succeeded(await master.run(recreate(disks=[1])))
    master.rpc.reset()
    _, (text, code) = failed(await master.run(recreate()))
    assert code == "already_exists"
    assert "disk 1" in text
    assert master.rpc.acts() == []
    succeeded(await master.run(recreate(disks=[[0, {"size": "1g", "mode": "ro"}]])))
    assert [(disk.size, disk.mode) for disk in master.instance(NAME).disks] == [
        (1024, "ro"), (256, "rw"),
    ]  # fmt: skip
    master.check()


async def test_disks_of_a_dead_node_are_recreated_on_another_one(master: Master) -> None:
    succeeded(await master.run(create(pnode="node2", disk_template="file", start=False)))
    master.world.node(2).local.disks.clear()
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    _, (text, _) = failed(await master.run(recreate(disks=[0], nodes=["node3"])))
    assert "all 2 disks" in text
    _, (_, code) = failed(await master.run(recreate(nodes=["node1", "node3"])))
    assert code == "wrong_input"
    _, (text, _) = failed(await master.run(recreate()))
    assert "is marked offline" in text
    succeeded(await master.run(recreate(nodes=["node3"])))
    assert master.instance(NAME).primary_node == NODES[2]
    assert len(master.world.node(3).local.disks) == 2
    master.check()


@pytest.mark.parametrize("name", ["hail", "."])
async def test_an_allocator_may_choose_where_disks_are_recreated(master: Master, name: str) -> None:
    await lost(master)
    _, (text, _) = failed(await master.run(recreate(iallocator=".")))
    assert "no default allocator" in text
    await master.change(lambda draft: draft.put(replace(draft.cluster, default_iallocator="hail")))
    succeeded(await master.run(recreate(iallocator=name)))
    master.check()


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2])
async def test_disks_that_could_not_all_be_recreated_are_removed_again(
    master: Master, number: int, fault: Fault
) -> None:
    await lost(master)
    before = master.instance(NAME)
    master.rpc.fail(number, fault)
    failed(await master.run(recreate(disks=[[0, {"size": 9}], 1])))
    assert master.instance(NAME) == before
    assert master.world.node(1).local.disks == {}
    master.check_nothing_is_held()


@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_makes_all_disks_anew_or_none(master: Master, number: int) -> None:
    await lost(master)
    job_id = await master.submit(recreate())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    made = len(master.world.node(1).local.disks)
    assert made == (2 if view.status is JobStatus.SUCCESS else 0)


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7", "G11")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_makes_all_disks_anew_or_none(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await lost(master, disks=[DiskRequest(size=8), DiskRequest(size=9)])
    await master.submit(recreate(disks=[[0, {"size": 10}], 1]))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        made = sorted(world.node(1).local.disks.values())
        assert made in ([], [9, 10])
        assert sizes(after) in ([8, 9], [10, 9])
        if made == []:
            succeeded(await after.run(recreate()))
        after.check()
    finally:
        await after.end()
