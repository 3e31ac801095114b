"""Disks that are taken from an instance, keep their data, and are given to another one."""

from typing import Any

import pytest

from ganeti.model.objects import DetachedDisk
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterVerifyGroup
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.node import OpNodeRemove
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S75")]

OTHER = "web2.example.com"


def detached(master: Master) -> list[DetachedDisk]:
    return list(master.snapshot.table(DetachedDisk).values())


async def with_detached(master: Master, **fields: Any) -> DetachedDisk:
    """An instance whose second disk, `data`, was detached."""
    disks = [DiskRequest(size=512), DiskRequest(size=256, name="data")]
    succeeded(await master.run(create(**{"disks": disks, **fields})))
    succeeded(await master.run(modify(disks=[["detach", -1, {}]], hotplug_if_possible=True)))
    (found,) = detached(master)
    return found


async def test_a_disk_goes_from_a_running_guest_to_another_one(master: Master) -> None:
    succeeded(await master.run(create(disks=[DiskRequest(size=512), DiskRequest(size=256)])))
    succeeded(await master.run(create(OTHER)))
    master.rpc.reset()
    disk = master.instance(NAME).disks[1]
    results = succeeded(await master.run(modify(disks=[["detach", {}]], hotplug=True)))
    assert ["disk/1", "detach"] in results
    assert master.rpc.acts() == ["hotplug_disk", "blockdev_shutdown"]
    (free,) = detached(master)
    assert (free.uuid, free.disk, free.last_instance, free.nodes) == (disk.uuid, disk, NAME, ())
    master.check()
    op = modify(OTHER, disks=[["attach", 0, {"uuid": disk.uuid}]], hotplug=True)
    assert ["disk/0", "attach:size=256,mode=rw"] in succeeded(await master.run(op))
    assert master.instance(OTHER).disks[0] == disk
    assert detached(master) == []
    master.check()
    master.check_guests_have_what_the_configuration_says()
    for name in (NAME, OTHER):
        succeeded(await master.run(OpInstanceRemove(instance_name=name)))
    assert master.world.disks() == set()


async def test_what_was_detached_stays_when_its_instance_is_removed(master: Master) -> None:
    disk = await with_detached(master)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert detached(master) == [disk]
    assert master.world.disks() == {str(disk.disk.logical_id[1])}
    succeeded(await master.run(create(OTHER, disks=[], disk_template="diskless", no_install=True)))
    succeeded(await master.run(modify(OTHER, disks=[["attach", -1, {"name": "data"}]])))
    assert master.instance(OTHER).disk_template == "sharedfile"
    succeeded(await master.run(modify(OTHER, disks=[["remove", -1, {}]], hotplug_if_possible=True)))
    assert master.world.disks() == set()


async def test_another_primary_node_is_recorded_for_disks_that_were_moved_by_hand(
    master: Master,
) -> None:
    succeeded(await master.run(create(disk_template="file")))
    there = modify(pnode="node2.example.com")
    _, (text, _code) = failed(await master.run(there))
    assert "still runs on node1.example.com" in text
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    _, (text, _code) = failed(await master.run(there))
    assert "disk 0 of web1.example.com is not on node2.example.com" in text
    first, second = (master.world.node(number).local.disks for number in (1, 2))
    second.update(first)
    first.clear()
    assert ["pnode", "node2.example.com"] in succeeded(await master.run(there))
    master.check()
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    master.check_guests_have_what_the_configuration_says()
    _, (text, _code) = failed(await master.run(there))
    assert "is the primary node" in text
    _, (text, _code) = failed(await master.run(modify(pnode="node1", disks=[["detach", {}]])))
    assert "cannot be combined with another primary node" in text


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("action", ["attach", "detach"])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_change_that_fails_leaves_the_disk_where_it_was_or_is_whole(
    master: Master, action: str, number: int, fault: Fault
) -> None:
    succeeded(await master.run(create(disks=[DiskRequest(size=512), DiskRequest(size=256)])))
    before = master.instance(NAME)
    uuid = before.disks[1].uuid
    if action == "attach":
        succeeded(await master.run(modify(disks=[["detach", {}]], hotplug=True)))
    master.rpc.reset()
    master.rpc.fail(number, fault)
    change = ["attach", {"uuid": uuid}] if action == "attach" else ["detach", {}]
    await master.run(modify(disks=[change], hotplug=True))
    master.rpc.forget_faults()
    await master.nothing_is_left()
    held = [disk.uuid for disk in master.instance(NAME).disks]
    assert (uuid in held) != bool(detached(master))
    master.check()
    master.check_guests_have_what_the_configuration_says()


async def test_a_disk_fits_only_where_its_nodes_and_template_are(master: Master) -> None:
    disk = await with_detached(master, disk_template="file")
    assert disk.nodes == (master.instance(NAME).primary_node,)
    elsewhere = {"pnode": "node2.example.com", "disk_template": "file"}
    succeeded(await master.run(create(OTHER, **elsewhere)))
    attach = modify(OTHER, disks=[["attach", -1, {"name": "data"}]])
    _, (text, code) = failed(await master.run(attach))
    assert ("on other nodes" in text, code) == (True, "wrong_state")
    third = "web3.example.com"
    succeeded(await master.run(create(third)))
    _, (text, code) = failed(
        await master.run(modify(third, disks=[["attach", -1, {"name": "data"}]]))
    )
    assert ("of the template file" in text, code) == (True, "wrong_state")
    view = await master.run(OpClusterVerifyGroup(group_name="default"))
    assert "disk data (file, 256 MiB, detached from web1.example.com) belongs to no" in said(view)
    assert "the file" not in said(view)


async def test_a_node_with_a_detached_disk_is_not_removed(master: Master) -> None:
    disk = await with_detached(master, disk_template="file", pnode="node2.example.com")
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    _, (text, _code) = failed(await master.run(OpNodeRemove(node_name="node2.example.com")))
    assert "still has the detached disk data" in text
    assert detached(master) == [disk]


@pytest.mark.parametrize(
    ("change", "said_"),
    [
        (["attach", -1, {"name": "nosuch"}], "no detached disk has the name 'nosuch'"),
        (["attach", -1, {}], "accepts the name or the UUID"),
        (["attach", -1, {"name": "data", "size": 4}], "accepts the name or the UUID"),
        (["detach", 7, {}], "number 7 does not exist"),
        (["detach", -1, {"name": "x"}], "a device that is detached accepts no parameters"),
    ],
)
async def test_a_wrong_request_is_refused(master: Master, change: list[Any], said_: str) -> None:
    disk = await with_detached(master)
    _, (text, _code) = failed(await master.run(modify(disks=[change])))
    assert said_ in text
    assert detached(master) == [disk]
    _, (text, _code) = failed(
        await master.run(modify(disks=[["attach", {"name": "data"}], ["detach", {}]]))
    )
    assert "is added by the same request" in text
    _, (text, _code) = failed(await master.run(modify(nics=[["detach", 0, {}]])))
    assert "must be one of add, modify, remove" in text


async def test_of_two_with_one_name_the_uuid_decides(master: Master) -> None:
    disk = await with_detached(master)
    disks = [DiskRequest(size=512), DiskRequest(size=256, name="data")]
    succeeded(await master.run(create(OTHER, disks=disks)))
    succeeded(await master.run(modify(OTHER, disks=[["detach", "data", {}]], hotplug=True)))
    _, (text, code) = failed(await master.run(modify(disks=[["attach", {"name": "data"}]])))
    assert ("2 detached disks" in text, code) == (True, "resource_not_unique")
    succeeded(await master.run(modify(disks=[["attach", {"uuid": disk.uuid}]], hotplug=True)))
    assert disk.disk in master.instance(NAME).disks
