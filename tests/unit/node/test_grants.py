"""The records of grants on a node: synced before a disk is opened, and refusing older generations."""

from pathlib import Path
from typing import Any

import pytest

from ganeti.base import files
from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Grant, NodeUuid
from ganeti.node.grants import GrantRecords, guarded
from ganeti.recovery.grants import SHARED
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_REMOVE,
    DISK_GRANTS,
    DiskArgs,
    GrantsArgs,
    OpenDiskArgs,
)
from ganeti.rpc.procedures.form import Nothing

pytestmark = pytest.mark.requirement("D1", "D2", "D8")

OWN, OTHER = NodeUuid("own"), NodeUuid("other")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "disk-grants"


def records_in(file: Path) -> GrantRecords:
    return GrantRecords(file, lambda: OWN)


def disk(generation: int, writer: NodeUuid | None = OWN, uuid: str = "d1") -> DiskSpec:
    grant = Grant(generation, frozenset({SHARED}), writer, 1)
    return DiskSpec(uuid=uuid, index=0, size=1, template="sharedfile", logical_id=(), grant=grant)


async def test_record_outlives_the_daemon(file: Path) -> None:
    await records_in(file).open([disk(5)])
    again = records_in(file)
    await again.open([disk(5)])
    with pytest.raises(StorageError, match="generation 4 is over"):
        await again.open([disk(4)])


async def test_record_is_synced_before_the_disk_is_opened(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    write = files.write_atomically

    def noticed(path: Path, data: bytes) -> None:
        write(path, data)
        events.append("synced")

    async def assemble(_args: Any, _call: Call) -> Nothing:
        events.append("opened")
        return Nothing()

    monkeypatch.setattr("ganeti.node.grants.write_atomically", noticed)
    handlers = guarded({BLOCKDEV_ASSEMBLE.name: assemble}, records_in(file))
    args = OpenDiskArgs(instance_name="i", disk=disk(1))
    await handlers[BLOCKDEV_ASSEMBLE.name](args, Call())
    assert events == ["synced", "opened"]


async def test_disk_is_not_opened_if_the_record_cannot_be_written(tmp_path: Path) -> None:
    async def assemble(_args: Any, _call: Call) -> Nothing:
        raise AssertionError("opened")

    records = records_in(tmp_path / "missing" / "disk-grants")
    handlers = guarded({BLOCKDEV_ASSEMBLE.name: assemble}, records)
    args = OpenDiskArgs(instance_name="i", disk=disk(1))
    with pytest.raises(StorageError, match="cannot write"):
        await handlers[BLOCKDEV_ASSEMBLE.name](args, Call())


@pytest.mark.parametrize("writer", [OTHER, None])
async def test_disk_of_another_writer_is_refused(file: Path, writer: NodeUuid | None) -> None:
    with pytest.raises(StorageError, match="is granted to"):
        await records_in(file).open([disk(1, writer)])
    assert not file.exists()


async def test_closed_generation_is_over(file: Path) -> None:
    records = records_in(file)
    await records.open([disk(5)])
    await records.close([disk(5)])
    with pytest.raises(StorageError, match="generation 5 is over"):
        await records.open([disk(5)])
    await records.open([disk(6)])


async def test_target_of_a_failed_migration_accepts_the_next_one(file: Path) -> None:
    records = records_in(file)
    await records.accept([disk(5, OTHER)])
    await records.close([disk(5, OTHER)])
    await records.accept([disk(5, OTHER)])
    await records.open([disk(6)])
    with pytest.raises(StorageError, match="generation 5 is over"):
        await records.accept([disk(5, OTHER)])


@pytest.mark.requirement("D9")
async def test_returning_node_learns_what_it_missed(file: Path) -> None:
    records = records_in(file)
    await records.open([disk(3), disk(3, uuid="kept"), disk(3, uuid="removed")])
    found = {"d1": disk(5, OTHER), "kept": disk(3, uuid="kept"), "new": disk(2, OTHER, "new")}
    known = {uuid: one.grant for uuid, one in found.items() if one.grant}
    handlers = guarded({}, records)
    await handlers[DISK_GRANTS.name](GrantsArgs(grants=known), Call())
    for late in (disk(3), disk(4), disk(1, uuid="new")):
        with pytest.raises(StorageError, match="is over"):
            await records.open([late])
    await records.open([disk(3, uuid="kept")])
    await records.open([disk(1, uuid="removed")])


async def test_removed_disk_is_forgotten(file: Path) -> None:
    async def remove(_args: Any, _call: Call) -> Nothing:
        return Nothing()

    records = records_in(file)
    await records.open([disk(3)])
    handlers = guarded({BLOCKDEV_REMOVE.name: remove}, records)
    await handlers[BLOCKDEV_REMOVE.name](DiskArgs(instance_name="i", disk=disk(3)), Call())
    await records.open([disk(1)])


async def test_disk_without_a_grant_has_no_record(file: Path) -> None:
    plain = DiskSpec(uuid="d1", index=0, size=1, template="sharedfile", logical_id=())
    await records_in(file).open([plain])
    assert not file.exists()
