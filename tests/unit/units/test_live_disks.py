"""Disks of a running guest that move to other storage of its node, with failures at every step."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.jobs.view import JobView
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterVerifyGroup
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceStartup
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.rpc.procedures.disk_moves import DiskMoveStatus
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.simulation.nodes.state import DiskMoveRecord
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.units.relocation import live_disks
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify
from tests.unit.units.test_instance_migrate import come_back, go_silent

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G1", "G5", "G11", "F23", "F24")]

ACTS = [
    "blockdev_create", "blockdev_create", "disk_move_begin", "disk_move_switch",
    "disk_move_end", "blockdev_remove", "blockdev_remove",
]  # fmt: skip
SWITCH = 4
COMMITS = 10


def new_world() -> World:
    templates = ("sharedfile", "file", "plain", "rbd", "blockdev", "diskless")
    world = World(enabled_disk_templates=templates)
    for number in (1, 2, 3):
        node = world.node(number)
        node.groups = {"xenvg": node.local, "fast": SharedDirectory()}
    return world


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(new_world())
    yield one
    await one.end()


def to(template: str, **fields: Any) -> Any:
    return modify(disk_template=template, **fields)


def text_of(view: JobView) -> str:
    """The text of a failed job's error."""
    return str(failed(view)[1][0])


def places(master: Master) -> list[SharedDirectory]:
    node = master.world.node(1)
    return [node.local, node.groups["fast"], master.world.shared]


async def made(master: Master, template: str = "file", **fields: Any) -> None:
    """A running instance of the hypervisor that can move disks, with data on its disks."""
    succeeded(await master.run(create(disk_template=template, hypervisor="kvm", **fields)))
    for place in places(master):
        for number, path in enumerate(sorted(place.disks)):
            place.contents[path] = f"data {number}"
    master.rpc.reset()


def record(master: Master) -> DiskMoveRecord | None:
    return master.world.node(1).disk_moves.get(master.instance(NAME).uuid)


def check(master: Master, template: str, group: str = "") -> None:
    """The guest runs with the disks of the configuration, which have its data; nothing else is there."""
    master.check_nothing_is_held()
    instance = master.instance(NAME)
    assert (instance.switching, instance.migrating_to) == (None, None)
    assert instance.disk_template == template
    names = sorted(str(disk.logical_id[1]) for disk in instance.disks)
    assert sorted(path for place in places(master) for path in place.disks) == names
    found = [data for place in places(master) for data in place.contents.values()]
    assert sorted(found) == ["data 0", "data 1"]
    if group:
        assert {str(disk.logical_id[0]) for disk in instance.disks} == {group}
    guests = master.world.node(1).guests
    assert [guest.state for guest in guests.values()] == ["running"]
    in_use = [str(one.logical_id[1]) for one in guests[instance.uuid].spec.disks]
    assert sorted(in_use) == names
    assert record(master) is None
    master.world.check_no_guest_runs_twice()


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ("file", "plain", {}),
        ("plain", "file", {"bandwidth": 10}),
        ("plain", "sharedfile", {}),
        ("sharedfile", "plain", {}),
        ("file", "file", {"file_storage_dir": "fast"}),
        ("plain", "plain", {"ext_params": {"vg": "fast"}}),
        ("sharedfile", "sharedfile", {"file_storage_dir": "fast"}),
        ("file", "rbd", {}),
        ("rbd", "plain", {}),
        ("plain", "rbd", {"ext_params": {"access": "userspace"}}),
        ("rbd", "rbd", {"ext_params": {"pool": "fast"}}),
    ],
)
async def test_the_guest_runs_on_with_its_data_in_another_place(
    master: Master, before: str, after: str, fields: dict[str, Any]
) -> None:
    await made(master, before)
    then = master.instance(NAME).disks
    view = await master.run(to(after, **fields))
    assert succeeded(view) == [["disk_template", after]]
    assert master.rpc.acts() == ACTS
    assert "the guest was paused for 9 ms" in said(view)
    check(master, after, fields.get("ext_params", {}).get("vg", ""))
    assert [one.uuid for one in master.instance(NAME).disks] == [one.uuid for one in then]
    [begun] = [call.args for call in master.rpc.calls if call.procedure == "disk_move_begin"]
    assert begun.bandwidth_mib_s == fields.get("bandwidth", 0)
    made_ = [call.args.disk for call in master.rpc.calls if call.procedure == "blockdev_create"]
    assert not any(disk.wipe for disk in made_)  # every byte is copied to them


async def test_a_stopped_instance_moves_to_another_volume_group(master: Master) -> None:
    await made(master, "plain", start=False)
    succeeded(await master.run(to("plain", ext_params={"vg": "fast"})))
    assert {str(disk.logical_id[0]) for disk in master.instance(NAME).disks} == {"fast"}
    assert "stream_copy" in master.rpc.acts()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_after_any_failed_call_the_guest_uses_the_configured_disks(
    master: Master, number: int, fault: Fault
) -> None:
    await made(master)
    master.rpc.fail(number, fault)
    view = await master.run(to("plain"))
    await master.nothing_is_left()
    is_moved = number > SWITCH or (number == SWITCH and fault is Fault.LOST_ANSWER)
    check(master, "plain" if is_moved else "file")
    assert (view.status is JobStatus.SUCCESS) == (number > SWITCH)
    if not is_moved:
        succeeded(await master.run(to("plain")))
        check(master, "plain")


@pytest.mark.parametrize("number", range(COMMITS))
async def test_after_a_refused_commit_the_guest_uses_the_configured_disks(
    master: Master, number: int
) -> None:
    await made(master)
    job_id = await master.submit(to("plain"))
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await master.nothing_is_left()
    check(master, master.instance(NAME).disk_template)


@pytest.mark.sampled(5)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_the_next_master_settles_it_after_any_commit(number: int, *, written: bool) -> None:
    master = await Master.begin(new_world())
    await made(master)
    await master.submit(to("plain"))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_next(master)


@pytest.mark.sampled(5)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_the_next_master_settles_it_after_any_call(number: int, *, is_done: bool) -> None:
    master = await Master.begin(new_world())
    await made(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(to("plain"))
    assert await master.is_dead_after_a_while()
    await check_next(master)


async def check_next(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check(after, after.instance(NAME).disk_template)
    finally:
        await after.end()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", [None, Fault.LOST_ANSWER, Fault.LOST_CALL])
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_a_guest_that_ends_starts_from_the_disks_with_its_last_writes(
    master: Master, number: int, fault: Fault | None
) -> None:
    await made(master)

    def end(act: int) -> None:
        if act == number:
            master.world.node(1).guests.clear()

    master.rpc.after_act = end
    if fault is not None:
        master.rpc.fail(number, fault)
    await master.run(to("plain"))
    await master.nothing_is_left()
    master.rpc.after_act = None
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    check(master, master.instance(NAME).disk_template)


async def set_offline(master: Master, number: int, *, offline: bool = True) -> None:
    """Mark a node offline, which then is not a master candidate, or online."""
    node = master.snapshot.nodes[NODES[number - 1]]
    new = replace(node, offline=offline, master_candidate=not offline)
    await master.change(lambda draft: draft.put(new))


async def silent_at_the_switch(master: Master) -> None:
    """The node does not answer from the switch on, which it has done."""
    await made(master)

    go_silent(master, 1, after_act=SWITCH)
    master.rpc.fail(SWITCH, Fault.LOST_ANSWER)
    failed(await master.run(to("plain")))


async def test_while_only_the_silent_node_knows_nothing_uses_the_disks(master: Master) -> None:
    await silent_at_the_switch(master)
    marked = master.instance(NAME)
    assert marked.switching is not None
    assert marked.disk_template == "file"
    for op in (
        OpInstanceStartup(instance_name=NAME),
        OpInstanceRemove(instance_name=NAME),
        migrate(),
    ):
        assert "only its node knows which disks have the last writes" in text_of(
            await master.run(op)
        )
    come_back(master, 1)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    await master.nothing_is_left()
    check(master, "plain")


async def test_the_disks_are_settled_by_themselves_once_the_node_answers(master: Master) -> None:
    await silent_at_the_switch(master)
    come_back(master, 1)
    await master.nothing_is_left()
    check(master, "plain")


async def test_a_guest_of_a_lost_node_continues_with_its_old_shared_disks(master: Master) -> None:
    await made(master, "sharedfile", pnode="node2.example.com")
    go_silent(master, 2, after_act=SWITCH)
    master.rpc.fail(SWITCH, Fault.LOST_ANSWER)
    elsewhere = to("sharedfile", file_storage_dir="fast")
    failed(await master.run(elsewhere))
    before = master.instance(NAME)
    assert before.switching is not None
    failover = OpInstanceFailover(instance_name=NAME, target_node="node3.example.com")
    assert "failover --ignore-consistency" in text_of(await master.run(failover))
    insists = replace(failover, ignore_consistency=True)
    assert "only its node knows" in text_of(await master.run(insists))  # it may still run
    verify = OpClusterVerifyGroup(group_name="default")
    said_ = said(await master.run(verify))
    assert "a move of its disks was interrupted, and only node2.example.com knows" in said_
    master.world.node(2).guests.clear()
    await set_offline(master, 2)
    view = await master.run(insists)
    succeeded(view)
    assert "gets its old disks (template sharedfile), and loses what its guest wrote" in said(view)
    after = master.instance(NAME)
    assert (after.switching, after.migrating_to, after.disks) == (None, None, before.disks)
    [guest] = master.world.node(3).guests.values()
    assert [disk.logical_id for disk in guest.spec.disks] == [one.logical_id for one in after.disks]
    come_back(master, 2)
    await set_offline(master, 2, offline=False)
    await master.nothing_is_left()
    names = sorted(str(disk.logical_id[1]) for disk in after.disks)
    assert sorted(master.world.shared.disks) == names


async def test_a_cancelled_move_leaves_the_old_disks_in_use(master: Master) -> None:
    await made(master)
    master.world.node(1).disk_move_looks = 10_000
    job_id = await master.submit(to("plain"))
    await until_progress(master, job_id)
    done, _text = await master.queue.cancel(job_id, kill=True)
    assert done
    assert "cancelled" in text_of(await master.final(job_id))
    await master.nothing_is_left()
    check(master, "file")


async def until_progress(master: Master, job_id: int) -> None:
    async with asyncio.timeout(600):
        while (view := master.queue.view(job_id)) is None or view.progress is None:  # noqa: ASYNC110 - no event
            await asyncio.sleep(1)


async def test_the_job_shows_percent_rate_and_time(master: Master) -> None:
    await made(master)
    master.world.node(1).disk_move_looks = 40
    view = await master.run(to("plain"))
    succeeded(view)
    assert "disks: 0.0% (0 of 768 MiB)" in said(view)


async def test_a_node_that_is_away_for_a_while_does_not_end_the_copy(master: Master) -> None:
    await made(master)
    master.world.node(1).disk_move_looks = 60
    job_id = await master.submit(to("plain"))
    await until_progress(master, job_id)
    master.rpc.nodes.pop("node1.example.com")
    await asyncio.sleep(live_disks.AWAY_S / 2)
    come_back(master, 1)
    succeeded(await master.final(job_id))
    check(master, "plain")


async def test_a_guest_that_writes_too_fast_is_given_up(master: Master, monkeypatch: Any) -> None:
    await made(master)
    monkeypatch.setattr(live_disks, "REST_MIB", -1)
    assert "writes faster than the new disks" in text_of(await master.run(to("plain")))
    check(master, "file")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"disk_template": "file"}, "has disk template file in /local/web1.example.com already"),
        ({"disk_template": "plain", "bandwidth": -1}, "must be from 0 to"),
        ({"bandwidth": 5}, "requires another disk template"),
        ({"disk_template": "plain", "ext_params": {"vg": "nosuch"}}, "nosuch"),
    ],
)
async def test_impossible_moves_are_refused_before_anything_changes(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    await made(master)
    assert text in text_of(await master.run(modify(**fields)))
    assert master.rpc.acts() == []
    check(master, "file")


async def test_a_guest_that_cannot_is_told_why(master: Master) -> None:
    await made(master)
    master.world.node(1).disk_move_obstacles = ["disk 0 is read-only"]
    text = text_of(await master.run(to("plain")))
    assert (
        "runs, and its disks cannot move meanwhile: disk 0 is read-only; first run: gnt-instance shutdown"
        in text
    )
    succeeded(
        await master.run(
            create("web2.example.com", hypervisor="fake", disks=[DiskRequest(size=64)])
        )
    )
    text = text_of(await master.run(modify("web2.example.com", disk_template="plain")))
    assert "hypervisor 'fake' of this node cannot move disks" in text


async def test_an_instance_that_should_run_but_does_not_is_refused(master: Master) -> None:
    await made(master)
    master.world.node(1).guests.clear()
    assert master.instance(NAME).admin_state is AdminState.UP
    assert "should run, but does not" in text_of(await master.run(to("plain")))


async def test_another_move_of_the_same_disks_begins_with_its_own_record(master: Master) -> None:
    await made(master, "plain")
    succeeded(await master.run(to("plain", ext_params={"vg": "fast"})))
    succeeded(await master.run(to("plain", ext_params={"vg": "xenvg"})))
    check(master, "plain", "xenvg")


@pytest.mark.parametrize(
    ("waited", "done", "pause"),
    [
        (0.01, 0, 0.05),  # nothing is known yet
        (1.0, 50, 0.1),  # half of it is missing: a tenth of the time so far
        (1.0, 96, pytest.approx(1 / 24)),  # it should be done then
        (1.0, 100, 0.02),
        (600.0, 100, 2.0),  # a guest that keeps the copy nearly done
    ],
)
def test_progress_is_looked_at_when_the_copy_should_be_done(
    waited: float, done: int, pause: float
) -> None:
    seen = DiskMoveStatus(done=done, total=100, in_step=False)
    assert live_disks.next_look_s(waited, seen) == pause
