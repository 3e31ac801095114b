"""Snapshots of instances: all or nothing, never lost in silence, never a guest on a mixture of two contents."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import PrereqError
from ganeti.config.storage_units import disk_unit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import AdminState, Consistency, RebootType
from ganeti.model.objects import Disk, Instance, InstanceSnapshot
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import (
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
)
from ganeti.model.opcodes.instance_system import OpInstanceRename
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove
from ganeti.model.opcodes.snapshots import (
    OpInstanceSnapshotCreate,
    OpInstanceSnapshotRemove,
    OpInstanceSnapshotRollback,
)
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.units.cluster.disk_findings import Listing, known_places, missing_findings
from ganeti.units.instance.access import put_instance
from tests.support.export_nodes import ExportNode
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify
from tests.unit.units.test_backup import export

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

TEMPLATES = ("plain", "rbd", "file", "sharedfile", "diskless")


class _Node(ExportNode):
    """Its images of Ceph are in the directory that every node sees."""

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        return self.shared if disk.template == "rbd" else super()._place(disk)


@pytest.fixture
def world() -> World:
    found = World(node_type=_Node, enabled_disk_templates=TEMPLATES)
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


def take(name: str | None = "s1", **fields: Any) -> OpInstanceSnapshotCreate:
    return OpInstanceSnapshotCreate(instance_name=NAME, snapshot=name, **fields)


def roll_back(name: str = "s1", **fields: Any) -> OpInstanceSnapshotRollback:
    return OpInstanceSnapshotRollback(instance_name=NAME, snapshot=name, **fields)


def drop(name: str = "s1") -> OpInstanceSnapshotRemove:
    return OpInstanceSnapshotRemove(instance_name=NAME, snapshot=name)


def write(world: World, text: str) -> None:
    """Let all disks of the first node contain a text."""
    for place in (node(world, 1).local, world.shared):
        for path in place.disks:
            place.contents[path] = f"{text} on {path}"


def contents(world: World) -> set[str]:
    """The first words of all disks."""
    return {
        text.partition(" ")[0]
        for place in (node(world, 1).local, world.shared)
        for text in place.contents.values()
    }


async def with_data(master: Master, **fields: Any) -> Instance:
    succeeded(await master.run(create(**{"disk_template": "plain", **fields})))
    write(master.world, "old")
    master.rpc.reset()
    return master.instance(NAME)


async def with_snapshot(master: Master, **fields: Any) -> Instance:
    """An instance that is down, with a snapshot and then newer data."""
    await with_data(master, start=False, **fields)
    succeeded(await master.run(take()))
    write(master.world, "new")
    master.rpc.reset()
    return master.instance(NAME)


def check_stored(master: Master) -> None:
    """The storage has exactly the snapshots of the configuration."""
    known = {
        one.name
        for instance in master.snapshot.instances.values()
        for had in instance.snapshots
        for one in had.disks
    }
    stored = [path.rpartition("@")[2] for path in node(master.world, 1).snapshots]
    assert sorted(stored) == sorted(known)


async def test_a_snapshot_has_all_disks_and_says_what_they_contain(master: Master) -> None:
    await with_data(master)
    view = await master.run(take())
    assert succeeded(view) == {"name": "s1", "consistency": "crash"}
    assert "as after a loss of power" in said(view)
    assert master.rpc.acts() == ["snapshots_take"]
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert succeeded(await master.run(take("s2")))["consistency"] == "down"
    first, second = master.instance(NAME).snapshots
    assert (first.name, first.size, first.consistency) == ("s1", 768, Consistency.CRASH)
    assert [one.size for one in second.disks] == [512, 256]
    assert [one.disk for one in first.disks] == [one.uuid for one in master.instance(NAME).disks]
    check_stored(master)


async def test_without_a_name_it_has_its_time(master: Master) -> None:
    await with_data(master)
    assert succeeded(await master.run(take(None, dry_run=True)))["consistency"] is None
    named = succeeded(await master.run(take(None)))["name"]
    assert len(named) == len("20261124-180500")
    assert [one.name for one in master.instance(NAME).snapshots] == [named]


async def test_a_rollback_keeps_all_snapshots(master: Master) -> None:
    await with_snapshot(master)
    succeeded(await master.run(take("s2")))
    succeeded(await master.run(roll_back()))
    assert contents(master.world) == {"old"}
    succeeded(await master.run(roll_back("s2")))
    assert contents(master.world) == {"new"}
    assert [one.name for one in master.instance(NAME).snapshots] == ["s1", "s2"]
    assert master.instance(NAME).rolling_back is None
    check_stored(master)


async def test_a_running_guest_is_rolled_back_only_on_request_and_then_runs_again(
    master: Master,
) -> None:
    uuid = (await with_data(master)).uuid
    succeeded(await master.run(take()))
    write(master.world, "new")
    _name, (text, code) = failed(await master.run(roll_back()))
    assert code == "wrong_state"
    assert "--stop" in text
    succeeded(await master.run(roll_back(stop=True)))
    assert contents(master.world) == {"old"}
    assert master.world.where(uuid) == {"node1.example.com": "running"}


async def test_a_guest_that_shut_itself_down_is_ended_first(master: Master) -> None:
    uuid = (await with_data(master)).uuid
    succeeded(await master.run(take()))
    master.world.node(1).guests[uuid].state = "shutdown"
    succeeded(await master.run(roll_back()))
    assert master.world.where(uuid) == {}


async def test_a_removed_snapshot_is_gone_and_others_stay(master: Master) -> None:
    await with_snapshot(master)
    succeeded(await master.run(take("s2")))
    succeeded(await master.run(drop()))
    assert [one.name for one in master.instance(NAME).snapshots] == ["s2"]
    assert contents(master.world) == {"new"}
    check_stored(master)


async def test_a_snapshot_that_a_node_does_not_remove_is_removed_later(master: Master) -> None:
    await with_snapshot(master)
    master.rpc.fail(1, Fault.REFUSED)
    view = await master.run(drop())
    succeeded(view)
    assert "could not clean up (drop_snapshot)" in said(view)
    await master.nothing_is_left()
    check_stored(master)


async def test_templates_without_snapshots_say_so(master: Master) -> None:
    succeeded(await master.run(create(disk_template="diskless", disks=[], no_install=True)))
    _name, (text, code) = failed(await master.run(take()))
    assert (text, code) == (f"{NAME} has no disks", "wrong_state")
    device = master.instance(NAME)
    disk = Disk(uuid="11111111-0000-4000-8000-000000000000", size=8, template="blockdev")
    await master.change(put_instance(replace(device, disk_template="blockdev", disks=(disk,))))
    _name, (text, code) = failed(await master.run(take()))
    assert code == "wrong_state"
    assert "because other systems manage the device" in text
    assert "templates with snapshots: file, sharedfile, plain, rbd, ext" in text


@pytest.mark.parametrize(("template", "needs"), [("file", "XFS, btrfs"), ("plain", "another")])
async def test_a_storage_that_cannot_is_reported(master: Master, template: str, needs: str) -> None:
    await with_data(master, disk_template=template)
    node(master.world, 1).has_snapshots = False
    _name, (text, _code) = failed(await master.run(take()))
    assert "on node1.example.com does not support snapshots" in text
    assert needs in text


async def test_space_names_and_number_are_limited(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(modify(beparams={"max_snapshots": 1})))
    master.world.node(1).local.total = 768 + 700
    _name, (text, code) = failed(await master.run(take()))
    assert code == "insufficient_resources"
    assert "xenvg" in text
    master.world.node(1).local.total = 100_000
    for name in ("-f", "a b", "x" * 65):
        _name, (text, code) = failed(await master.run(take(name)))
        assert code == "wrong_input"
    succeeded(await master.run(take()))
    _name, (text, code) = failed(await master.run(take()))
    assert code == "already_exists"
    _name, (text, code) = failed(await master.run(take("s2")))
    assert code == "insufficient_resources"
    assert "max_snapshots=2" in text
    for op in (roll_back("s9"), drop("s9")):
        _name, (text, code) = failed(await master.run(op))
        assert code == "unknown_entity"
        assert "it has s1" in text


# --- other operations ---


@pytest.mark.parametrize(
    "op",
    [
        OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=64),
        modify(disk_template="file"),
        modify(disks=[["remove", 0, {}]]),
        modify(disks=[["detach", 0, {}]]),
        modify(pnode="node2.example.com"),
        OpInstanceRecreateDisks(instance_name=NAME),
        OpInstanceMove(instance_name=NAME, target_node="node2.example.com"),
        export(remove_instance=True),
    ],
    ids=lambda op: op.summary(),
)
async def test_what_would_lose_a_snapshot_is_refused_with_the_command(
    master: Master, op: OpCode
) -> None:
    before = await with_snapshot(master)
    _name, (text, code) = failed(await master.run(op))
    assert code == "wrong_state"
    assert f"gnt-instance snapshot remove {NAME}" in text
    assert master.rpc.acts() == []
    assert master.instance(NAME) == before
    succeeded(await master.run(drop()))
    text = str((await master.run(op)).ops[0].result)
    assert "snapshot" not in text


async def test_a_live_copy_to_another_node_is_refused(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(take()))
    _name, (text, _code) = failed(await master.run(migrate()))
    assert "cannot be moved while it has snapshots (s1)" in text


async def test_what_keeps_the_disks_works_as_ever(master: Master) -> None:
    await with_snapshot(master)
    for op in (
        OpInstanceStartup(instance_name=NAME),
        OpInstanceReboot(instance_name=NAME, reboot_type=RebootType.HARD),
        modify(disks=[["add", 1, {"size": 64}]]),
        export(),
        OpInstanceShutdown(instance_name=NAME),
        OpInstanceRename(instance_name=NAME, new_name="web9.example.com"),
        OpInstanceRename(instance_name="web9.example.com", new_name=NAME),
    ):
        succeeded(await master.run(op))
    view = await master.run(roll_back())
    succeeded(view)
    assert "disk 1 is newer than the snapshot" in said(view)
    check_stored(master)


@pytest.mark.parametrize("way", ["migrate", "failover"])
async def test_on_shared_storage_snapshots_go_with_the_instance(
    master: Master, way: str, world: World
) -> None:
    await with_data(master, disk_template="rbd")
    succeeded(await master.run(take()))
    moving = {
        "migrate": migrate(),
        "failover": OpInstanceFailover(instance_name=NAME, target_node="node2.example.com"),
    }
    succeeded(await master.run(moving[way]))
    write(world, "new")
    node(world, 2).snapshots = node(world, 1).snapshots  # every node sees them
    succeeded(await master.run(roll_back(stop=True)))
    assert contents(world) == {"old"}
    succeeded(await master.run(drop()))
    check_stored(master)


async def test_a_removed_instance_leaves_no_snapshot(master: Master) -> None:
    await with_snapshot(master)
    view = await master.run(OpInstanceRemove(instance_name=NAME))
    succeeded(view)
    assert "removing its 1 snapshots" in said(view)
    assert node(master.world, 1).snapshots == {}
    assert master.world.disks() == set()


async def test_the_configuration_refuses_to_lose_a_disk_of_a_snapshot(master: Master) -> None:
    before = await with_snapshot(master)
    for lost in (
        replace(before, disks=before.disks[1:]),
        replace(before, rolling_back="nothing"),
        replace(before, snapshots=before.snapshots * 2),
    ):
        with pytest.raises(PrereqError, match="snapshot"):
            await master.change(put_instance(lost))
    assert master.instance(NAME) == before


@pytest.mark.parametrize("template", ["plain", "file"])
async def test_verify_knows_what_snapshots_store_and_misses_lost_ones(
    master: Master, template: str
) -> None:
    instance = await with_snapshot(master, disk_template=template)
    unit = disk_unit(master.snapshot.cluster, instance.disks[0])
    assert unit is not None
    (had,) = instance.snapshots
    known = known_places([master.snapshot])
    stored = {name for _unit, name in known.volumes}
    lost = next(name for name in stored if name.endswith(had.disks[1].name))
    assert len(stored) == 4
    if template == "file":
        assert lost == f"{instance.disks[1].logical_id[1]}.{had.disks[1].name}"
    volumes = [StoredDisk(unit=unit, name=name, size=512) for _unit, name in known.volumes]
    listing = Listing({NODES[0]: volumes}, None)
    assert list(missing_findings(master.snapshot, [instance], listing)) == []
    volumes = [one for one in volumes if one.name != lost]
    listing = Listing({NODES[0]: volumes}, None)
    (found,) = missing_findings(master.snapshot, [instance], listing)
    assert f"snapshot s1 of disk/1 is missing on node1.example.com: {lost}" in found.text


# --- failures ---


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_failed_snapshot_leaves_nothing(master: Master, fault: Fault) -> None:
    await with_data(master)
    master.rpc.fail(1, fault)
    view = await master.run(take())
    await master.nothing_is_left()
    assert (view.status.value == "success") == bool(master.instance(NAME).snapshots)
    check_stored(master)


@pytest.mark.parametrize("number", range(6))
async def test_a_refused_commit_leaves_all_or_nothing(master: Master, number: int) -> None:
    await with_data(master)
    job_id = await master.submit(take())
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await master.nothing_is_left()
    check_stored(master)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("act", ["take", "roll back", "remove"])
@pytest.mark.parametrize("number", range(7))
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
            assert world.where(uuid) == {"node1.example.com": "running"}
        else:
            assert world.where(uuid) == {}
            _name, (text, _code) = failed(
                await after.run(OpInstanceStartup(instance_name=NAME, if_wanted=False))
            )
            assert f"gnt-instance snapshot rollback {NAME} s1" in text
            succeeded(await after.run(roll_back(stop=True)))
            assert contents(world) == {"old"}
            assert world.where(uuid) == {"node1.example.com": "running"}
        assert instance.admin_state is AdminState.UP
    finally:
        await after.end()


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_after_a_failed_rollback_the_guest_starts_only_when_it_is_complete(
    master: Master, number: int
) -> None:
    """Calls 2 and 3 roll a disk back; the first stops the guest."""
    uuid = (await with_data(master)).uuid
    succeeded(await master.run(take()))
    write(master.world, "new")
    master.rpc.reset()
    master.rpc.fail(number, Fault.REFUSED)
    _name, arguments = failed(await master.run(roll_back(stop=True)))
    if number == 1:
        assert master.world.where(uuid) == {"node1.example.com": "running"}
        assert contents(master.world) == {"new"}
        return
    assert f"gnt-instance snapshot rollback {NAME} s1" in str(arguments)
    assert master.world.where(uuid) == {}
    for op in (take("s2"), drop(), export(), OpInstanceStartup(instance_name=NAME)):
        _name, (text, code) = failed(await master.run(op))
        assert code == "wrong_state"
        assert "is not complete" in text
    view = await master.run(OpInstanceStartup(instance_name=NAME, if_wanted=True))
    succeeded(view)
    assert "is not complete" in said(view)
    succeeded(await master.run(roll_back(stop=True)))
    assert contents(master.world) == {"old"}
    assert master.world.where(uuid) == {"node1.example.com": "running"}


def test_a_snapshot_has_the_size_of_its_disks() -> None:
    empty = InstanceSnapshot(uuid="u", name="n", ctime=0.0, consistency=Consistency.DOWN, disks=())
    assert empty.size == 0
