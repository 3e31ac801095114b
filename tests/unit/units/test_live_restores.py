"""Restores during which the guest runs: nothing that it has written is lost, whichever step fails."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.jobs.view import JobView
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import AdminState, RebootType
from ganeti.model.objects import UnfinishedRestore
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import (
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.points import OpBackupPrune, OpBackupRestore, OpBackupSave
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.state import DiskMoveRecord
from ganeti.simulation.nodes.storage import SharedDirectory
from tests.support.backup_nodes import BackupNode, backup_node, backup_world
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G1", "G5", "G11")]

ACTS = [
    "transfer_key_create", "transfer_key_create", "live_serve", "live_start", "transfer_key_remove",
    "transfer_key_remove", "disk_move_begin", "disk_move_switch", "live_end", "disk_move_end", "live_serve_end",
]  # fmt: skip
COMMITS = 16


@pytest.fixture
def world() -> World:
    return backup_world("plain", "file", "diskless")


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def live(**fields: Any) -> OpBackupRestore:
    return OpBackupRestore(instance_name=NAME, **{"live": True, **fields})


def restore(**fields: Any) -> OpBackupRestore:
    return OpBackupRestore(instance_name=NAME, **fields)


def contents(world: World) -> set[str]:
    return {text.partition(" ")[0] for text in backup_node(world, 1).local.contents.values()}


async def with_backup(master: Master, node: str = "node2.example.com", **fields: Any) -> str:
    """An instance that is down, with a backup and other data; the backup's name."""
    options = {"disk_template": "plain", "hypervisor": "kvm", "start": False, **fields}
    succeeded(await master.run(create(**options)))
    point = succeeded(await master.run(OpBackupSave(instance_name=NAME, node=node)))["point"]
    place = backup_node(master.world, 1).local
    for path in place.disks:
        place.contents[path] = f"other on {path}"
    master.rpc.reset()
    return str(point)


def text_of(view: JobView) -> str:
    return str(failed(view)[1][0])


def check_finished(master: Master, wanted: str = "backup") -> None:
    """The guest runs on its own disks, and nothing else is there."""
    world = master.world
    instance = master.instance(NAME)
    assert instance.restoring is None
    assert instance.admin_state is AdminState.UP
    assert contents(world) == {wanted}
    assert [one.state for one in backup_node(world, 1).guests.values()] == ["running"]
    for number in (1, 2, 3):
        node = backup_node(world, number)
        assert (node.served, node.overlays, node.keys) == ({}, {}, set())
    assert backup_node(world, 1).disk_moves == {}
    master.check_nothing_is_held()
    world.check_no_guest_runs_twice()


@pytest.mark.parametrize("number", [1, 2])
async def test_guest_starts_at_once_and_ends_on_its_own_disks(master: Master, number: int) -> None:
    await with_backup(master, f"node{number}.example.com")
    view = await master.run(live(bandwidth=7))
    succeeded(view)
    acts = [one for one in ACTS if number == 2 or not one.startswith("transfer_key")]
    assert master.rpc.acts() == acts
    assert "the guest was paused for 9 ms" in said(view)
    check_finished(master)
    [begun] = [call.args for call in master.rpc.calls if call.procedure == "disk_move_begin"]
    assert begun.bandwidth_mib_s == 7


async def test_disk_that_is_an_image_is_restored_while_the_guest_runs(master: Master) -> None:
    disk = DiskRequest(size=512, params={"format": "qcow2"})
    await with_backup(master, disk_template="file", disks=[disk])
    succeeded(await master.run(live()))
    check_finished(master)


class MirroredNode(DrbdModelNode, BackupNode):
    """A model node with mirrored disks and backups."""

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        return self.local if disk.template == "drbd" else super()._place(disk)

    def _check_disk(self, disk: DiskSpec) -> None:
        """Its disks have a driver of their own."""


async def test_copies_of_mirrored_disks_are_open_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels(tmp_path)
    kernels.install(monkeypatch)
    world = World(node_type=MirroredNode, enabled_disk_templates=("drbd", "plain"))
    master = await Master.begin(world)
    try:
        two = "node2.example.com"
        await with_backup(master, "node3.example.com", disk_template="drbd", snode=two)
        succeeded(await master.run(live()))
        assert master.instance(NAME).restoring is None
        acts = master.rpc.acts()
        begun = acts.index("disk_move_begin")
        roles = {one.role for one in kernels.of(two).devices.values()}
        assert roles == {"Secondary"}
        assert acts.index("blockdev_assemble") < begun
    finally:
        await master.end()


async def above(master: Master) -> str:
    """A guest above its backup, whose copy has failed; the backup's name."""
    point = await with_backup(master)
    master.rpc.fail(ACTS.index("disk_move_begin") + 1, Fault.REFUSED)
    view = await master.run(live())
    assert "what web1.example.com writes is kept on node1.example.com" in text_of(view)
    assert f"gnt-backup restore --live {NAME}" in text_of(view)
    await master.nothing_is_left()
    master.rpc.reset()
    backup_node(master.world, 1).guest_writes(master.instance(NAME).uuid, "written")
    return point


async def test_what_would_lose_the_guests_data_is_refused_until_it_is_complete(
    master: Master,
) -> None:
    point = await above(master)
    mark = master.instance(NAME).restoring
    assert mark is not None
    assert mark.live is not None
    refused = [
        OpBackupSave(instance_name=NAME),
        OpInstanceReboot(instance_name=NAME, reboot_type=RebootType.FULL),
        OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=64),
        modify(disk_template="drbd", remote_node="node3.example.com"),
        migrate(),
        OpInstanceStartup(instance_name=NAME),
    ]
    for op in refused:
        assert f"gnt-backup restore --live {NAME}" in text_of(await master.run(op))
    assert "must be down" in text_of(await master.run(restore()))
    assert "omit --point" in text_of(await master.run(live(point="20200101-000000")))
    succeeded(await master.run(OpInstanceReboot(instance_name=NAME, reboot_type=RebootType.HARD)))
    succeeded(await master.run(live(point=point)))
    check_finished(master, "written")


async def test_a_guest_that_has_ended_continues_with_what_it_had_written(master: Master) -> None:
    await above(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert f"gnt-backup restore --live {NAME}" in text_of(
        await master.run(OpInstanceStartup(instance_name=NAME))
    )
    succeeded(await master.run(live()))
    check_finished(master, "written")


async def test_a_guest_that_has_changed_and_ended_is_started_from_its_own_disks(
    master: Master,
) -> None:
    await above(master)
    node, instance = backup_node(master.world, 1), master.instance(NAME)
    assert instance.restoring is not None
    assert instance.restoring.live is not None
    spec = node.guests.pop(instance.uuid).spec
    move = DiskMoveRecord(instance.restoring.live.token, spec.disks, spec.disks)
    move.is_moved = True
    node.disk_moves[instance.uuid] = move
    for path in node.local.disks:
        node.local.contents[path] = "written"
    succeeded(await master.run(live()))
    assert "disk_move_begin" not in master.rpc.acts()
    check_finished(master, "written")


async def test_data_of_the_guest_can_be_given_up(master: Master) -> None:
    await above(master)
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    succeeded(await master.run(restore()))
    assert master.instance(NAME).restoring is None
    node = backup_node(master.world, 1)
    assert (node.overlays, node.disk_moves) == ({}, {})
    assert backup_node(master.world, 2).served == {}
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))


async def test_instance_can_be_removed_with_everything(master: Master) -> None:
    await above(master)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert backup_node(master.world, 1).overlays == {}
    assert backup_node(master.world, 2).served == {}


async def test_backup_that_is_being_restored_is_not_pruned(master: Master) -> None:
    point = await above(master)
    node = backup_node(master.world, 2)
    [stored] = node.points.values()
    stored.append(stored[0].__class__(stored[0].info, "", {}))
    stored[1].info = replace(stored[0].info, point="20990101-000000", parent=point)
    found = succeeded(await master.run(OpBackupPrune(instance_name=NAME, keep_last=1)))
    assert found["removed"] == []
    assert {one["point"]: one["why"] for one in found["kept"]}[point] == ["being restored"]
    succeeded(await master.run(live()))
    found = succeeded(await master.run(OpBackupPrune(instance_name=NAME, keep_last=1)))
    assert found["removed"] == [point]


async def test_wrong_requests_are_refused_before_anything_is_done(master: Master) -> None:
    await with_backup(master)
    assert "omit --disk" in text_of(await master.run(live(disk=0)))
    assert text_of(await master.run(live(bandwidth=-1))).startswith("bandwidth: ")
    succeeded(await master.run(modify(disks=[["add", -1, {"size": 64}]])))
    assert "does not contain disk 2 of web1.example.com" in text_of(await master.run(live()))
    assert master.instance(NAME).restoring is None


# --- failures ---


def check_state(master: Master) -> None:
    """Either nothing was done, or the guest is above the backup, or it has its own disks."""
    world, instance = master.world, master.instance(NAME)
    node = backup_node(world, 1)
    for number in (1, 2, 3):
        assert backup_node(world, number).keys == set()
    if instance.restoring is not None and instance.restoring.live is not None:
        assert instance.uuid in node.overlays
    elif instance.uuid in node.guests:
        check_finished(master)
    else:
        assert contents(world) == {"other"}
        assert instance.admin_state is AdminState.DOWN
        assert node.overlays == {}
        assert backup_node(world, 2).served == {}


async def complete(master: Master) -> None:
    """Repeat the command, if that is needed; the data of the guest is there at the end."""
    node, instance = backup_node(master.world, 1), master.instance(NAME)
    wanted = "backup"
    if instance.restoring is not None:
        if instance.uuid in node.guests:
            wanted = "written"
            node.guest_writes(instance.uuid, wanted)
        succeeded(await master.run(live()))
    elif instance.uuid not in node.guests:
        succeeded(await master.run(live()))
    check_finished(master, wanted)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_after_any_failed_call_the_command_completes_the_restore(
    master: Master, number: int, fault: Fault
) -> None:
    await with_backup(master)
    master.rpc.fail(number, fault)
    await master.run(live())
    await master.nothing_is_left()
    master.rpc.reset()
    check_state(master)
    await complete(master)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("number", range(COMMITS))
async def test_after_a_refused_commit_the_command_completes_the_restore(
    master: Master, number: int
) -> None:
    await with_backup(master)
    job_id = await master.submit(live())
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await master.nothing_is_left()
    check_state(master)
    await complete(master)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_after_the_death_of_the_master_the_command_completes_the_restore(
    world: World, number: int, *, written: bool
) -> None:
    master = await Master.begin(world)
    await with_backup(master)
    await master.submit(live())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_state(after)
        await complete(after)
    finally:
        await after.end()


async def test_mixture_of_an_earlier_restore_stays_one_if_the_guest_cannot_start(
    master: Master,
) -> None:
    point = await with_backup(master)
    backup_node(master.world, 2).damaged = {point}
    failed(await master.run(restore()))
    backup_node(master.world, 1).refuses_start = "no memory"
    failed(await master.run(live()))
    assert master.instance(NAME).restoring == UnfinishedRestore(point=point)
