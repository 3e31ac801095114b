"""Live migration that takes the disks along: the data is whole, on the one node that has the guest."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.names import JobStatus
from ganeti.model.opcodes.base import DiskRequest
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.rpc.procedures.migration import MigrateArgs, MigrationInfo
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate
from tests.unit.units.test_instance_migrate import (
    come_back,
    go_silent,
    mark_offline,
    runs_at,
)
from tests.unit.units.test_instance_move import check_data, with_data

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G5", "F20", "F23")]

ACTS = [
    "blockdev_remove", "blockdev_create", "blockdev_remove", "blockdev_create",
    "migration_accept", "migration_run", "migration_finish_target", "migration_finish_source",
    "blockdev_remove", "blockdev_remove",
]  # fmt: skip
FINISH_TARGET = 7
COMMITS = 10


async def test_the_disks_go_along_and_the_source_keeps_nothing(master: Master) -> None:
    await with_data(master)
    view = await master.run(migrate())
    assert succeeded(view) == ["node2.example.com"]
    assert master.rpc.acts() == ACTS
    assert runs_at(master) is master.world.node(2)
    check_data(master)
    assert "migrating the disks and the memory" in said(view)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_after_any_failed_call_the_guest_and_its_data_are_in_one_place(
    master: Master, number: int, fault: Fault
) -> None:
    await with_data(master)
    master.rpc.fail(number, fault)
    view = await master.run(migrate())
    if number > FINISH_TARGET:  # the guest has moved, only something may be left behind
        succeeded(view)
        await master.nothing_is_left()
    else:
        failed(view)
    has_gone_on = number > FINISH_TARGET or (number == FINISH_TARGET and fault is Fault.LOST_ANSWER)
    assert runs_at(master) is master.world.node(2 if has_gone_on else 1)
    check_data(master)
    succeeded(await master.run(migrate(target_node="node3.example.com")))
    check_data(master)


@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_the_data_in_one_place(master: Master, number: int) -> None:
    await with_data(master)
    job_id = await master.submit(migrate())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    if view.status is not JobStatus.SUCCESS and master.instance(NAME).migrating_to is not None:
        succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    runs_at(master)
    check_data(master)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_any_commit_leaves_the_data_in_one_place(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await with_data(master)
    await master.submit(migrate())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_the_next_master(master)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_a_master_that_dies_around_any_call_leaves_the_data_in_one_place(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await with_data(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(migrate())
    assert await master.is_dead_after_a_while()
    await check_the_next_master(master)


async def check_the_next_master(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        runs_at(after)
        check_data(after)
    finally:
        await after.end()


def lose_guest(master: Master, number: int, *, after_act: int) -> None:
    """Let the QEMU of one node end by itself once that many acts are done."""

    def vanish(act: int) -> None:
        if act == after_act:
            master.world.node(number).guests.clear()

    master.rpc.after_act = vanish


@pytest.mark.requirement("G1", "F20")
@pytest.mark.parametrize(
    ("later", "fault"),
    [(0, Fault.LOST_ANSWER), (1, Fault.LOST_CALL), (1, Fault.REFUSED)],
    ids=["target unsure", "source unsure", "source refuses"],
)
@pytest.mark.parametrize("template", ["file", "sharedfile"])
async def test_a_guest_that_ended_at_its_target_never_continues_from_what_the_source_remembers(
    master: Master, template: str, later: int, fault: Fault
) -> None:
    finish_target = FINISH_TARGET if template == "file" else 3
    if template == "file":
        uuid = await with_data(master)
    else:
        succeeded(await master.run(create()))
        master.rpc.reset()
        uuid = master.instance(NAME).uuid
    lose_guest(master, 2, after_act=finish_target + later)
    master.rpc.fail(finish_target + later, fault)
    view = await master.run(migrate())
    assert (view.status is JobStatus.SUCCESS) == bool(later)
    await master.nothing_is_left()
    master.rpc.after_act = None
    assert master.world.where(uuid) == {}  # it ended; it is started again from its disks
    instance = master.instance(NAME)
    assert instance.migrating_to is None
    assert instance.primary_node == master.node(2).uuid
    assert not instance.handed_over
    master.check_disks_are_those_of_the_configuration()
    if template == "file":
        check_data(master)


async def test_a_target_that_ended_before_its_command_returns_the_guest(
    master: Master,
) -> None:
    await with_data(master)
    lose_guest(master, 2, after_act=FINISH_TARGET - 1)
    master.rpc.fail(FINISH_TARGET, Fault.NOT_SENT)
    failed(await master.run(migrate()))
    master.rpc.after_act = None
    assert runs_at(master) is master.world.node(1)
    check_data(master)


@pytest.mark.requirement("F21")
@pytest.mark.parametrize("act", [FINISH_TARGET - 1, FINISH_TARGET])
async def test_disks_of_its_own_let_the_source_continue_when_the_target_is_surely_dead(
    master: Master, act: int
) -> None:
    uuid = await with_data(master)
    go_silent(master, 2, after_act=act)
    if act == FINISH_TARGET:
        master.rpc.fail(FINISH_TARGET, Fault.LOST_ANSWER)
    failed(await master.run(migrate()))
    assert master.instance(NAME).migrating_to is not None
    master.world.node(2).guests.clear()
    master.world.node(2).let_go_on.clear()  # what it wrote is on disks that nobody reads
    await mark_offline(master, 2)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    assert master.instance(NAME).primary_node == master.node(1).uuid
    assert master.instance(NAME).migrating_to is None


@pytest.mark.requirement("F21")
async def test_on_shared_disks_the_source_never_continues_after_a_hand_over(master: Master) -> None:
    succeeded(await master.run(create()))
    uuid = master.instance(NAME).uuid
    master.rpc.reset()
    go_silent(master, 2, after_act=3)
    master.rpc.fail(3, Fault.LOST_ANSWER)
    failed(await master.run(migrate()))
    master.world.node(2).guests.clear()
    await mark_offline(master, 2)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    assert master.world.where(uuid) == {}
    assert master.instance(NAME).primary_node == master.node(1).uuid
    assert master.instance(NAME).migrating_to is None


async def test_a_silent_target_is_cleaned_up_when_it_answers_again(master: Master) -> None:
    await with_data(master)
    go_silent(master, 2, after_act=FINISH_TARGET)
    master.rpc.fail(FINISH_TARGET, Fault.LOST_ANSWER)
    failed(await master.run(migrate()))
    assert master.instance(NAME).handed_over
    come_back(master, 2)
    succeeded(await master.run(migrate(target_node=None, cleanup=True)))
    assert runs_at(master) is master.world.node(2)
    check_data(master)


async def test_a_target_without_space_is_refused(master: Master) -> None:
    await with_data(master)
    master.world.node(2).local.total = 700
    _, (text, code) = failed(await master.run(migrate()))
    assert code == "insufficient_resources"
    assert "needs 768 MiB" in text
    assert master.rpc.acts() == []


@pytest.mark.parametrize(
    ("fields", "is_live"),
    [({}, True), ({"live": False}, False), ({"mode": "non-live"}, False), ({"mode": "live"}, True)],
)
async def test_a_guest_may_stand_still_while_it_is_moved(
    master: Master, fields: dict[str, Any], is_live: bool
) -> None:
    await with_data(master)
    succeeded(await master.run(migrate(**fields)))
    [args] = [call.args for call in master.rpc.calls if call.procedure == "migration_run"]
    assert isinstance(args, MigrateArgs)
    assert args.live is is_live


async def test_a_read_only_disk_is_refused_before_anything_is_done(master: Master) -> None:
    op = create(disk_template="file", disks=[DiskRequest(size=64), DiskRequest(size=1, mode="ro")])
    succeeded(await master.run(op))
    master.rpc.reset()
    _, (text, code) = failed(await master.run(migrate()))
    assert code == "wrong_state"
    assert f"disk 1 of {NAME} is read-only" in text
    assert "gnt-instance move -n NODE" in text
    assert master.rpc.acts() == []
    # What counts is what the guest has: a change of the configuration waits for its next start.
    source = master.world.node(1)
    told = source.on_migration_info

    def info(args: InstanceArgs) -> MigrationInfo:
        said = told(args)
        disks = tuple(replace(disk, mode="rw") for disk in said.instance.disks)
        return replace(said, instance=replace(said.instance, disks=disks))

    source.on_migration_info = info  # type: ignore[method-assign]  # this node says something else
    master.rpc.nodes[source.name] = source.handlers()
    succeeded(await master.run(migrate()))
