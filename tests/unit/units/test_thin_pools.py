"""Disks in thin pools of LVM: where they go, how much is promised, and what each operation keeps."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.config.storage_units import disk_unit, with_overcommit
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.snapshots import OpInstanceSnapshotCreate, OpInstanceSnapshotRollback
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.units.cluster.disk_findings import Listing, known_places, missing_findings
from tests.support.export_nodes import ExportNode
from tests.support.units_cluster import NODES, Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "S74")]

POOL = StorageUnit(kind="lvm-thin", key="xenvg/thin")
GROUP = StorageUnit(kind="lvm-vg", key="xenvg")


@pytest.fixture
def world() -> World:
    found = World(node_type=ExportNode, enabled_disk_templates=("plain",))
    for number in (1, 2, 3):
        one = node(found, number)
        one.groups = {"xenvg": one.local}
        one.pools = {"xenvg/thin": SharedDirectory(total=2000)}
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


def pool(master: Master, number: int = 1) -> SharedDirectory:
    return node(master.world, number).pools["xenvg/thin"]


async def set_pool(master: Master, **params: Any) -> None:
    op = OpClusterSetParams(diskparams={"plain": {"thin_pool": "thin", **params}})
    succeeded(await master.run(op))


def thin(size: int = 512) -> dict[str, Any]:
    disk = DiskRequest(size=size, params={"thin_pool": "thin"})
    return {"disk_template": "plain", "disks": [disk]}


async def test_a_disk_is_in_the_pool_that_it_names_or_that_of_the_cluster(master: Master) -> None:
    succeeded(await master.run(create(**thin())))
    (disk,) = master.instance(NAME).disks
    assert disk.params == {"thin_pool": "thin", "vg": "xenvg"}
    assert disk_unit(master.snapshot.cluster, disk) == POOL
    assert list(pool(master).disks.values()) == [512]
    assert node(master.world, 1).local.disks == {}
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert pool(master).disks == {}
    await set_pool(master)
    succeeded(await master.run(create(disk_template="plain")))
    assert [one.params["thin_pool"] for one in master.instance(NAME).disks] == ["thin", "thin"]
    assert len(pool(master).disks) == 2
    thick = {"size": 64, "thin_pool": ""}
    succeeded(await master.run(modify(disks=[["add", -1, thick]])))
    assert len(node(master.world, 1).local.disks) == 1


async def test_an_existing_disk_stays_where_it_is_whatever_the_cluster_then_says(
    master: Master,
) -> None:
    succeeded(await master.run(create(disk_template="plain")))
    await set_pool(master)
    instance = master.instance(NAME)
    assert {disk_unit(master.snapshot.cluster, disk) for disk in instance.disks} == {GROUP}
    older = replace(
        instance, disks=tuple(replace(one, params={"vg": "xenvg"}) for one in instance.disks)
    )
    assert {disk_unit(master.snapshot.cluster, disk) for disk in older.disks} == {GROUP}
    spec = instance_spec(master.snapshot, older)
    assert {disk.params["thin_pool"] for disk in spec.disks} == {""}
    _name, (text, _code) = failed(
        await master.run(modify(disks=[["modify", 0, {"thin_pool": "thin"}]]))
    )
    assert "is part of a disk's location or form, and cannot change" in text


async def test_no_more_is_promised_than_the_pool_has_or_the_cluster_allows(master: Master) -> None:
    succeeded(await master.run(create(**thin(1500))))
    _name, (text, code) = failed(
        await master.run(modify(disks=[["add", -1, {"size": 600, "thin_pool": "thin"}]]))
    )
    assert code == "insufficient_resources"
    assert "500 MiB free in xenvg/thin but needs 600 MiB" in text
    _name, (text, code) = failed(
        await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=600))
    )
    assert code == "insufficient_resources"
    await set_pool(master, thin_overcommit=150)
    pool(master).total = 2000
    succeeded(await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=400)))
    space = StorageSpace(unit=POOL, total=2000, free=0, promised=2500)
    assert with_overcommit(master.snapshot.cluster, space).free == 500
    other = StorageSpace(unit=GROUP, total=2000, free=7)
    assert with_overcommit(master.snapshot.cluster, other) == other


async def test_snapshots_are_in_the_pool_and_verify_knows_everything(master: Master) -> None:
    succeeded(await master.run(create(**thin())))
    take = OpInstanceSnapshotCreate(instance_name=NAME, snapshot="s1")
    pool(master).total = 1000  # a snapshot is promised the size of its disk
    _name, (text, _code) = failed(await master.run(take))
    assert "xenvg/thin" in text
    pool(master).total = 2000
    succeeded(await master.run(take))
    roll_back = OpInstanceSnapshotRollback(instance_name=NAME, snapshot="s1", stop=True)
    succeeded(await master.run(roll_back))
    known = known_places([master.snapshot])
    assert {unit for unit, _name in known.volumes} == {POOL}
    volumes = [StoredDisk(unit=POOL, name=name, size=512) for _unit, name in known.volumes]
    instance = master.instance(NAME)
    listing = Listing({NODES[0]: volumes}, None)
    assert list(missing_findings(master.snapshot, [instance], listing)) == []
    found = list(missing_findings(master.snapshot, [instance], Listing({NODES[0]: []}, None)))
    assert len(found) == 2


async def test_a_thick_disk_becomes_a_thin_one_and_back(master: Master) -> None:
    succeeded(await master.run(create(disk_template="plain", start=False)))
    for name, in_pool in (("thin", 2), ("", 0)):
        op = modify(disk_template="plain", ext_params={"thin_pool": name})
        succeeded(await master.run(op))
        assert len(pool(master).disks) == in_pool
        assert len(node(master.world, 1).local.disks) == 2 - in_pool
    _name, (text, _code) = failed(await master.run(op))
    assert "already; name another place" in text
