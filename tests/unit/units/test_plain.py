"""Instances on logical volumes: names, groups, space; what the nodes do is in `tests/unit/storage/lvm`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.storage_units import space_needed, storage_unit, storage_units
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.opcodes.base import DiskRequest
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.units.cluster.disk_findings import (
    Listing,
    known_places,
    missing_findings,
    unknown_disks,
)
from tests.support.units_cluster import NODES, Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time

XENVG = StorageUnit(kind="lvm-vg", key="xenvg")
FAST = StorageUnit(kind="lvm-vg", key="fast")


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    world = World(enabled_disk_templates=("plain", "diskless"))
    for number in (1, 2, 3):
        world.node(number).groups = {
            "xenvg": world.node(number).local,
            "fast": world.node(number).local,
        }
    one = await Master.begin(world)
    yield one
    await one.end()


def plain(*disks: DiskRequest, **fields: Any) -> Any:
    return create(disk_template="plain", disks=list(disks or (DiskRequest(size=512),)), **fields)


@pytest.mark.requirement("A49")
async def test_a_volume_has_a_name_of_its_own_in_the_group_of_the_cluster(master: Master) -> None:
    succeeded(await master.run(plain(DiskRequest(size=512), DiskRequest(size=64))))
    disks = master.instance(NAME).disks
    assert [disk.logical_id[0] for disk in disks] == ["xenvg", "xenvg"]
    names = [str(disk.logical_id[1]) for disk in disks]
    assert [name.partition(".")[2] for name in names] == ["disk0", "disk1"]
    assert master.world.node(1).local.disks == dict(zip(names, [512, 64], strict=True))


async def test_a_disk_may_name_another_group_and_stays_there(master: Master) -> None:
    succeeded(await master.run(plain(DiskRequest(size=512, params={"vg": "fast"}))))
    (disk,) = master.instance(NAME).disks
    assert (disk.logical_id[0], disk.params) == ("fast", {"vg": "fast", "thin_pool": ""})
    cluster = master.snapshot.cluster
    assert space_needed(cluster, [disk]) == {FAST: 512}
    assert FAST not in storage_units(cluster)
    assert storage_units(cluster, [disk])[-2:] == [XENVG, FAST]
    _name, (text, _code) = failed(await master.run(modify(disks=[["modify", 0, {"vg": "xenvg"}]])))
    assert "is part of a disk's location" in text
    succeeded(await master.run(modify(disks=[["modify", 0, {"stripe": 2}]])))
    assert master.instance(NAME).disks[0].params == {"vg": "fast", "thin_pool": "", "stripes": 2}


@pytest.mark.requirement("F24")
@pytest.mark.parametrize(
    ("disk", "text"),
    [
        (DiskRequest(size=512, params={"vg": "nosuch"}), "offers no storage lvm-vg nosuch"),
        (DiskRequest(size=512, params={"vg": "-f"}), "'-f' is not the name of a volume"),
        (DiskRequest(size=1 << 20), "MiB free in xenvg"),
        (DiskRequest(size=512, params={"stripes": 0}), "stripes: must be from 1"),
    ],
)
async def test_what_cannot_be_made_is_refused_before_anything_is(
    master: Master, disk: DiskRequest, text: str
) -> None:
    _name, (message, _code) = failed(await master.run(plain(disk, pnode="node1.example.com")))
    assert text in message
    assert master.rpc.acts() == []


async def test_without_a_group_there_are_no_volumes(master: Master) -> None:
    cluster = replace(master.snapshot.cluster, vg_name="")
    assert storage_unit(cluster, "plain") is None
    assert storage_unit(cluster, "plain", {"vg": "fast"}) == FAST


async def test_volumes_that_are_missing_or_orphaned_are_found(master: Master) -> None:
    succeeded(await master.run(plain()))
    instance = master.instance(NAME)
    node, name = instance.primary_node, str(instance.disks[0].logical_id[1])
    known = known_places([master.snapshot])

    def findings(*there: StoredDisk) -> list[str]:
        listing = Listing({node: list(there)}, None)
        found = list(missing_findings(master.snapshot, [instance], listing))
        found += unknown_disks("node1", there, known, (), ["xenvg/swap.*"])
        return [f"{one.code}: {one.text}" for one in found]

    assert node == NODES[0]
    own = StoredDisk(unit=XENVG, name=name, size=512)
    assert findings(own) == []
    missing = f"disk/0 is missing on node1.example.com: {name}"
    command = f"gnt-instance recreate-disks {NAME}"
    assert findings() == [f"EINSTANCEMISSINGDISK: {missing}; run: {command}"]
    swap = StoredDisk(unit=XENVG, name="swap1", size=1)
    lost = StoredDisk(unit=FAST, name=name, size=1)
    assert findings(own, swap, lost) == [
        f"ENODEORPHANLV: the volume fast/{name} (1 MiB) belongs to no instance"
    ]


async def test_a_group_is_named_beside_the_size_as_clients_of_ganeti_do(master: Master) -> None:
    succeeded(await master.run(plain(DiskRequest(size=512, vg="fast"))))
    assert master.instance(NAME).disks[0].logical_id[0] == "fast"
