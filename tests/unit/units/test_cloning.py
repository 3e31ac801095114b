"""Clones of instances: the data of one moment under a new identity, as a whole or not at all."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.model.names import AdminState
from ganeti.model.objects import Instance
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceReboot, OpInstanceStartup
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.simulation.faulty_store import Crash
from tests.support.backup_nodes import backup_node, backup_world
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

CLONE = "web2.example.com"


@pytest.fixture
def world() -> World:
    return backup_world("plain", "file", "sharedfile", "drbd", "diskless")


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def clone(**fields: Any) -> OpInstanceCreate:
    given: dict[str, Any] = {
        "instance_name": CLONE,
        "mode": "clone",
        "src_instance": NAME,
        "start": False,
    }
    return OpInstanceCreate(**{**given, **fields})


async def with_data(master: Master, **fields: Any) -> Instance:
    given = {"disk_template": "file", "start": False, **fields}
    succeeded(await master.run(create(**given)))
    local = backup_node(master.world, 1).local
    for path in local.disks:
        local.contents[path] = f"data of {path}"
    master.rpc.reset()
    return master.instance(NAME)


def contents(master: Master, name: str, number: int) -> list[str]:
    """What is on the disks in files of an instance, on one node."""
    local = backup_node(master.world, number).local
    return [local.contents.get(str(d.logical_id[1]), "") for d in master.instance(name).disks]


def check_nothing_is_left(master: Master) -> None:
    master.check()
    for number in (1, 2, 3):
        one = backup_node(master.world, number)
        assert (one.keys, one.receiving, one.moments) == (set(), {}, {})
        assert one.violations == []
    for uuid in backup_node(master.world, 1).bitmaps:
        assert backup_node(master.world, 1).bitmaps[uuid] == set()


@pytest.mark.parametrize("target", ["node1.example.com", "node3.example.com"])
async def test_clone_of_a_guest_that_is_down_has_its_data(master: Master, target: str) -> None:
    source = await with_data(master, tags=["blue"], osparams={"ns1": "100%"})
    view = await master.run(clone(pnode=target))
    assert succeeded(view) == [target]
    number = int(target[4])
    assert contents(master, CLONE, number) == contents(master, NAME, 1)
    made = master.instance(CLONE)
    assert (made.os, made.tags, made.osparams) == (source.os, source.tags, source.osparams)
    assert made.beparams == source.beparams
    assert made.disk_template == source.disk_template
    assert "renamed from web1.example.com" in said(view)
    assert master.instance(NAME) == source
    check_nothing_is_left(master)


async def test_clone_has_an_identity_of_its_own(master: Master) -> None:
    source = await with_data(master, nics=[NicRequest(ip="192.0.2.9", link="br7"), NicRequest()])
    view = await master.run(clone())
    succeeded(view)
    made = master.instance(CLONE)
    assert made.uuid != source.uuid
    assert {disk.uuid for disk in made.disks}.isdisjoint(disk.uuid for disk in source.disks)
    assert {nic.mac for nic in made.nics}.isdisjoint(nic.mac for nic in source.nics)
    assert {nic.uuid for nic in made.nics}.isdisjoint(nic.uuid for nic in source.nics)
    assert [nic.ip for nic in made.nics] == [None, None]
    assert made.nics[0].nicparams == source.nics[0].nicparams
    assert "192.0.2.9 belongs to web1.example.com" in said(view)
    assert made.primary_node == source.primary_node, "without an allocator it is beside its source"


async def test_running_guest_is_cloned_at_one_moment(master: Master) -> None:
    source = await with_data(master, start=True)
    view = await master.run(clone(pnode="node2.example.com", start=True))
    succeeded(view)
    assert contents(master, CLONE, 2) == contents(master, NAME, 1)
    assert "all at the same moment" in said(view)
    assert master.world.where(source.uuid) == {"node1.example.com": "running"}
    assert master.world.where(master.instance(CLONE).uuid) == {"node2.example.com": "running"}
    check_nothing_is_left(master)


async def test_request_wins_over_the_source(master: Master) -> None:
    await with_data(master)
    disks = [DiskRequest(size=600), DiskRequest(size=256), DiskRequest(size=64)]
    view = await master.run(
        clone(
            disk_template="sharedfile",
            disks=disks,
            nics=[NicRequest(link="br9")],
            beparams={"memory": 64},
            tags=["red"],
        )
    )
    succeeded(view)
    made = master.instance(CLONE)
    assert [disk.size for disk in made.disks] == [600, 256, 64]
    assert (made.disk_template, made.tags) == ("sharedfile", ("red",))
    assert (made.beparams["maxmem"], made.nics[0].nicparams["link"]) == (64, "br9")
    shared = master.world.shared.contents
    found = [shared.get(str(disk.logical_id[1]), "") for disk in made.disks]
    assert found == [*contents(master, NAME, 1), ""]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"src_instance": None}, "name the instance to clone"),
        ({"src_instance": "absent.example.com"}, "absent.example.com"),
        ({"mode": "import"}, "only with mode clone"),
        ({"instance_name": NAME}, "exists already"),
        ({"disks": [DiskRequest(size=512)]}, "has 2 disks"),
        ({"disks": [DiskRequest(size=511), DiskRequest(size=256)]}, "at least as many"),
        ({"no_install": True}, "never runs the OS create script"),
        ({"src_path": "x"}, "only with mode import"),
        ({"disk_template": "drbd"}, "name a node"),
    ],
)
async def test_wrong_request_is_refused_before_anything_is_made(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    await with_data(master)
    _, arguments = failed(await master.run(clone(**fields)))
    assert text in arguments[0]
    assert master.rpc.acts() == []
    assert master.snapshot.instance_by_name(CLONE) is None


async def test_several_clones_name_their_nodes(master: Master) -> None:
    """One allocator could not place them: their sizes are those of their sources."""
    await with_data(master)
    _, arguments = failed(await master.run(OpInstanceMultiAlloc(instances=[clone()])))
    assert "must name the node of the clone" in arguments[0]
    given = [
        clone(pnode=f"node{number}.example.com", instance_name=f"c{number}.example.com")
        for number in (2, 3)
    ]
    succeeded(await master.run(OpInstanceMultiAlloc(instances=given)))
    await master.idle()
    for number in (2, 3):
        assert contents(master, f"c{number}.example.com", number) == contents(master, NAME, 1)


async def test_source_that_cannot_be_read_is_refused(master: Master) -> None:
    disks = [DiskRequest(size=64), DiskRequest(size=64, mode="ro")]
    await with_data(master, disks=disks, start=True)
    _, (text, code) = failed(await master.run(clone()))
    assert code == "wrong_state"
    assert "disk 1 is read-only" in text
    assert f"gnt-instance shutdown {NAME}" in text
    succeeded(await master.run(create("web5.example.com", disk_template="diskless", disks=[])))
    _, (text, code) = failed(await master.run(clone(src_instance="web5.example.com")))
    assert "has no disks to clone" in text


async def test_source_keeps_its_state_and_can_be_cloned_again(master: Master) -> None:
    source = await with_data(master)
    for name in ("web2.example.com", "web3.example.com"):
        succeeded(await master.run(clone(instance_name=name)))
    assert master.instance(NAME) == source
    assert source.admin_state is AdminState.DOWN
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("number", range(1, 16))
async def test_after_any_failed_call_nothing_is_left(
    master: Master, number: int, fault: Fault, *, runs: bool
) -> None:
    source = await with_data(master, start=runs)
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(clone(pnode="node3.example.com"))
    await master.nothing_is_left()
    made = master.snapshot.instance_by_name(CLONE)
    assert (made is None) == (view.status.value == "error")
    if made is not None:
        assert contents(master, CLONE, 3) == contents(master, NAME, 1)
    assert bool(master.world.where(source.uuid)) == runs
    check_nothing_is_left(master)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("number", range(0, 24, 2))
async def test_master_that_dies_leaves_no_half_clone(
    master: Master, number: int, *, runs: bool
) -> None:
    source = await with_data(master, start=runs)
    await master.submit(clone(pnode="node3.example.com"))
    master.store.inject(Crash(written=bool(number % 4)), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        made = after.snapshot.instance_by_name(CLONE)
        if made is not None:
            assert contents(after, CLONE, 3) == contents(after, NAME, 1)
        assert bool(after.world.where(source.uuid)) == runs
        check_nothing_is_left(after)
    finally:
        await after.end()


async def test_clone_of_an_instance_in_a_network_gets_another_address(master: Master) -> None:
    from ganeti.model.opcodes.network import OpNetworkAdd, OpNetworkConnect

    succeeded(await master.run(OpNetworkAdd(network_name="net1", network="198.51.100.0/28")))
    connect = OpNetworkConnect(
        network_name="net1", group_name="default", network_mode="bridged", network_link="br0"
    )
    succeeded(await master.run(connect))
    source = await with_data(master, nics=[NicRequest(network="net1", ip="pool")])
    succeeded(await master.run(clone()))
    made = master.instance(CLONE)
    assert made.nics[0].network == source.nics[0].network
    assert made.nics[0].ip not in (None, source.nics[0].ip)
    succeeded(await master.run(modify(CLONE, nics=[["modify", 0, {"ip": "none"}]])))


# --- templates ---


async def test_template_cannot_start_and_is_cloned(master: Master) -> None:
    await with_data(master)
    view = await master.run(modify(template=True))
    assert ["template", True] in succeeded(view)
    assert master.instance(NAME).template
    for op in (OpInstanceStartup(instance_name=NAME), OpInstanceReboot(instance_name=NAME)):
        _, arguments = failed(await master.run(op))
        assert (
            f"it is a template, which is only cloned; run: gnt-instance clone {NAME}"
            in arguments[0]
        )
    succeeded(await master.run(clone(start=True)))
    made = master.instance(CLONE)
    assert (made.template, made.admin_state) == (False, AdminState.UP)
    assert master.instance(NAME).admin_state is AdminState.DOWN
    succeeded(await master.run(modify(template=False)))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))


async def test_instance_that_runs_or_should_run_becomes_no_template(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file")))
    _, arguments = failed(await master.run(modify(template=True)))
    assert "cannot be a template; first run: gnt-instance shutdown" in arguments[0]
    assert not master.instance(NAME).template
