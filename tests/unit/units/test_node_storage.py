"""Storage units of nodes: listed, changed, repaired; the nodes answer with their real handlers."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.model.job import Submitter, remote_source
from ganeti.model.opcodes.storage import (
    OpNodeModifyStorage,
    OpNodeQueryStorage,
    OpNodeQueryvols,
    OpRepairNodeStorage,
)
from ganeti.node import storage_units
from ganeti.rpc.calls import Handlers
from ganeti.rpc.procedures.storage_units import UnitState
from ganeti.simulation.nodes.model import ModelNode
from ganeti.storage.kind import StorageKind
from ganeti.storage.kinds import KINDS
from ganeti.storage.lvm.groups import VolumeGroups
from ganeti.storage.lvm.physical import PhysicalVolumes
from ganeti.storage.lvm.tools import Lvm
from tests.support.model_lvm import MIB, ModelLvm, ModelPhysical
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

FIELDS = ["node", "name", "size", "used", "free", "allocatable"]
WHERE = ["node1.example.com", "node2.example.com", "node3.example.com"]
ROOT = "/srv/ganeti/file-storage"


class Tapes(StorageKind):
    """A fourth kind, that only this test has: a class and a line in the registry."""

    async def units(self, paths: Paths) -> list[UnitState]:
        return [UnitState(name="tape0", size=100, used=1, free=99, problem="it is torn")]


class UnitsNode(ModelNode):
    """A model node of which the storage units are real."""

    paths = Paths()
    lvm = Lvm()

    def handlers(self) -> Handlers:
        return super().handlers() | storage_units.handlers(self.paths, self.lvm)


@pytest.fixture
def lvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelLvm:
    """The LVM that all nodes have."""
    model = ModelLvm(tmp_path / "dev")
    model.devices["/dev/sdb"] = ModelPhysical("xenvg", 128 * MIB)
    paths = Paths(tmp_path / "node")
    paths.etc.mkdir(parents=True)
    paths.below(ROOT).mkdir(parents=True)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    monkeypatch.setattr(UnitsNode, "paths", paths)
    monkeypatch.setattr(UnitsNode, "lvm", model.lvm)
    monkeypatch.setitem(KINDS, "lvm-vg", VolumeGroups(model.lvm))
    monkeypatch.setitem(KINDS, "lvm-pv", PhysicalVolumes(model.lvm))
    return model


@pytest.fixture
async def units(lvm: ModelLvm) -> AsyncIterator[Master]:
    world = World(node_type=UnitsNode, enabled_disk_templates=("plain", "sharedfile", "diskless"))
    for node in world.nodes.values():
        node.groups = {"xenvg": node.local}
    one = await Master.begin(world)
    yield one
    await one.end()


def query(kind: str | None = None, **fields: Any) -> OpNodeQueryStorage:
    return OpNodeQueryStorage(storage_type=kind, **{"output_fields": FIELDS, **fields})


def change(kind: str, name: str, **changes: Any) -> OpNodeModifyStorage:
    return OpNodeModifyStorage(node_name="node1", storage_type=kind, name=name, changes=changes)


def repair(**fields: Any) -> OpRepairNodeStorage:
    given = {"node_name": "node1", "storage_type": "lvm-vg", "name": "xenvg", **fields}
    return OpRepairNodeStorage(**given)


@pytest.mark.requirement("S1", "S8")
async def test_a_fourth_kind_is_listed_without_anything_else_being_changed(
    units: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(KINDS) >= 3
    monkeypatch.setitem(KINDS, "tape", Tapes())
    rows = succeeded(await units.run(query("tape", output_fields=["node", "type", *FIELDS[1:]])))
    assert rows == [[node, "tape", "tape0", 100, 1, 99, True] for node in WHERE]
    assert await KINDS["tape"].check(Paths(), "tape0") == "it is torn"
    assert (await units.run(change("tape", "tape0", allocatable=False))).status == "error"


@pytest.mark.requirement("S2", "S96")
async def test_every_kind_is_listed_on_every_node(units: Master) -> None:
    assert succeeded(await units.run(query())) == [
        [node, "xenvg", 384, 0, 384, True] for node in WHERE
    ]
    rows = succeeded(await units.run(query("lvm-pv", nodes=["node2"])))
    assert [row[:3] for row in rows] == [[WHERE[1], "/dev/sda", 256], [WHERE[1], "/dev/sdb", 128]]
    rows = succeeded(await units.run(query("file", nodes=["node1"], name=ROOT)))
    assert [row[:2] for row in rows] == [[WHERE[0], ROOT]]


@pytest.mark.requirement("S2")
async def test_nodes_that_fail_for_one_reason_are_one_warning_or_the_job_s_error(
    units: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = failed(await units.run(query("nosuch")))[1][0]
    assert text == (
        f"all 3 nodes: no storage of kind 'nosuch' exists; known kinds: {', '.join(KINDS)}"
    )

    torn = iter((False, True, True))

    class TornTapes(Tapes):
        async def units(self, paths: Paths) -> list[UnitState]:
            if next(torn):
                raise StorageError("the tape is torn")
            return await super().units(paths)

    monkeypatch.setitem(KINDS, "tape", TornTapes())
    view = await units.run(query("tape"))
    [row] = succeeded(view)
    others = [name for name in WHERE if name != row[0]]
    assert f"{', '.join(others)}: the tape is torn" in said(view)
    assert said(view).count("torn") == 1


@pytest.mark.requirement("S2")
async def test_node_without_lvm_has_no_groups_and_no_volumes(
    units: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(argv: Sequence[str], **_options: Any) -> Completed:
        raise CommandFailed(Completed(tuple(argv), 127, b"", b""), "no such program")

    lvm = Lvm(run=run)
    monkeypatch.setattr(UnitsNode, "lvm", lvm)
    monkeypatch.setitem(KINDS, "lvm-vg", VolumeGroups(lvm))
    monkeypatch.setitem(KINDS, "lvm-pv", PhysicalVolumes(lvm))
    for kind in ("lvm-vg", "lvm-pv"):
        view = await units.run(query(kind))
        assert (succeeded(view), said(view)) == ([], "")


async def test_default_kind_is_that_of_the_first_template_with_storage_on_nodes(
    units: Master,
) -> None:
    assert {row[1] for row in succeeded(await units.run(query()))} == {"xenvg"}
    cluster = units.config.snapshot.cluster
    templates = ("diskless", "file", "plain")
    await units.change(lambda draft: draft.put(replace(cluster, enabled_disk_templates=templates)))
    assert {row[1] for row in succeeded(await units.run(query()))} == {ROOT}


async def test_node_that_is_offline_is_not_asked(units: Master) -> None:
    await units.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    rows = succeeded(await units.run(query()))
    assert [row[0] for row in rows] == [WHERE[0], WHERE[2]]
    assert "offline" in failed(await units.run(query(nodes=["node2"])))[1][0]


@pytest.mark.requirement("S4", "S96")
async def test_a_device_is_closed_to_new_volumes_and_opened_again(
    units: Master, lvm: ModelLvm
) -> None:
    for wanted in (False, True):
        succeeded(await units.run(change("lvm-pv", "/dev/sdb", allocatable=wanted)))
        rows = succeeded(await units.run(query("lvm-pv", nodes=["node1"], name="/dev/sdb")))
        assert rows[0][-1] is wanted
        assert lvm.devices["/dev/sdb"].allocatable is wanted


@pytest.mark.requirement("S5", "A41")
async def test_a_directory_is_made_listed_and_deleted(units: Master) -> None:
    for _ in range(2):
        succeeded(await units.run(change("file", f"{ROOT}/fast", present=True)))
    names = [row[1] for row in succeeded(await units.run(query("file", nodes=["node1"])))]
    assert names == [ROOT, f"{ROOT}/fast"]
    (UnitsNode.paths.below(ROOT) / "fast" / "d0").touch()
    text = failed(await units.run(change("file", f"{ROOT}/fast", present=False)))[1][0]
    assert "remove its content first" in text
    (UnitsNode.paths.below(ROOT) / "fast" / "d0").unlink()
    for _ in range(2):
        succeeded(await units.run(change("file", f"{ROOT}/fast", present=False)))
    names = [row[1] for row in succeeded(await units.run(query("file", nodes=["node1"])))]
    assert names == [ROOT]
    for path in ("/srv/other", "/etc/x", ROOT, f"{ROOT}/../x"):
        text = failed(await units.run(change("file", path, present=True)))[1][0]
        assert "not below" in text or "itself an allowed directory" in text or ".." in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "nothing to change: pass"),
        ({"allocatable": "no"}, "changes.allocatable: must be true or false"),
        ({"size": 3}, "changes.size: nothing to change"),
    ],
)
async def test_changes_that_mean_nothing_are_refused(
    units: Master, changes: dict[str, Any], text: str
) -> None:
    assert text in failed(await units.run(change("lvm-pv", "/dev/sdb", **changes)))[1][0]


async def test_directories_are_not_made_for_remote_users(units: Master) -> None:
    made = change("file", f"{ROOT}/x", present=True)
    job_id = await units.queue.submit([made], submitter=Submitter(remote_source("eve")))
    assert "only on the master" in failed(await units.final(job_id))[1][0]


@pytest.mark.requirement("S6", "S94")
async def test_a_group_is_repaired_only_if_no_data_is_lost_by_it(
    units: Master, lvm: ModelLvm
) -> None:
    succeeded(await units.run(create(disk_template="plain")))
    node = units.world.node(1)
    lost = next(iter(node.local.disks))
    lvm.devices["/dev/sdb"].missing = True
    succeeded(await units.run(repair(node_name="node2")))
    assert lvm.acts() == ["vgreduce"]
    lvm.devices["/dev/sdb"] = ModelPhysical("xenvg", 128 * MIB, missing=True)
    del node.local.disks[lost]
    text = failed(await units.run(repair()))[1][0]
    assert f"data would be lost: {NAME}: disk 0: the copy on node1.example.com is missing" in text
    assert lvm.acts() == ["vgreduce"]
    view = await units.run(repair(ignore_consistency=True))
    succeeded(view)
    assert lvm.acts() == ["vgreduce", "vgreduce"]
    assert "data loss accepted" in said(view)
    assert "1 missing physical volumes were dropped" in said(view)


async def test_volumes_are_listed_with_their_instances(units: Master, lvm: ModelLvm) -> None:
    succeeded(await units.run(create(disk_template="plain")))
    disks = units.instance(NAME).disks
    for disk in disks:
        lvm.add("xenvg", str(disk.logical_id[1]), disk.size * MIB)
    lvm.add("xenvg", "swap", 4 * MIB, on=("/dev/sdb",))
    op = OpNodeQueryvols(output_fields=["node", "phys", "vg", "size", "instance"], nodes=["node1"])
    assert succeeded(await units.run(op)) == [
        [WHERE[0], "/dev/sda", "xenvg", disks[0].size, NAME],
        [WHERE[0], "/dev/sda", "xenvg", disks[1].size, NAME],
        [WHERE[0], "/dev/sdb", "xenvg", 4, "-"],
    ]
    assert "unknown fields x" in failed(await units.run(replace(op, output_fields=["x"])))[1][0]
