"""Creating instances: all of it, or nothing, whatever fails and whenever the master dies."""

import asyncio

import pytest

from ganeti.model.names import AdminState, JobStatus
from ganeti.model.opcodes.instance import (
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time

ACTS = ["blockdev_create", "blockdev_create", "os_create", "instance_start"]
COMMITS = 14
"""More than a creation commits: with the last numbers nothing fails."""


@pytest.mark.requirement("S86")
async def test_a_created_instance_is_installed_and_runs(master: Master) -> None:
    view = await master.run(create())
    assert succeeded(view) == ["node1.example.com"]
    instance = master.instance(NAME)
    assert instance.admin_state is AdminState.UP
    assert instance.primary_node == NODES[0]
    assert master.rpc.acts() == ACTS
    assert "* starting instance..." in said(view)
    assert "   installed" in said(view)
    master.check()


async def test_every_changing_call_has_a_key_of_its_own(master: Master) -> None:
    view = await master.run(create())
    keys = [call.key for call in master.rpc.changing_calls]
    assert keys == [f"{view.id}/0/{number}" for number in range(1, 5)]


async def test_without_installation_the_instance_is_kept_stopped(master: Master) -> None:
    view = await master.run(create(no_install=True, os_type=None))
    succeeded(view)
    assert "No-installation mode selected, disabling startup" in said(view)
    assert master.instance(NAME).admin_state is AdminState.DOWN
    master.check()


async def test_an_instance_may_be_made_without_interfaces_as_commands_ask_for_it(
    master: Master,
) -> None:
    succeeded(await master.run(create(no_nics=True, nics=[])))
    assert master.instance(NAME).nics == ()


async def test_an_instance_that_is_not_to_start_is_installed_only(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    assert master.rpc.acts() == ACTS[:3]
    assert master.instance(NAME).admin_state is AdminState.DOWN
    master.check()


@pytest.mark.requirement("F24", "G11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 4))
async def test_a_failed_call_before_the_start_leaves_nothing(
    master: Master, number: int, fault: Fault
) -> None:
    master.rpc.fail(number, fault)
    name, arguments = failed(await master.run(create()))
    assert name == "OpExecError"
    assert "node1.example.com" in arguments[0]
    assert not master.snapshot.instances
    master.check()
    succeeded(await master.run(create()))
    master.check()


@pytest.mark.requirement("F24")
@pytest.mark.parametrize("fault", list(Fault))
async def test_a_failed_start_keeps_the_instance_stopped_and_reports_it(
    master: Master, fault: Fault
) -> None:
    master.rpc.fail(4, fault)
    name, (text,) = failed(await master.run(create()))
    assert name == "OpExecError"
    assert f"instance {NAME} was created, but did not start" in text
    assert f"gnt-instance startup {NAME}" in text
    assert master.instance(NAME).admin_state is AdminState.DOWN
    master.check()


async def test_a_disk_that_does_not_fit_is_refused_before_anything_is_made(master: Master) -> None:
    master.world.shared.disks["/shared/other"] = 100_000 - 700
    name, (text, code) = failed(await master.run(create()))
    assert (name, code) == ("OpPrereqError", "insufficient_resources")
    assert "700 MiB free in /shared but needs 768 MiB" in text
    assert master.rpc.acts() == []


@pytest.mark.requirement("F24")
async def test_a_disk_that_fills_up_meanwhile_leaves_nothing(master: Master) -> None:
    def fill(number: int) -> None:
        if number == 1:
            master.world.shared.total = 600

    master.rpc.after_act = fill
    _, (text,) = failed(await master.run(create()))
    assert "no space left" in text
    assert not master.snapshot.instances
    master.check()


@pytest.mark.requirement("F24", "G11")
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_nothing_or_a_whole_instance(
    master: Master, number: int
) -> None:
    job_id = await master.submit(create())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    if view.status is JobStatus.SUCCESS:
        assert master.instance(NAME).admin_state is AdminState.UP
    elif "was created, but did not start" in str(failed(view)):
        assert master.instance(NAME).admin_state is AdminState.DOWN
    else:
        assert not master.snapshot.instances
        succeeded(await master.run(create()))
    master.check()


async def test_the_numbers_above_reach_every_commit(master: Master) -> None:
    before = master.store.statistics().transactions
    succeeded(await master.run(create()))
    assert 6 < master.store.statistics().transactions - before < COMMITS


async def check_the_next_master_finds_no_halves(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        after.check()
        if not after.snapshot.instances:
            succeeded(await after.run(create()))
            after.check()
    finally:
        await after.end()


@pytest.mark.requirement("F24", "G7", "G11")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_any_commit_leaves_nothing_half_done(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    job_id = await master.submit(create())
    master.store.inject(Crash(written=written), after=number)
    if await master.is_dead_after_a_while():
        view = master.queue.view(job_id)
        assert view is not None
        assert view.status is not JobStatus.ERROR
    await check_the_next_master_finds_no_halves(master)


@pytest.mark.requirement("F24", "G7", "G11")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, 5))
async def test_a_master_that_dies_around_any_call_leaves_nothing_half_done(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    master.die_at_act(number, is_done=is_done)
    await master.submit(create())
    assert await master.is_dead_after_a_while()
    assert len(master.rpc.acts()) == number - (not is_done)
    await check_the_next_master_finds_no_halves(master)


@pytest.mark.requirement("F24")
async def test_what_could_not_be_undone_stays_recorded_and_is_reported(master: Master) -> None:
    master.rpc.fail(3, Fault.REFUSED)  # the installation
    master.rpc.fail(4, Fault.NOT_SENT)  # the removal of the second disk
    name, (text,) = failed(await master.run(create()))
    assert name == "OpExecError"
    assert "could not undo (remove_disk)" in text
    assert not master.snapshot.instances
    (left,) = master.world.disks()
    assert left.endswith(".disk1")
    await master.nothing_is_left()
    master.check()


@pytest.mark.requirement("G1", "G11", "F24")
@pytest.mark.parametrize("use", ["none", "remove", "start", "start once"])
async def test_an_instance_that_cannot_be_forgotten_keeps_its_disks_until_it_is(
    master: Master, use: str
) -> None:
    master.rpc.fail(3, Fault.REFUSED)  # the installation

    def fill(act: int) -> None:
        master.store.set_full(full=act == 3)

    master.rpc.before_act = fill
    job_id = await master.submit(create())
    await asyncio.sleep(60)
    master.store.set_full(full=False)
    _name, (text,) = failed(await master.final(job_id))
    assert "could not undo (forget_instance): no space left" in text
    assert "could not undo (remove_disk): not tried, because forget_instance" in text
    master.check_disks_are_those_of_the_configuration()
    assert len(master.instance(NAME).disks) == 2
    if use == "remove":
        succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    elif use == "start":
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    elif use == "start once":
        start = OpInstanceStartup(instance_name=NAME, no_remember=True)
        succeeded(await master.run(start))
        await asyncio.sleep(300)
        assert "runs on node1.example.com" in master.queue.pending_undo()[-1].why
        assert len(master.world.disks()) == 2
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    await master.nothing_is_left()
    master.check()
    assert len(master.world.disks()) == (2 if use == "start" else 0)  # it is wanted, since it is up


@pytest.mark.requirement("G11")
async def test_two_creations_of_one_name_give_one_instance(master: Master) -> None:
    first = await master.submit(create())
    second = await master.submit(create(pnode="node2.example.com"))
    succeeded(await master.final(first))
    name, (text, code) = failed(await master.final(second))
    assert (name, code) == ("OpPrereqError", "already_exists")
    assert f"instance {NAME} exists already" in text
    master.check()
