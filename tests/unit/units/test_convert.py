"""Keeping the disks of an instance in another way, with failures at every step."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.model.opcodes.instance import OpInstanceStartup
from ganeti.simulation.faulty_store import Crash
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "G12", "F24", "F26")]

CALLS = 16
"""Two disks are made, four opened, two copied (two calls each), four closed, two removed."""
COMMITS = 10


def new_world() -> World:
    templates = ("sharedfile", "file", "plain", "blockdev", "diskless")
    world = World(enabled_disk_templates=templates)
    for number in (1, 2, 3):
        world.node(number).groups = {"xenvg": world.node(number).local}
    return world


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(new_world())
    yield one
    await one.end()


def to(template: str, **fields: Any) -> Any:
    return modify(disk_template=template, **fields)


async def made(master: Master, template: str = "file") -> None:
    succeeded(await master.run(create(disk_template=template, start=False)))
    for place in (master.world.node(1).local, master.world.shared):
        for number, path in enumerate(sorted(place.disks)):
            place.contents[path] = f"data {number}"
    master.rpc.reset()


def check(master: Master, template: str) -> None:
    """The disks are there with their data, in the way that the configuration says, and nothing else."""
    master.check_nothing_is_held()
    instance = master.instance(NAME)
    assert instance.disk_template == template
    place = master.world.shared if template == "sharedfile" else master.world.node(1).local
    other = master.world.node(1).local if template == "sharedfile" else master.world.shared
    names = [str(disk.logical_id[1]) for disk in instance.disks]
    assert sorted(place.disks) == sorted(names)
    assert other.disks == {}
    assert sorted(place.contents[name] for name in names) == ["data 0", "data 1"]
    assert [disk.size for disk in instance.disks] == [512, 256]


@pytest.mark.parametrize(
    ("before", "after"),
    [("file", "plain"), ("plain", "file"), ("plain", "sharedfile"), ("sharedfile", "plain")],
)
async def test_the_data_is_the_same_and_nothing_of_the_old_disks_is_left(
    master: Master, before: str, after: str
) -> None:
    await made(master, before)
    assert succeeded(await master.run(to(after))) == [["disk_template", after]]
    check(master, after)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert len(master.world.node(1).guests) == 1


async def test_node_writes_zeros_unless_the_new_disk_reads_as_zeros(master: Master) -> None:
    await made(master)
    await master.change(lambda draft: draft.put(_unwiped(draft.cluster)))
    succeeded(await master.run(to("plain")))
    copied = [call.args for call in master.rpc.calls if call.procedure == "stream_copy"]
    assert [(one.target.template, one.target.wipe) for one in copied] == [("plain", False)] * 2


@pytest.mark.requirement("G28")
async def test_node_of_the_version_before_copies_to_itself(master: Master) -> None:
    await made(master)
    for name in ("stream_copy", "stream_within"):
        del master.rpc.nodes["node1.example.com"][name]
    succeeded(await master.run(to("plain")))
    check(master, "plain")
    assert [one for one in master.rpc.acts() if one.startswith("stream_se")] == ["stream_send"] * 2
    assert not master.world.node(1).certificates


def _unwiped(cluster: Any) -> Any:
    from msgspec.structs import replace

    return replace(cluster, prealloc_wipe_disks=False)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, CALLS + 1))
async def test_a_conversion_that_fails_leaves_everything_as_it_was(
    master: Master, number: int, fault: Fault
) -> None:
    await made(master)
    master.rpc.fail(number, fault)
    view = await master.run(to("plain"))
    await master.nothing_is_left()
    check(master, master.instance(NAME).disk_template)
    if master.instance(NAME).disk_template == "file":
        failed(view)


@pytest.mark.sampled(5)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_the_next_master_ends_or_undoes_it(number: int, written: bool) -> None:
    world = new_world()
    master = await Master.begin(world)
    await made(master)
    await master.submit(to("plain"))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        check(after, after.instance(NAME).disk_template)
    finally:
        await after.end()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"disk_template": "file"}, "has disk template file in /local/web1.example.com already"),
        ({"disk_template": "diskless"}, "cannot become those of diskless"),
        ({"disk_template": "blockdev"}, "cannot become those of blockdev"),
        ({"disk_template": "nosuch"}, "'nosuch' is not enabled"),
        ({"disk_template": "plain", "remote_node": "node2"}, "has no secondary node"),
        ({"disk_template": "plain", "beparams": {"vcpus": 2}}, "beparams: cannot be changed"),
        ({"disk_template": "plain", "iallocator": "hail"}, "name the secondary node"),
        ({"disk_template": "plain", "ext_params": {"vg": "nosuch"}}, "no storage lvm-vg nosuch"),
        ({"disk_template": "plain", "ext_params": {"x": "y"}}, "no such parameter"),
        ({"disk_template": "plain", "file_storage_dir": "x"}, "has no files"),
        ({"remote_node": "node2"}, "requires another disk template"),
        ({"ext_params": {"vg": "x"}}, "requires another disk template"),
    ],
)
async def test_what_cannot_be_converted_is_refused_before_anything_is_done(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    await made(master)
    assert text in failed(await master.run(modify(**fields)))[1][0]
    assert master.rpc.acts() == []


async def test_a_running_instance_is_not_converted(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file")))
    assert "first run: gnt-instance shutdown" in failed(await master.run(to("plain")))[1][0]
