"""Moving an instance with its disks while its guest is stopped: the data is in one place, as is the guest."""

import asyncio
from typing import Any

import pytest

from ganeti.model.names import AdminState, JobStatus
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11", "F24")]

ACTS = [
    "instance_shutdown",
    *("blockdev_remove", "blockdev_create"),
    *("transfer_key_create", "transfer_key_create"),
    *("stream_receive", "stream_send"),
    *("blockdev_remove", "blockdev_create", "stream_receive", "stream_send"),
    *(["blockdev_remove"] * 2),
    *(["stream_end"] * 4),
    *(["transfer_key_remove"] * 2),
    "instance_start",
]
CLEAN_UPS = range(12, 20)
"""The calls that are made when the instance has moved; those before and after make the job fail."""
COMMITS = 18


def move(**fields: Any) -> OpInstanceMove:
    given: dict[str, Any] = {"target_node": "node2.example.com", "stop": True}
    return OpInstanceMove(instance_name=NAME, **{**given, **fields})


async def with_data(master: Master, **fields: Any) -> str:
    """An instance whose disks lie on the first node, with something on them; its UUID."""
    succeeded(await master.run(create(disk_template="file", **fields)))
    master.rpc.reset()
    local = master.world.node(1).local
    for path in local.disks:
        local.contents[path] = f"data of {path}"
    return master.instance(NAME).uuid


def check_data(master: Master) -> None:
    """The disks are where the configuration says, once, and hold what was written."""
    master.check_disks_are_those_of_the_configuration()
    instance = master.instance(NAME)
    local = master.world.nodes[master.snapshot.nodes[instance.primary_node].name].local
    for disk in instance.disks:
        path = str(disk.logical_id[1])
        assert local.contents[path] == f"data of {path}"


async def test_the_data_goes_along_and_the_source_keeps_nothing(master: Master) -> None:
    uuid = await with_data(master)
    view = await master.run(move())
    assert succeeded(view) == ["node2.example.com"]
    assert master.rpc.acts() == ACTS
    assert master.instance(NAME).primary_node == NODES[1]
    assert master.world.where(uuid) == {"node2.example.com": "running"}
    assert "copying disk 1 (256 MiB)" in said(view)
    check_data(master)
    master.check()


async def test_what_is_down_stays_down(master: Master) -> None:
    await with_data(master, start=False)
    succeeded(await master.run(move()))
    assert master.instance(NAME).admin_state is AdminState.DOWN
    check_data(master)
    master.check()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_after_any_failed_call_the_data_is_in_one_place(
    master: Master, number: int, fault: Fault
) -> None:
    await with_data(master)
    master.rpc.fail(number, fault)
    view = await master.run(move())
    instance = master.instance(NAME)
    if number in CLEAN_UPS:  # the instance has moved, only something may be left behind
        succeeded(view)
        assert instance.primary_node == NODES[1]
        assert "could not clean up" in said(view)
        await master.nothing_is_left()
        check_data(master)
        master.check()
        return
    failed(view)
    assert instance.primary_node == NODES[0 if number < len(ACTS) else 1]
    check_data(master)
    if number < len(ACTS):  # started again where it was
        master.check()


@pytest.mark.requirement("G9")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(1, len(ACTS)))
async def test_a_job_that_is_killed_after_any_call_leaves_the_data_in_one_place(
    master: Master, number: int
) -> None:
    await with_data(master)
    job_id = await master.submit(move())
    kills: list[asyncio.Task[tuple[bool, str]]] = []

    def kill(act: int) -> None:
        if act == number:
            kills.append(asyncio.create_task(master.queue.cancel(job_id, kill=True)))

    master.rpc.after_act = kill
    view = await master.final(job_id)
    assert (await kills[0])[0] is True
    await master.nothing_is_left()
    check_data(master)
    has_moved = master.instance(NAME).primary_node == NODES[1]
    assert has_moved is (number > 9)  # some calls are made while the kill is written
    if not has_moved:  # started again where it was
        assert "the job was cancelled" in failed(view)[1][0]
        master.check()


@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_the_data_in_one_place(master: Master, number: int) -> None:
    await with_data(master)
    job_id = await master.submit(move())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    check_data(master)
    if view.status is JobStatus.SUCCESS:
        master.check()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_any_commit_leaves_the_data_in_one_place(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await with_data(master)
    await master.submit(move())
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
    await master.submit(move())
    assert await master.is_dead_after_a_while()
    await check_the_next_master(master)


async def check_the_next_master(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        check_data(after)
        after.check_nothing_is_held()
        after.check_guests_are_those_of_the_configuration()
    finally:
        await after.end()


async def test_a_copy_that_fails_is_removed_and_the_guest_runs_again(master: Master) -> None:
    uuid = await with_data(master)
    master.world.node(1).stream_fails = "the link is down"
    _, (text,) = failed(await master.run(move()))
    assert "the link is down" in text
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    check_data(master)
    master.check()


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"target_node": "node1"}, "wrong_input", "is on node1.example.com already"),
        ({"target_node": "node9"}, "unknown_entity", "node9"),
        ({"compress": "rar"}, "wrong_input", "compress"),
        ({"shutdown_timeout": 10**9}, "wrong_input", "shutdown_timeout"),
        ({"bandwidth": -1}, "wrong_input", "bandwidth"),
    ],
)
async def test_a_wrong_request_is_refused(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    await with_data(master)
    name, arguments = failed(await master.run(move(**fields)))
    assert (name, arguments[1]) == ("OpPrereqError", code)
    assert text in arguments[0]
    assert master.rpc.acts() == []


async def test_what_every_node_sees_needs_no_copy(master: Master) -> None:
    succeeded(await master.run(create()))
    _, (text, code) = failed(await master.run(move()))
    assert code == "wrong_state"
    assert "needs no copy" in text


async def test_a_target_without_space_is_refused(master: Master) -> None:
    await with_data(master)
    master.world.node(2).local.total = 700
    _, (text, code) = failed(await master.run(move()))
    assert code == "insufficient_resources"
    assert "needs 768 MiB" in text


@pytest.mark.requirement("G1", "G7")
async def test_recovery_takes_no_disk_away_that_another_job_has_made_the_only_copy(
    world: World,
) -> None:
    """What an earlier opcode left undone is not what the dead master was doing: its locks were free since."""
    master = await Master.begin(world)
    await with_data(master)
    begun = asyncio.Event()

    async def slow_script(_args: Any, _call: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    master.rpc.nodes["node3.example.com"]["os_create"] = slow_script
    for number in (12, 13):
        master.rpc.fail(number, Fault.NOT_SENT)
    other = create("other.example.com", disk_template="file", pnode="node3.example.com")
    job_id = await master.queue.submit([move(), other])
    await begun.wait()
    assert len(master.world.node(1).local.disks) == 2, "what the move has left"
    succeeded(await master.run(move(target_node="node1.example.com")))
    check_data(master)
    master = await master.restart()
    view = await master.final(job_id)
    assert [state.status for state in view.ops] == [JobStatus.SUCCESS, JobStatus.ERROR]
    assert "its unfinished work was undone" in str(view.ops[1].result)
    await master.nothing_is_left()
    assert master.snapshot.instance_by_name("other.example.com") is None
    check_data(master)
    master.check()
    await master.end()
