"""Snapshots with the memory of the guest: all or nothing, and a guest never continues beside other disks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.config.storage_units import disk_unit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import AdminState, Consistency
from ganeti.model.objects import Instance
from ganeti.model.opcodes.instance import (
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.snapshots import (
    OpInstanceSnapshotCreate,
    OpInstanceSnapshotRemove,
    OpInstanceSnapshotRollback,
)
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.units.cluster.disk_findings import Listing, known_places, missing_findings
from tests.support.export_nodes import ExportNode
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

FIRST = "node1.example.com"


class _Node(ExportNode):
    """Its images of Ceph are in the directory that every node sees."""

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        return self.shared if disk.template == "rbd" else super()._place(disk)


@pytest.fixture
def world() -> World:
    found = World(node_type=_Node, enabled_disk_templates=("plain", "rbd", "file", "sharedfile"))
    for number in (1, 2, 3):
        one = node(found, number)
        one.groups = {"xenvg": one.local}
        one.has_snapshots = True
    return found


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def node(world: World, number: int) -> ExportNode:
    found = world.node(number)
    assert isinstance(found, ExportNode)
    return found


def take(name: str = "s1", **fields: Any) -> OpInstanceSnapshotCreate:
    given = {"memory": True, **fields}
    return OpInstanceSnapshotCreate(instance_name=NAME, snapshot=name, **given)


def roll_back(name: str = "s1", **fields: Any) -> OpInstanceSnapshotRollback:
    return OpInstanceSnapshotRollback(instance_name=NAME, snapshot=name, **fields)


def drop() -> OpInstanceSnapshotRemove:
    return OpInstanceSnapshotRemove(instance_name=NAME, snapshot="s1")


def write(world: World, text: str) -> None:
    """Let all disks that the guest sees contain a text."""
    for place in (node(world, 1).local, world.shared):
        for path in place.disks:
            if not path.endswith(".memory"):
                place.contents[path] = text


def contents(world: World) -> set[str]:
    return {
        text
        for place in (node(world, 1).local, world.shared)
        for path, text in place.contents.items()
        if not path.endswith(".memory")
    }


async def with_data(master: Master, **fields: Any) -> Instance:
    succeeded(await master.run(create(**{"disk_template": "plain", **fields})))
    write(master.world, "old")
    master.rpc.reset()
    return master.instance(NAME)


async def with_snapshot(master: Master, **fields: Any) -> Instance:
    """A running guest with a snapshot and its memory, and newer data."""
    await with_data(master, **fields)
    succeeded(await master.run(take()))
    write(master.world, "new")
    master.rpc.reset()
    return master.instance(NAME)


def check_stored(master: Master) -> None:
    """The storage has exactly the snapshots and the memory of the configuration."""
    known = {
        one.name
        for instance in master.snapshot.instances.values()
        for had in instance.snapshots
        for one in had.disks
    }
    stored = [path.rpartition("@")[2] for path in node(master.world, 1).snapshots]
    assert sorted(stored) == sorted(known)
    disks = {str(disk.logical_id[1]) for disk, _nodes in master.snapshot.all_disks()}
    assert master.world.disks() == disks


async def test_a_snapshot_with_memory_has_a_disk_for_it(master: Master) -> None:
    await with_data(master)
    view = await master.run(take())
    assert succeeded(view) == {"name": "s1", "consistency": "memory"}
    assert "the guest was paused for 12 ms" in said(view)
    assert master.rpc.acts() == ["blockdev_create", "save_guest"]
    (had,) = master.instance(NAME).snapshots
    assert had.consistency is Consistency.MEMORY
    assert had.memory is not None
    assert had.memory.disk.size == 2 * 512 + 128
    assert str(had.memory.disk.logical_id[1]).endswith(".memory")
    assert had.size == 768, "its own disks"
    check_stored(master)
    succeeded(await master.run(drop()))
    check_stored(master)
    assert len(master.world.disks()) == 2


async def test_a_guest_that_is_down_has_no_memory(master: Master) -> None:
    await with_data(master, start=False)
    _name, (text, code) = failed(await master.run(take()))
    assert code == "wrong_state"
    assert "without --memory" in text
    assert master.rpc.acts() == []


async def test_the_memory_needs_space(master: Master) -> None:
    await with_data(master)
    node(master.world, 1).local.total = 768 * 2 + 1000
    _name, (text, code) = failed(await master.run(take()))
    assert code == "insufficient_resources"
    assert "needs 1920 MiB" in text
    succeeded(await master.run(take(memory=False)))


@pytest.mark.parametrize("was_up", [True, False])
async def test_a_rollback_continues_the_guest(master: Master, *, was_up: bool) -> None:
    uuid = (await with_snapshot(master)).uuid
    if not was_up:
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    master.rpc.reset()
    succeeded(await master.run(roll_back(stop=was_up)))
    assert contents(master.world) == {"old"}
    assert master.world.where(uuid) == {FIRST: "running"}
    acts = master.rpc.acts()
    assert acts[-2:] == ["restore_guest", "instance_start"]
    assert ("instance_shutdown" in acts) == was_up
    after = master.instance(NAME)
    assert (after.rolling_back, after.admin_state) == (None, AdminState.UP)
    assert [one.name for one in after.snapshots] == ["s1"]
    check_stored(master)


async def test_a_running_guest_is_replaced_only_on_request(master: Master) -> None:
    await with_snapshot(master)
    _name, (text, _code) = failed(await master.run(roll_back()))
    assert "pass --stop to replace it" in text


async def test_without_its_memory_a_rollback_is_of_the_disks(master: Master) -> None:
    uuid = (await with_snapshot(master)).uuid
    node(master.world, 1).misfits = ("vcpus was 2 and is 4",)
    _name, (text, code) = failed(await master.run(roll_back(stop=True)))
    assert code == "wrong_state"
    assert "because" not in text
    assert "vcpus was 2 and is 4. To roll back only its disks, run: gnt-instance snapshot" in text
    assert f"rollback --no-memory {NAME} s1" in text
    assert master.rpc.acts() == []
    assert contents(master.world) == {"new"}
    succeeded(await master.run(roll_back(stop=True, no_memory=True)))
    assert "restore_guest" not in master.rpc.acts()
    assert contents(master.world) == {"old"}
    assert master.world.where(uuid) == {FIRST: "running"}


async def test_a_guest_that_does_not_load_leaves_no_start_from_its_disks_alone(
    master: Master,
) -> None:
    uuid = (await with_snapshot(master)).uuid
    node(master.world, 1).load_fails = True
    _name, (text,) = failed(await master.run(roll_back(stop=True)))
    assert "repeat it, or complete it without the memory" in text
    assert master.world.where(uuid) == {}
    _name, (text, _code) = failed(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert "is not complete" in text
    node(master.world, 1).load_fails = False
    succeeded(await master.run(roll_back()))
    assert master.world.where(uuid) == {FIRST: "running"}


async def test_a_removed_instance_leaves_no_memory(master: Master) -> None:
    await with_snapshot(master)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert master.world.disks() == set()
    check_stored(master)


@pytest.mark.parametrize("way", ["migrate", "failover"])
async def test_on_shared_storage_the_memory_goes_with_the_instance(
    master: Master, way: str, world: World
) -> None:
    await with_snapshot(master, disk_template="rbd")
    moving = {
        "migrate": migrate(),
        "failover": OpInstanceFailover(instance_name=NAME, target_node="node2.example.com"),
    }
    succeeded(await master.run(moving[way]))
    node(world, 2).snapshots = node(world, 1).snapshots  # every node sees them
    succeeded(await master.run(roll_back(stop=True)))
    assert contents(world) == {"old"}
    assert world.where(master.instance(NAME).uuid) == {"node2.example.com": "running"}
    succeeded(await master.run(drop()))
    check_stored(master)


async def test_verify_knows_the_memory_and_misses_a_lost_one(master: Master) -> None:
    instance = await with_snapshot(master)
    unit = disk_unit(master.snapshot.cluster, instance.disks[0])
    assert unit is not None
    known = known_places([master.snapshot])
    volumes = [StoredDisk(unit=unit, name=name, size=2000) for _unit, name in known.volumes]
    assert len(volumes) == 5
    listing = Listing({NODES[0]: volumes}, None)
    assert list(missing_findings(master.snapshot, [instance], listing)) == []
    kept = [one for one in volumes if not one.name.endswith(".memory")]
    (found,) = missing_findings(master.snapshot, [instance], Listing({NODES[0]: kept}, None))
    assert f"the memory of snapshot s1 is missing on {FIRST}" in found.text


# --- failures ---


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("fault", list(Fault))
async def test_a_failed_snapshot_leaves_nothing(master: Master, fault: Fault, number: int) -> None:
    uuid = (await with_data(master)).uuid
    master.rpc.fail(number, fault)
    view = await master.run(take())
    await master.nothing_is_left()
    assert (view.status.value == "success") == bool(master.instance(NAME).snapshots)
    assert master.world.where(uuid) == {FIRST: "running"}
    check_stored(master)


@pytest.mark.parametrize("number", range(8))
async def test_a_refused_commit_leaves_all_or_nothing(master: Master, number: int) -> None:
    await with_data(master)
    job_id = await master.submit(take())
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await master.nothing_is_left()
    check_stored(master)


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("fault", list(Fault))
async def test_a_failed_rollback_can_be_repeated(master: Master, fault: Fault, number: int) -> None:
    """Calls: stop the guest, roll each disk back, restore the memory, let the guest continue."""
    uuid = (await with_snapshot(master)).uuid
    master.rpc.fail(number, fault)
    await master.run(roll_back(stop=True))
    await master.nothing_is_left()
    where = master.world.where(uuid)
    if where == {FIRST: "running"} and master.instance(NAME).rolling_back is None:
        assert len(contents(master.world)) == 1
    else:
        _name, (_text, code) = failed(await master.run(OpInstanceStartup(instance_name=NAME)))
        assert code == "wrong_state"
    succeeded(await master.run(roll_back(stop=True)))
    assert contents(master.world) == {"old"}
    assert master.world.where(uuid) == {FIRST: "running"}
    check_stored(master)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("act", ["take", "roll back", "remove"])
@pytest.mark.parametrize("number", range(9))
async def test_a_master_that_dies_leaves_whole_snapshots_and_no_mixture_that_starts(
    world: World, number: int, act: str, written: bool
) -> None:
    master = await Master.begin(world)
    await with_data(master)
    uuid = master.instance(NAME).uuid
    if act != "take":
        succeeded(await master.run(take()))
        write(world, "new")
    ops = {"take": take(), "roll back": roll_back(stop=True), "remove": drop()}
    await master.submit(ops[act])
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_stored(after)
        instance = after.instance(NAME)
        if instance.rolling_back is None:
            assert len(contents(world)) == 1
            assert world.where(uuid) == {FIRST: "running"}
        else:
            assert world.where(uuid) == {}
            succeeded(await after.run(roll_back(stop=True)))
            assert contents(world) == {"old"}
            assert world.where(uuid) == {FIRST: "running"}
        assert instance.admin_state is AdminState.UP
    finally:
        await after.end()
