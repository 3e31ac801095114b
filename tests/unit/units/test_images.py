"""Machines from elsewhere: an image becomes an instance as a whole or not at all; an export becomes an OVA."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.protocols.export_description import (
    RAW,
    ExportDescription,
    ExportedDisk,
    ExportedNic,
    format_description,
)
from ganeti.simulation.faulty_store import Crash
from tests.support.export_nodes import Export, ExportNode
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME
from tests.unit.units.test_backup import (
    CLONE,
    check_nothing_is_left,
    contents,
    export,
    node,
    with_data,
)

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

IMAGE = "/srv/ganeti/images/box.ova"


def image() -> Export:
    """An image of a machine with two interfaces and two disks, of which one is empty."""
    described = ExportDescription(
        name="web-server",
        data=RAW,
        disks=(ExportedDisk(size=128, dump="disk0.raw"), ExportedDisk(size=64)),
        nics=(ExportedNic(), ExportedNic()),
        beparams={"maxmem": "512", "minmem": "512", "vcpus": "2"},
    )
    text = format_description(described, {"maxmem": 512, "minmem": 512, "vcpus": 2})
    return Export(text, {"disk0.raw": "the disk of box"})


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(World(node_type=ExportNode))
    node(one, 2).images[IMAGE] = image()
    yield one
    await one.end()


def import_image(**fields: Any) -> OpInstanceCreate:
    given: dict[str, Any] = {
        "instance_name": CLONE,
        "mode": "import",
        "pnode": "node3.example.com",
        "src_node": "node2.example.com",
        "src_path": IMAGE,
        "src_format": "auto",
        "disk_template": "file",
        "start": False,
    }
    return OpInstanceCreate(**{**given, **fields})


def check_all_gone(master: Master) -> None:
    """Only the image itself is still on its node."""
    check_nothing_is_left(master)
    assert [node(master, number).exports for number in (1, 2, 3)] == [{}, {}, {}]


async def test_an_image_becomes_an_instance(master: Master) -> None:
    view = await master.run(import_image())
    assert succeeded(view) == ["node3.example.com"]
    made = master.instance(CLONE)
    assert (made.os, [disk.size for disk in made.disks]) == ("", [128, 64])
    assert {name: made.beparams[name] for name in ("maxmem", "minmem", "vcpus")} == {
        "maxmem": 512, "minmem": 512, "vcpus": 2,
    }  # fmt: skip
    assert len({nic.mac for nic in made.nics}) == 2
    assert contents(master, CLONE, 3)[0] == "the disk of box"
    assert f"converting {IMAGE} on node2" in said(view)
    assert "the export has no data for disk 1" in said(view)
    check_all_gone(master)


async def test_the_request_wins_over_the_image(master: Master) -> None:
    view = await master.run(
        import_image(
            disks=[DiskRequest(size=1000), DiskRequest(size=64)],
            nics=[NicRequest(ip="192.0.2.9")],
            beparams={"memory": 256},
            os_type="tiny",
            start=True,
        )
    )
    succeeded(view)
    made = master.instance(CLONE)
    assert (made.os, made.disks[0].size, made.nics[0].ip) == ("tiny", 1000, "192.0.2.9")
    assert (made.beparams["maxmem"], made.beparams["vcpus"]) == (256, 2)
    assert "renamed from web-server" in said(view)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"src_path": "/etc/shadow"}, "is not below a directory"),
        ({"src_path": "box.ova"}, "absolute path"),
        ({"src_path": "/srv/ganeti/images/../../../etc/shadow"}, "absolute path"),
        ({"src_path": None}, "absolute path"),
        ({"src_node": None}, "name the node"),
        ({"disks": [DiskRequest(size=128)]}, "has 2 disks"),
        ({"disks": [DiskRequest(size=127), DiskRequest(size=64)]}, "at least as many"),
        ({"mode": "create", "src_path": None, "src_node": None}, "only with mode import"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_is_made(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    master.rpc.reset()
    _, arguments = failed(await master.run(import_image(**fields)))
    assert text in arguments[0]
    assert master.rpc.acts() == []
    assert master.snapshot.instance_by_name(CLONE) is None


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("number", range(1, 14))
async def test_after_any_failed_call_nothing_is_left(
    master: Master, number: int, fault: Fault
) -> None:
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(import_image())
    await master.nothing_is_left()
    made = master.snapshot.instance_by_name(CLONE)
    assert (made is None) == (view.status.value == "error")
    check_all_gone(master)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(0, 20, 2))
async def test_a_master_that_dies_leaves_no_half_import(master: Master, number: int) -> None:
    await master.submit(import_image())
    master.store.inject(Crash(written=bool(number % 4)), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_all_gone(after)
    finally:
        await after.end()


async def test_an_image_that_changes_in_between_is_refused(master: Master) -> None:
    node(master, 2).image_changes = True
    _, (text,) = failed(await master.run(import_image()))
    assert "changed after it was checked" in text
    check_all_gone(master)


# --- OVA ---


async def test_an_export_is_packed_on_its_node(master: Master) -> None:
    await with_data(master)
    view = await master.run(export(ova=True))
    succeeded(view)
    assert node(master, 2).packed == [NAME]
    assert node(master, 1).carried == [("", "", "none")] * 2  # an OVA has images of disks
    check_nothing_is_left(master)


async def test_without_room_for_the_ova_the_export_stays(master: Master) -> None:
    uuid = await with_data(master)
    node(master, 2).pack_fails = True
    _, (text,) = failed(await master.run(export(ova=True)))
    assert "no space" in text
    assert NAME in node(master, 2).exports
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    _, arguments = failed(await master.run(export(ova=True, compress="gzip")))
    assert "not compressed" in arguments[0]
