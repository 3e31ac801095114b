"""Recording the sizes that disks really have."""

import pytest

from ganeti.model.opcodes.storage import OpClusterRepairDiskSizes
from tests.support.units_cluster import Master, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


async def test_what_differs_is_recorded_and_no_disk_is_changed(master: Master) -> None:
    succeeded(await master.run(create()))
    succeeded(await master.run(create("web2.example.com")))
    assert succeeded(await master.run(OpClusterRepairDiskSizes())) == []
    place = master.world.shared
    first = str(master.instance(NAME).disks[0].logical_id[1])
    place.disks[first] = 600
    serial = master.instance("web2.example.com").serial_no
    master.rpc.reset()
    assert succeeded(await master.run(OpClusterRepairDiskSizes())) == [[NAME, 0, "size", 600]]
    assert master.rpc.acts() == []
    assert [disk.size for disk in master.instance(NAME).disks] == [600, 256]
    assert master.instance("web2.example.com").serial_no == serial
    assert succeeded(await master.run(OpClusterRepairDiskSizes(instances=["web2"]))) == []


async def test_a_disk_that_cannot_be_looked_at_is_left_out(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    master.world.shared.disks.pop(str(master.instance(NAME).disks[0].logical_id[1]))
    view = await master.run(OpClusterRepairDiskSizes(instances=[NAME]))
    assert succeeded(view) == []
    assert "disk 0 of web1.example.com is skipped: it is missing" in said(view)
