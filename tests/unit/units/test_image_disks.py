"""Disks with format=qcow2: each records its format, and operations that need the bytes of a disk refuse it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.model.opcodes.backup import OpBackupExport
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.group import OpGroupSetParams
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.model.opcodes.points import OpBackupRestore, OpBackupSave
from ganeti.model.opcodes.snapshots import OpInstanceSnapshotCreate, OpInstanceSnapshotRollback
from ganeti.protocols.export_description import parse_description
from tests.support.backup_nodes import backup_node, backup_world
from tests.support.export_nodes import ExportNode
from tests.support.units_cluster import Master, failed, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "S74")]

TWO = "node2.example.com"
CLONE = "web2.example.com"


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(backup_world("file", "sharedfile", "plain"))
    yield one
    await one.end()


def image(template: str = "sharedfile", **more: Any) -> Any:
    disk = DiskRequest(size=512, params={"format": "qcow2"})
    return create(disk_template=template, disks=[disk], no_install=True, start=False, **more)


def formats(master: Master, name: str = NAME) -> list[str]:
    return [disk.params["format"] for disk in master.instance(name).disks]


async def test_disk_records_its_format_and_keeps_it(master: Master) -> None:
    succeeded(await master.run(image()))
    assert formats(master) == ["qcow2"]
    succeeded(await master.run(modify(disks=[["add", -1, {"size": 64}]])))
    succeeded(await master.run(OpClusterSetParams(diskparams={"sharedfile": {"format": "qcow2"}})))
    succeeded(await master.run(modify(disks=[["add", -1, {"size": 64}]])))
    raw = {"size": 64, "format": "raw"}
    succeeded(await master.run(modify(disks=[["add", -1, raw]])))
    assert formats(master) == ["qcow2", "raw", "qcow2", "raw"]
    named = [
        one.logical_id[2:] for one in instance_spec(master.snapshot, master.instance(NAME)).disks
    ]
    assert named == [("qcow2",), (), ("qcow2",), ()]  # what a node without formats refuses
    older = master.instance(NAME)
    older = replace(older, disks=tuple(replace(one, params={}) for one in older.disks))
    spec = instance_spec(master.snapshot, older)
    assert {disk.params["format"] for disk in spec.disks} == {"raw"}
    _name, (text, _code) = failed(
        await master.run(modify(disks=[["modify", 0, {"format": "raw"}]]))
    )
    assert "disks[0].format: is part of a disk's location or form, and cannot change" in text


@pytest.mark.requirement("S75")
async def test_disks_have_the_format_of_the_group_of_their_node(master: Master) -> None:
    of_group = OpGroupSetParams(
        group_name="default", diskparams={"sharedfile": {"format": "qcow2"}}
    )
    succeeded(await master.run(of_group))
    disks = [DiskRequest(size=64), DiskRequest(size=64, params={"format": "raw"})]
    for name, where in ((NAME, {}), (CLONE, {"pnode": None, "iallocator": "hail"})):
        op = create(name, disks=disks, no_install=True, start=False, **where)
        succeeded(await master.run(op))
        succeeded(await master.run(modify(name, disks=[["add", -1, {"size": 64}]])))
        assert formats(master, name) == ["qcow2", "raw", "qcow2"]


@pytest.mark.parametrize("value", ["vmdk", "QCOW2", "", "qcow2 ", 2])
async def test_unknown_format_is_refused(master: Master, value: Any) -> None:
    for op in (
        OpClusterSetParams(diskparams={"file": {"format": value}}),
        create(disk_template="file", disks=[DiskRequest(size=64, params={"format": value})]),
    ):
        _name, (text, _code) = failed(await master.run(op))
        assert "format" in text
        assert "must be" in text or "is not text" in text
    _name, (text, _code) = failed(
        await master.run(
            create(disk_template="plain", disks=[DiskRequest(size=64, params={"format": "raw"})])
        )
    )
    assert "disk template plain has no such parameter" in text


async def test_scripts_of_the_os_run_on_images(master: Master) -> None:
    succeeded(await master.run(replace(image(), no_install=False)))
    succeeded(await master.run(OpInstanceReinstall(instance_name=NAME)))
    op = OpInstanceRename(
        instance_name=NAME, new_name="other.example.com", name_check=False, ip_check=False
    )
    succeeded(await master.run(op))
    acts = master.rpc.acts()
    assert [acts.count(one) for one in ("os_create", "os_rename")] == [2, 1]


@pytest.mark.requirement("G12")
async def test_snapshot_of_an_image_is_taken_and_rolled_back(master: Master) -> None:
    node = master.world.node(1)
    assert isinstance(node, ExportNode)
    node.has_snapshots = True
    succeeded(await master.run(image("file")))
    succeeded(await master.run(OpInstanceSnapshotCreate(instance_name=NAME, snapshot="s1")))
    succeeded(await master.run(OpInstanceSnapshotRollback(instance_name=NAME, snapshot="s1")))
    assert [one.name for one in master.instance(NAME).snapshots] == ["s1"]


def write(master: Master, text: str) -> None:
    """Let all disks have this content."""
    for node in master.world.nodes.values():
        for place in (node.local, node.shared):
            for path in place.disks:
                place.contents[path] = text


def contents(master: Master, name: str = NAME) -> list[str]:
    instance = master.instance(name)
    node = master.world.nodes[master.snapshot.nodes[instance.primary_node].name]
    place = node.local if instance.disk_template == "file" else node.shared
    return [place.contents[str(disk.logical_id[1])] for disk in instance.disks]


async def test_clone_has_images_like_its_source_or_the_requested_disks(master: Master) -> None:
    succeeded(await master.run(image("file")))
    write(master, "data")
    clone = create(CLONE, mode="clone", src_instance=NAME, disks=[], disk_template=None)
    succeeded(await master.run(replace(clone, start=False, pnode=TWO)))
    assert contents(master, CLONE) == ["data"]
    assert formats(master, CLONE) == ["qcow2"]
    raw = replace(clone, instance_name="web3.example.com", disk_template="sharedfile", start=False)
    succeeded(await master.run(raw))
    assert formats(master, "web3.example.com") == ["raw"]


async def test_running_guest_on_an_image_is_cloned(master: Master) -> None:
    succeeded(await master.run(image("file")))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    write(master, "data")
    clone = create(CLONE, mode="clone", src_instance=NAME, disks=[], disk_template=None)
    succeeded(await master.run(replace(clone, start=False)))
    assert contents(master, CLONE) == ["data"]


@pytest.mark.parametrize("runs", [False, True])
async def test_image_is_backed_up_and_restored(master: Master, *, runs: bool) -> None:
    succeeded(await master.run(image("file")))
    if runs:
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    write(master, "old")
    succeeded(await master.run(OpBackupSave(instance_name=NAME, node=TWO)))
    second = succeeded(await master.run(OpBackupSave(instance_name=NAME, node=TWO)))
    assert second["parent"]
    if runs:
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    write(master, "new")
    succeeded(await master.run(OpBackupRestore(instance_name=NAME)))
    assert contents(master) == ["old"]


async def test_image_is_exported_as_it_is(master: Master) -> None:
    succeeded(await master.run(image("file")))
    view = await master.run(OpBackupExport(instance_name=NAME, target_node=TWO))
    succeeded(view)
    assert "a disk is an image: disks are copied as they are" in str(view)
    described = parse_description(backup_node(master.world, 2).exports[NAME].config)
    assert described.data == "raw"


async def test_data_of_a_raw_disk_is_imported_to_an_image(master: Master) -> None:
    succeeded(await master.run(create(disk_template="sharedfile", start=False)))
    write(master, "data")
    point = succeeded(await master.run(OpBackupSave(instance_name=NAME, node=TWO)))["point"]
    disk = DiskRequest(size=512, params={"format": "qcow2"})
    op = create(CLONE, mode="import", src_path=NAME, disks=[disk, disk], disk_template="file")
    succeeded(await master.run(replace(op, src_backup=point, start=False)))
    assert contents(master, CLONE) == ["data", "data"]
    assert formats(master, CLONE) == ["qcow2", "qcow2"]


async def test_data_of_a_script_does_not_become_an_image(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file", start=False)))
    succeeded(await master.run(OpBackupExport(instance_name=NAME, target_node=TWO)))
    disk = DiskRequest(size=512, params={"format": "qcow2"})
    op = create(CLONE, mode="import", src_path=NAME, src_node=TWO, start=False)
    _name, (text, _code) = failed(
        await master.run(replace(op, disks=[disk, disk], disk_template="file"))
    )
    assert "cannot be imported by a script of OS tiny: its disk 0 has format=qcow2" in text
    assert "use format=raw" in text


@pytest.mark.parametrize("runs", [False, True])
async def test_instance_with_an_image_moves_while_it_is_down(master: Master, *, runs: bool) -> None:
    succeeded(await master.run(image("file")))
    if runs:
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    write(master, "data")
    view = await master.run(OpInstanceMove(instance_name=NAME, target_node=TWO))
    succeeded(view)
    assert ("has format=qcow2, so it cannot migrate while the guest runs" in str(view)) == runs
    assert contents(master) == ["data"]
    assert formats(master) == ["qcow2"]


async def test_running_instance_with_an_image_is_not_migrated_with_its_disks(
    master: Master,
) -> None:
    succeeded(await master.run(image("file")))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    _name, (text, _code) = failed(await master.run(migrate()))
    assert "has format=qcow2, so it cannot migrate while the guest runs" in text


async def test_stopped_instance_is_converted_to_images_and_back(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file", start=False)))
    write(master, "data")
    for template, form in (("file", "qcow2"), ("sharedfile", "qcow2"), ("sharedfile", "raw")):
        op = modify(disk_template=template, ext_params={"format": form})
        succeeded(await master.run(op))
        assert formats(master) == [form, form]
        assert contents(master) == ["data", "data"]
        _name, (text, _code) = failed(await master.run(op))
        assert f"has disk template {template} in " in text


async def test_running_instance_is_not_converted_to_images_or_back(master: Master) -> None:
    succeeded(await master.run(image("file")))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    _name, (text, _code) = failed(await master.run(modify(disk_template="sharedfile")))
    assert "cannot be converted while it runs: its disk 0 has format=qcow2" in text
    assert f"first run: gnt-instance shutdown {NAME}" in text
    succeeded(await master.run(create(CLONE, disk_template="file", hypervisor="kvm")))
    op = modify(CLONE, disk_template="sharedfile", ext_params={"format": "qcow2"})
    _name, (text, _code) = failed(await master.run(op))
    assert "cannot be converted to images while it runs" in text
    assert "--ext-params format=raw" in text


@pytest.mark.parametrize("runs", [False, True])
async def test_image_that_is_in_use_grows_by_its_guest_first(master: Master, *, runs: bool) -> None:
    succeeded(await master.run(image()))
    if runs:
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    before = len(master.rpc.acts())
    succeeded(await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=100)))
    assert master.instance(NAME).disks[0].size == 612
    wanted = ["hotplug_disk", "blockdev_grow"] if runs else ["blockdev_grow"]
    assert [one for one in master.rpc.acts()[before:] if one in wanted] == wanted
