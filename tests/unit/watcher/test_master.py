"""Runs of the watcher on a model cluster, with real jobs, locks and queries, in virtual time."""

import asyncio

import pytest
from msgspec.structs import replace

from ganeti.config.transaction import Draft
from ganeti.locking.levels import Level
from ganeti.locking.requests import lock
from ganeti.model.names import AdminState, AdminStateSource
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.instance_changes import OpInstanceActivateDisks
from ganeti.watcher.decide import MOST_STARTS
from ganeti.watcher.master import RoundOptions
from tests.support.units_cluster import Master, World, said, succeeded
from tests.unit.units.opcodes import NAME, create
from tests.unit.watcher.conftest import Watcher

pytestmark = pytest.mark.virtual_time

RUN_S = 300.0


def crash(world: World, number: int = 1) -> None:
    """The guest is gone, as if its process had been killed."""
    world.node(number).guests.clear()


def starts(master: Master) -> int:
    return len([call for call in master.rpc.calls if call.procedure == "instance_start"])


async def running(master: Master) -> str:
    succeeded(await master.run(create()))
    master.rpc.reset()
    return master.instance(NAME).uuid


@pytest.mark.requirement("G20")
async def test_what_should_run_and_does_not_is_started(
    master: Master, world: World, watcher: Watcher
) -> None:
    uuid = await running(master)
    await watcher.run()
    assert starts(master) == 0
    crash(world)
    await watcher.run()
    await master.idle()
    assert world.where(uuid) == {"node1.example.com": "running"}
    assert [text for text in watcher.said if "starting" in text]
    master.check()


@pytest.mark.requirement("G20", "F28")
async def test_eight_hours_of_a_crashing_guest(
    master: Master, world: World, watcher: Watcher
) -> None:
    await running(master)
    for _ in range(8 * 12):
        crash(world)
        await watcher.run()
        await master.idle()
        await asyncio.sleep(RUN_S)
    assert starts(master) == MOST_STARTS
    assert len([text for text in watcher.said if "not restarting it" in text]) == 1


@pytest.mark.requirement("G20", "F28")
async def test_starts_are_counted_across_masters(
    world: World,
) -> None:
    watcher = Watcher(await Master.begin(world), RoundOptions(verify_disks=False))
    await running(watcher.master)
    made = 0
    for _ in range(9):
        for _ in range(11):
            crash(world)
            await watcher.run()
            await watcher.master.idle()
            await asyncio.sleep(RUN_S)
        made += starts(watcher.master)
        await watcher.master.end()
        watcher.master = await Master.begin(world)
    assert made == MOST_STARTS + 1  # eight hours and a quarter: the first does not count any more
    await watcher.master.end()


@pytest.mark.requirement("G20", "F27", "F28")
async def test_a_long_job_holds_an_instance_under_ten_runs(
    master: Master, world: World, watcher: Watcher
) -> None:
    uuid = await running(master)
    crash(world)
    holder = 10**6
    await master.locks.acquire(holder, [lock(Level.INSTANCE, NAME)])
    before = len(master.queue.ids())
    for _ in range(10):
        await watcher.run()
        await asyncio.sleep(RUN_S)
    assert len(master.queue.ids()) == before, "no job waits in the queue"
    assert watcher.memory.starts == {}, "and none of the tries is used up"
    master.locks.release(holder)
    await watcher.run()
    await master.idle()
    assert world.where(uuid) == {"node1.example.com": "running"}


@pytest.mark.requirement("G20", "F27")
async def test_what_was_stopped_between_the_look_and_the_start_stays_down(
    master: Master, world: World
) -> None:
    uuid = await running(master)
    crash(world)
    stop = await master.submit(OpInstanceShutdown(instance_name=NAME))
    start = await master.submit(OpInstanceStartup(instance_name=NAME, if_wanted=True))
    await master.final(stop)
    view = await master.final(start)
    succeeded(view)
    assert "is not started: its requested state is down" in said(view)
    assert world.where(uuid) == {}
    assert master.instance(NAME).admin_state is AdminState.DOWN


@pytest.mark.requirement("G5", "G20")
async def test_what_runs_elsewhere_is_not_started(
    master: Master, world: World, watcher: Watcher
) -> None:
    uuid = await running(master)
    guest = world.node(1).guests.pop(uuid)
    world.node(2).guests[uuid] = guest
    await watcher.run()
    view = await master.run(OpInstanceStartup(instance_name=NAME, if_wanted=True))
    succeeded(view)
    assert "something of it is on node2.example.com" in said(view)
    assert starts(master) == 0


@pytest.mark.requirement("G20")
@pytest.mark.parametrize("state", ["paused", "running"])
async def test_a_guest_that_is_there_is_left_as_it_is(
    master: Master, world: World, watcher: Watcher, state: str
) -> None:
    uuid = await running(master)
    world.node(1).guests[uuid].state = state
    await watcher.run()
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME, if_wanted=True)))
    assert world.where(uuid) == {"node1.example.com": state}
    assert starts(master) == 0


@pytest.mark.requirement("G20")
async def test_what_its_user_has_stopped_stays_stopped(
    master: Master, world: World, watcher: Watcher
) -> None:
    uuid = await running(master)
    world.node(1).guests[uuid].state = "shutdown"
    await watcher.run()
    await master.idle()
    assert starts(master) == 0
    instance = master.instance(NAME)
    assert instance.admin_state is AdminState.DOWN
    assert instance.admin_state_source is AdminStateSource.USER
    for _ in range(3):
        await asyncio.sleep(RUN_S)
        await watcher.run()
        await master.idle()
    assert starts(master) == 0


@pytest.mark.requirement("F20", "F27")
async def test_while_a_migration_is_not_settled_nothing_is_started(
    master: Master, world: World, watcher: Watcher
) -> None:
    uuid = await running(master)
    crash(world)

    def unsettled(draft: Draft) -> None:
        draft.put(replace(draft.instances[uuid], migrating_to=master.node(2).uuid))

    await master.change(unsettled)
    view = await master.run(OpInstanceStartup(instance_name=NAME, if_wanted=True))
    succeeded(view)
    assert "an interrupted migration has not been resolved" in said(view)
    assert starts(master) == 0


async def test_disks_are_only_activated_for_what_is_to_run(master: Master, world: World) -> None:
    succeeded(await master.run(create(start=False)))
    master.rpc.reset()
    op = OpInstanceActivateDisks(instance_name=NAME, if_wanted=True)
    assert succeeded(await master.run(op)) == []
    assert master.rpc.acts() == []


async def test_a_run_that_dies_after_it_has_decided_has_counted_its_tries(
    master: Master, world: World, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(master)
    crash(world)

    async def broken(*_args: object, **_options: object) -> int:
        raise ConnectionResetError

    monkeypatch.setattr(master.queue, "submit", broken)
    with pytest.raises(ConnectionResetError):
        await watcher.run()
    assert len(watcher.memory.starts[NAME]) == 1


async def test_a_start_that_the_queue_refuses_is_no_try(
    master: Master, world: World, watcher: Watcher
) -> None:
    await running(master)
    crash(world)
    await master.queue.set_drained(True)
    await watcher.run()
    assert watcher.memory.starts == {NAME: []}
    assert "refused" in watcher.said[-1]


async def test_checks_of_disks_are_asked_for_and_their_absence_is_borne(
    master: Master, watcher: Watcher
) -> None:
    await running(master)
    watcher.options = RoundOptions(wait_s=5.0)
    await watcher.run()
    await master.idle()
    await watcher.run()
    assert [text for text in watcher.said if "refused" in text] == []
