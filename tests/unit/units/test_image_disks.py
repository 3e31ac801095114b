"""Disks with format=qcow2: each records its format, and operations that need the bytes of a disk refuse it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.model.opcodes.backup import OpBackupExport
from ganeti.model.opcodes.base import DiskRequest, OpCode
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceStartup
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.model.opcodes.points import OpBackupRestore, OpBackupSave
from ganeti.model.opcodes.snapshots import OpInstanceSnapshotCreate
from tests.support.export_nodes import ExportNode
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "S74")]

TWO = "node2.example.com"


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(
        World(node_type=ExportNode, enabled_disk_templates=("file", "sharedfile", "plain"))
    )
    yield one
    await one.end()


def image(template: str = "sharedfile", **more: Any) -> Any:
    disk = DiskRequest(size=512, params={"format": "qcow2"})
    return create(disk_template=template, disks=[disk], no_install=True, start=False, **more)


def formats(master: Master) -> list[str]:
    return [disk.params["format"] for disk in master.instance(NAME).disks]


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


async def test_creation_with_an_os_or_a_clone_is_refused(master: Master) -> None:
    op = replace(image(), no_install=False)
    _name, (text, _code) = failed(await master.run(op))
    assert "its disk 0 has format=qcow2" in text
    assert "use format=raw, or --no-install" in text
    assert NAME not in {one.name for one in master.snapshot.instances.values()}


REFUSED: dict[str, tuple[OpCode, str]] = {
    "snapshot": (OpInstanceSnapshotCreate(instance_name=NAME, snapshot="s1"), "given a snapshot"),
    "conversion": (modify(disk_template="sharedfile"), "converted"),
    "clone": (
        create(
            "web2.example.com",
            mode="clone",
            src_instance=NAME,
            disks=[],
            disk_template="sharedfile",
        ),
        "cloned",
    ),
    "reinstallation": (OpInstanceReinstall(instance_name=NAME), "reinstalled"),
    "export": (OpBackupExport(instance_name=NAME, target_node=TWO), "exported"),
    "backup": (OpBackupSave(instance_name=NAME, node=TWO), "backed up"),
    "restore": (OpBackupRestore(instance_name=NAME), "restored from a backup"),
    "move": (
        OpInstanceMove(instance_name=NAME, target_node=TWO),
        "moved to another node's storage",
    ),
}
"""Operations with an instance that has an image, and the word for them in the refusal."""


@pytest.mark.parametrize("operation", REFUSED)
async def test_operation_on_the_data_is_refused_before_it_begins(
    master: Master, operation: str
) -> None:
    succeeded(await master.run(image("file")))
    before = master.snapshot.instances
    op, participle = REFUSED[operation]
    _name, (text, code) = failed(await master.run(op))
    assert code == "wrong_state"
    assert f"cannot be {participle}: its disk 0 has format=qcow2" in text
    advice = "installation medium" if operation == "reinstallation" else "add:size=SIZE,format=raw"
    assert advice in text
    assert master.snapshot.instances == before


async def test_raw_disk_is_not_converted_to_an_image(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file", start=False)))
    op = modify(disk_template="sharedfile", ext_params={"format": "qcow2"})
    _name, (text, _code) = failed(await master.run(op))
    assert "--ext-params format=raw" in text
    succeeded(await master.run(replace(op, ext_params={"format": "raw"})))
    assert formats(master) == ["raw", "raw"]


async def test_rename_does_not_run_the_script(master: Master) -> None:
    succeeded(await master.run(image()))
    op = OpInstanceRename(
        instance_name=NAME, new_name="other.example.com", name_check=False, ip_check=False
    )
    succeeded(await master.run(op))
    assert "os_rename" not in master.rpc.acts()


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
