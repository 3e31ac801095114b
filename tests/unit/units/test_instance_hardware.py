"""The port, the machine and the firmware variables of an instance."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from ganeti.config.reservations import PORTS
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.moving import OpInstanceMove
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    """With kvm in place of the fake hypervisor."""
    one = await Master.begin(world)
    await one.change(lambda draft: draft.put(replace(draft.cluster, enabled_hypervisors=("kvm",))))
    yield one
    await one.end()


@pytest.mark.requirement("G11")
async def test_every_instance_has_a_port_of_its_own_that_is_free_again_after_it(
    master: Master,
) -> None:
    for number in range(3):
        op = replace(create(start=False), instance_name=f"web{number}.example.com")
        succeeded(await master.run(op))
    ports = [one.network_port for one in master.snapshot.instances.values()]
    assert sorted(port or 0 for port in ports) == [11000, 11001, 11002]
    assert master.snapshot.index.owner("network port", "11001") is not None
    succeeded(await master.run(OpInstanceRemove(instance_name="web1.example.com")))
    assert master.snapshot.index.owner("network port", "11001") is None
    master.check()


@pytest.mark.requirement("G11")
async def test_a_creation_that_fails_gives_its_port_back(master: Master) -> None:
    master.rpc.fail(1, Fault.REFUSED)
    failed(await master.run(create()))
    assert master.config.reservations.count() == 0
    assert master.snapshot.index.owner("network port", str(PORTS.start)) is None


async def test_without_free_ports_only_an_instance_with_a_display_is_refused(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.config.reservations.PORTS", range(11000, 11001))
    succeeded(await master.run(create(start=False)))
    second = replace(create(start=False), instance_name="web2.example.com")
    view = await master.run(replace(second, hvparams={"vnc_bind_address": "127.0.0.1"}))
    name, (text, code) = failed(view)
    assert (name, code) == ("OpPrereqError", "insufficient_resources")
    assert "set vnc_bind_address to a directory" in text
    succeeded(await master.run(replace(second, hvparams={"vnc_bind_address": "/run/vnc"})))
    assert master.instance("web2.example.com").network_port is None


async def test_the_machine_that_the_node_has_today_is_kept(master: Master) -> None:
    succeeded(await master.run(replace(create(start=False), hvparams={"acpi": False})))
    assert master.instance(NAME).hvparams == {"acpi": False, "machine_version": "pc-i440fx-7.2"}


async def test_firmware_variables_go_along_with_an_instance_that_is_moved(
    master: Master, world: World
) -> None:
    op = create(start=False, disk_template="file", hvparams={"firmware": "uefi"})
    succeeded(await master.run(op))
    uuid = master.instance(NAME).uuid
    world.node(1).nvram[uuid] = b"variables"
    order = OpInstanceMove(instance_name=NAME, target_node="node2.example.com")
    succeeded(await master.run(order))
    assert (world.node(1).nvram, world.node(2).nvram) == ({}, {uuid: b"variables"})
    master.check()


@pytest.mark.requirement("G11")
async def test_a_move_that_fails_leaves_the_variables_where_they_were(
    master: Master, world: World
) -> None:
    op = create(
        start=False, disk_template="file", disks=[DiskRequest(size=64)],
        hvparams={"firmware": "uefi"},
    )  # fmt: skip
    succeeded(await master.run(op))
    uuid = master.instance(NAME).uuid
    world.node(1).nvram[uuid] = b"variables"
    master.rpc.reset()
    master.rpc.fail(8, Fault.LOST_ANSWER)  # the writing of the variables
    failed(await master.run(OpInstanceMove(instance_name=NAME, target_node="node2.example.com")))
    assert "nvram_write" in master.rpc.acts()
    assert (world.node(1).nvram, world.node(2).nvram) == ({uuid: b"variables"}, {})
    master.check()


async def test_firmware_variables_go_away_with_their_instance(master: Master, world: World) -> None:
    succeeded(await master.run(create(start=False)))
    instance = master.instance(NAME)
    node = world.node(1)
    node.nvram[instance.uuid] = b"variables"
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert node.nvram == {}
    master.check()
