"""Instances whose disks are made of what lies on their node already."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.base.errors import StorageError
from ganeti.model.objects import DetachedDisk
from ganeti.model.opcodes.base import DiskRequest
from ganeti.rpc.procedures.disks import AdoptDiskArgs, DiskArgs, DiskInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import SharedDirectory, path_of
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time
DEVICE = "/dev/disk/by-id/wwn-1"


class AdoptingNode(ModelNode):
    """A node whose disks are volumes and devices: what it says of adoption is the contract of the drivers."""

    def _place(self, disk: Any) -> SharedDirectory:
        return self.groups.get(str(disk.logical_id[0])) or self.shared

    def on_blockdev_adoptable(self, args: AdoptDiskArgs) -> DiskInfo:
        place = self._place(args.disk)
        for other in args.in_use:
            if self._place(other.disk) is place and path_of(other.disk) == args.source:
                raise StorageError(f"{args.source} is {other.owner}")
        if args.source not in place.disks or args.source in place.owners:
            raise StorageError(f"volume {args.source} cannot be adopted")
        return DiskInfo(exists=True, path=args.source, size=place.disks[args.source])

    def on_blockdev_adopt(self, args: AdoptDiskArgs) -> DiskInfo:
        place, name = self._place(args.disk), path_of(args.disk)
        if place.owners.get(name) != args.disk.uuid:
            self.on_blockdev_adoptable(args)
            place.disks[name] = place.disks.pop(args.source)
            place.owners[name] = args.disk.uuid
            place.contents[name] = place.contents.pop(args.source, "")
        return DiskInfo(exists=True, size=args.disk.size)

    def on_blockdev_give_back(self, args: AdoptDiskArgs) -> Nothing:
        place, name = self._place(args.disk), path_of(args.disk)
        if place.owners.get(name) == args.disk.uuid:
            del place.owners[name]
            place.disks[args.source] = place.disks.pop(name)
            place.contents[args.source] = place.contents.pop(name)
        return Nothing()

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        if args.disk.template == "blockdev":
            return Nothing()
        return super().on_blockdev_remove(args)


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    templates = ("plain", "blockdev", "ext", "file", "diskless")
    world = World(node_type=AdoptingNode, enabled_disk_templates=templates)
    for number in (1, 2, 3):
        world.node(number).groups = {"xenvg": world.node(number).local}
    world.node(1).local.disks["data1"] = 700
    world.node(1).local.contents["data1"] = "mine"
    world.shared.disks[DEVICE] = 900
    one = await Master.begin(world)
    yield one
    await one.end()


def adopting(**fields: Any) -> Any:
    disks = [DiskRequest(size=0, adopt="data1")]
    return create(**{"disk_template": "plain", "disks": disks, **fields})


def in_use(master: Master) -> dict[str, Any]:
    """Owner -> id, of what the last question about an adoption named."""
    asked = [one.args for one in master.rpc.calls if one.procedure == "blockdev_adoptable"][-1]
    assert isinstance(asked, AdoptDiskArgs)
    return {other.owner: other.disk.logical_id for other in asked.in_use}


@pytest.mark.requirement("A48", "G12")
async def test_the_node_gets_every_disk_that_it_has_or_sees_whatever_its_template(
    master: Master,
) -> None:
    ext = {"disk_template": "file", "start": False, "disks": [DiskRequest(size=64)]}
    succeeded(await master.run(create("file.example.com", **ext)))
    succeeded(await master.run(create("far.example.com", **ext, pnode="node2.example.com")))
    device = [DiskRequest(size=0, adopt=DEVICE)]
    fields = {"disk_template": "blockdev", "disks": device, "start": False}
    succeeded(await master.run(adopting(name="seen.example.com", **fields)))
    disks = [DiskRequest(size=64), DiskRequest(size=64)]
    succeeded(await master.run(create("lv.example.com", disk_template="plain", disks=disks)))
    detach = modify("lv.example.com", disks=[["detach", 1, {}]], hotplug_if_possible=True)
    succeeded(await master.run(detach))
    succeeded(await master.run(adopting()))
    (free,) = master.snapshot.table(DetachedDisk)
    assert in_use(master).keys() == {
        "disk 0 of instance file.example.com",
        "disk 0 of instance seen.example.com",
        "disk 0 of instance lv.example.com",
        f"disk {free}, which is detached",
    }


@pytest.mark.requirement("A48", "G12")
async def test_two_disks_of_one_request_are_not_made_of_the_same_volume(master: Master) -> None:
    twice = [DiskRequest(size=0, adopt="data1")] * 2
    text = failed(await master.run(adopting(disks=twice)))[1][0]
    assert "data1 is disk 0 of the same request" in text
    assert master.rpc.acts() == []


async def test_a_volume_becomes_a_disk_with_its_size_and_data(master: Master) -> None:
    succeeded(await master.run(adopting()))
    (disk,) = master.instance(NAME).disks
    local = master.world.node(1).local
    assert (disk.size, local.disks) == (700, {str(disk.logical_id[1]): 700})
    assert local.contents == {str(disk.logical_id[1]): "mine"}
    assert "os_create" not in master.rpc.acts()
    assert "blockdev_create" not in master.rpc.acts()


@pytest.mark.requirement("G11", "F24")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2])
async def test_a_creation_that_fails_gives_back_what_it_adopted(
    master: Master, number: int, fault: Fault
) -> None:
    master.rpc.fail(number, fault)
    view = await master.run(adopting(start=True))
    if master.snapshot.instance_by_name(NAME) is None:
        failed(view)
        assert master.world.node(1).local.disks == {"data1": 700}
        assert master.world.node(1).local.contents == {"data1": "mine"}
    else:
        assert list(master.world.node(1).local.disks.values()) == [700]


@pytest.mark.requirement("A48")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"disks": [DiskRequest(size=0, adopt="nosuch")]}, "cannot be adopted"),
        ({"disks": [DiskRequest(size=5, adopt="data1")]}, "has its size already"),
        ({"disks": [DiskRequest(size=0, adopt="a\nb")]}, "the name of a volume or device"),
        ({"pnode": None, "iallocator": "hail"}, "name the node of the adopted disks"),
        ({"disk_template": "blockdev"}, "below /dev/disk/"),
        ({"disk_template": "blockdev", "disks": [DiskRequest(size=5)]}, "adopt=PATH"),
        (
            {"disk_template": "ext", "disks": [DiskRequest(size=0, adopt="x")]},
            "template ext does not support adoption",
        ),
    ],
)
async def test_what_cannot_be_adopted_is_refused_before_anything_is_done(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    assert text in failed(await master.run(adopting(**fields)))[1][0]
    assert master.rpc.acts() == []


@pytest.mark.requirement("A48")
async def test_a_device_is_one_instances_only(master: Master) -> None:
    disks = [DiskRequest(size=0, adopt=DEVICE)]
    succeeded(await master.run(adopting(disk_template="blockdev", disks=disks, start=False)))
    (disk,) = master.instance(NAME).disks
    assert (disk.size, disk.logical_id) == (900, ("manual", DEVICE))
    again = adopting(name="b.example.com", disk_template="blockdev", disks=disks, start=False)
    assert failed(await master.run(again))[0] == "OpPrereqError"
