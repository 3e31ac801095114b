"""Instances whose disks a provider's scripts keep."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ganeti.base.errors import StorageError
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.external import OpExtStorageDiagnose
from ganeti.model.opcodes.instance_system import OpInstanceRename
from ganeti.rpc.procedures.disks import DiskArgs, DiskInfo
from ganeti.rpc.procedures.external import ProviderInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import SharedDirectory
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time
OTHER = "web2.example.com"


@dataclass
class ExternalNode(ModelNode):
    """A node with a provider, whose script `remove` fails where there is no volume."""

    providers: list[ProviderInfo] = field(
        default_factory=lambda: [ProviderInfo(name="shelf", path="/srv/shelf")]
    )
    infos: dict[str, str] = field(default_factory=dict)
    """UUID of a disk -> the instance that its provider notes."""
    is_full: bool = False
    is_away: bool = False

    def _place(self, disk: Any) -> SharedDirectory:
        return self.shared

    def on_ext_providers(self, args: Nothing) -> list[ProviderInfo]:
        return self.providers

    def on_blockdev_create(self, args: DiskArgs) -> DiskInfo:
        if self.is_full:
            raise StorageError("create: exit status 1: no space left")
        return super().on_blockdev_create(args)

    def on_blockdev_remove(self, args: DiskArgs) -> Nothing:
        is_missing = (
            args.disk.template == "ext" and self._place(args.disk).size_of(args.disk) is None
        )
        if self.is_away or is_missing:
            raise StorageError("remove: exit status 1: no such volume")
        return super().on_blockdev_remove(args)

    def on_blockdev_info(self, args: DiskArgs) -> DiskInfo:
        return DiskInfo(exists=False) if self.is_away else super().on_blockdev_info(args)

    def on_blockdev_setinfo(self, args: DiskArgs) -> Nothing:
        self.infos[args.disk.uuid] = args.instance_name
        return Nothing()


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    world = World(node_type=ExternalNode, enabled_disk_templates=("ext", "diskless"))
    one = await Master.begin(world)
    yield one
    await one.end()


def node(master: Master, number: int = 1) -> ExternalNode:
    found = master.world.node(number)
    assert isinstance(found, ExternalNode)
    return found


def provided(master: Master, number: int) -> list[ProviderInfo]:
    return node(master, number).providers


def external(name: str = NAME, **fields: Any) -> Any:
    """An instance with one disk of the provider `shelf`, not installed and not started."""
    given: dict[str, Any] = {
        "disk_template": "ext",
        "disks": [DiskRequest(size=512, params={"provider": "shelf"})],
        "start": False,
        "no_install": True,
        "os_type": None,
    }
    return create(name, **{**given, **fields})


async def test_a_disk_of_a_provider_has_its_parameters(master: Master) -> None:
    disks = [DiskRequest(size=512, params={"provider": "shelf", "pool_name": "fast"})]
    succeeded(await master.run(external(disks=disks)))
    (disk,) = master.instance(NAME).disks
    assert disk.logical_id[0] == "shelf"
    assert disk.params == {"provider": "shelf", "pool_name": "fast"}
    for params in ({}, {"provider": "../x"}, {"provider": "a", "BAD": "1"}):
        wrong = create(
            "b.example.com", disk_template="ext", disks=[DiskRequest(size=512, params=params)]
        )
        assert failed(await master.run(wrong))[1][1] == "wrong_input"


async def test_providers_are_compared_across_nodes(master: Master) -> None:
    good = ProviderInfo(name="shelf", path="/srv/shelf", parameters=[("pool", "Where")])
    for number in (1, 3):
        provided(master, number)[:] = [good]
    bad = ProviderInfo(name="shelf", path="/usr/shelf", problem="script grow is missing")
    provided(master, 2)[:] = [bad]
    fields = ["name", "node_status", "nodegroup_status", "parameters"]
    [row] = succeeded(await master.run(OpExtStorageDiagnose(output_fields=fields)))
    assert row[0] == "shelf"
    assert row[1]["node2.example.com"] == [["/usr/shelf", False, "script grow is missing", []]]
    assert list(row[2].values()) == [False]
    assert row[3] == [["pool", "Where"]]
    wrong = OpExtStorageDiagnose(output_fields=["x"])
    assert "unknown fields x" in failed(await master.run(wrong))[1][0]


@pytest.mark.requirement("G11")
async def test_a_volume_that_never_came_to_be_is_not_removed_for_ever(master: Master) -> None:
    node(master).is_full = True
    assert "no space left" in failed(await master.run(external()))[1][0]
    assert master.queue.pending_undo() == []
    master.check_nothing_is_held()


@pytest.mark.requirement("G11")
async def test_a_volume_that_was_made_is_removed_until_its_provider_does_it(master: Master) -> None:
    one = node(master)
    original = one.on_os_create

    def away(args: Any) -> Any:
        one.is_away = True
        raise StorageError("attach: exit status 1")

    one.__dict__["on_os_create"] = away
    failed(await master.run(external(no_install=False, os_type="tiny")))
    (left,) = master.queue.pending_undo()
    assert "remove disk" in left.what
    one.__dict__["on_os_create"] = original
    one.is_away = False
    await master.nothing_is_left()
    assert master.world.disks() == set()


async def test_a_node_without_the_provider_is_named_before_anything_is_made(master: Master) -> None:
    provided(master, 1).clear()
    text = failed(await master.run(external()))[1][0]
    assert "provider shelf of external storage does not exist on node1.example.com" in text
    provided(master, 1)[:] = [
        ProviderInfo(name="shelf", path="/x", problem="script grow is missing")
    ]
    text = failed(await master.run(external()))[1][0]
    assert "cannot be used: script grow is missing" in text
    assert master.rpc.acts() == []


async def test_the_provider_is_notified_of_the_instance_that_has_the_disk(master: Master) -> None:
    succeeded(await master.run(external()))
    (disk,) = master.instance(NAME).disks
    infos = node(master).infos
    succeeded(await master.run(OpInstanceRename(instance_name=NAME, new_name=OTHER)))
    assert infos == {disk.uuid: OTHER}
    succeeded(await master.run(modify(OTHER, disks=[["detach", -1, {}]])))
    succeeded(await master.run(external(NAME, disks=[], disk_template="diskless")))
    attach = modify(NAME, disks=[["attach", -1, {"uuid": disk.uuid}]])
    succeeded(await master.run(attach))
    assert infos == {disk.uuid: NAME}


async def test_an_instance_is_renamed_though_its_provider_cannot_be_notified(
    master: Master,
) -> None:
    succeeded(await master.run(external()))
    master.rpc.fail(1, Fault.REFUSED)
    view = await master.run(OpInstanceRename(instance_name=NAME, new_name=OTHER))
    assert succeeded(view) == OTHER
    assert "still records another instance for disk 0" in said(view)


MOVES_CALLS = 6


@pytest.fixture
async def mover() -> AsyncIterator[Master]:
    """A cluster with a running instance whose disk is a file, of the hypervisor that can move disks."""
    world = World(node_type=ExternalNode, enabled_disk_templates=("ext", "file", "diskless"))
    one = await Master.begin(world)
    node(one).providers.append(ProviderInfo(name="box", path="/srv/box"))
    disks = [DiskRequest(size=64)]
    succeeded(await one.run(create(disk_template="file", disks=disks, hypervisor="kvm")))
    one.rpc.reset()
    yield one
    await one.end()


def check_moved(master: Master, template: str) -> None:
    """The guest runs with the only disk that exists, which is the configured one."""
    instance, guests = master.instance(NAME), node(master).guests
    [disk], [used] = instance.disks, guests[instance.uuid].spec.disks
    assert (instance.disk_template, instance.switching) == (template, None)
    assert used.logical_id == disk.logical_id
    assert list(master.world.shared.disks) == [disk.logical_id[1]]
    master.check_nothing_is_held()


@pytest.mark.requirement("G1", "G11")
async def test_a_running_guest_moves_to_a_provider_and_back(mover: Master) -> None:
    to_shelf = modify(disk_template="ext", ext_params={"provider": "shelf"})
    succeeded(await mover.run(to_shelf))
    check_moved(mover, "ext")
    assert mover.instance(NAME).disks[0].logical_id[0] == "shelf"
    to_box = modify(disk_template="ext", ext_params={"provider": "box"})
    _, (text, _code) = failed(await mover.run(to_box))
    assert "do not move between providers while the guest runs" in text
    succeeded(await mover.run(modify(disk_template="file")))
    check_moved(mover, "file")


@pytest.mark.requirement("G11", "F24")
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("number", range(1, MOVES_CALLS))
async def test_a_failed_move_to_a_provider_leaves_one_disk(
    mover: Master, number: int, fault: Fault
) -> None:
    mover.rpc.fail(number, fault)
    await mover.run(modify(disk_template="ext", ext_params={"provider": "shelf"}))
    await mover.nothing_is_left()
    check_moved(mover, mover.instance(NAME).disk_template)


async def test_a_move_to_a_missing_provider_is_refused_before_anything_is_made(
    mover: Master,
) -> None:
    view = await mover.run(modify(disk_template="ext", ext_params={"provider": "none"}))
    assert "provider none of external storage does not exist" in str(failed(view)[1][0])
    check_moved(mover, "file")
