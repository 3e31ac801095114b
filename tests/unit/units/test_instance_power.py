"""Starting, stopping, rebooting and removing instances, with failures at every step."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.instance_view import CopyState, DiskView, NicView
from ganeti.model.names import AdminState, AdminStateSource, JobStatus, RebootType
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import (
    OpInstanceConsole,
    OpInstanceQueryData,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.agent import AgentInfo
from ganeti.rpc.procedures.figures import HistoryPart
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfoArgs
from ganeti.rpc.procedures.instances import Lowered
from ganeti.simulation.faulty_store import Crash, Refuse
from ganeti.units.instance.query_data import MOST_AT_ONCE
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time

COMMITS = 7


async def stopped(master: Master) -> str:
    """An instance that is down; returns its UUID."""
    succeeded(await master.run(create(start=False)))
    master.rpc.reset()
    return master.instance(NAME).uuid


async def running(master: Master) -> str:
    succeeded(await master.run(create()))
    master.rpc.reset()
    return master.instance(NAME).uuid


def startup(**fields: object) -> OpInstanceStartup:
    return OpInstanceStartup(instance_name=NAME, **fields)  # type: ignore[arg-type]  # by the caller


def shutdown(**fields: object) -> OpInstanceShutdown:
    return OpInstanceShutdown(instance_name=NAME, **fields)  # type: ignore[arg-type]  # as above


async def test_guest_that_starts_while_a_job_waits_to_ask_is_counted_once(master: Master) -> None:
    """Its placement was pending when the job began to wait, and its memory is in the report that the job gets."""
    names = [f"web{number}.example.com" for number in (1, 2, 3)]
    for name in names:
        succeeded(await master.run(create(name, start=False)))
    master.world.node(1).memory = 3 * 512 + 1
    starts, reports = asyncio.Event(), asyncio.Event()
    call, asked = master.rpc.call, list[str]()

    async def gated(node: Any, procedure: Any, args: Any, *, key: str = "") -> Any:
        asked.append(procedure.name)
        if procedure.name == "instance_start":
            await starts.wait()
        if procedure.name == "node_info" and asked.count("node_info") == 2:
            await reports.wait()
        return await call(node, procedure, args, key=key)

    master.rpc.call = gated  # type: ignore[method-assign]  # the test decides when nodes answer
    first, second, third = [OpInstanceStartup(instance_name=name) for name in names]
    jobs = [await master.submit(first)]
    await asyncio.sleep(0.1)
    assert asked[-1] == "instance_start"
    jobs.append(await master.submit(second))  # its question is under way
    await asyncio.sleep(0.1)
    jobs.append(await master.submit(third))  # waits for the next one
    await asyncio.sleep(0.1)
    assert asked.count("node_info") == 2
    starts.set()
    await asyncio.sleep(0.1)
    reports.set()
    for job in jobs:
        succeeded(await master.final(job))
    assert asked.count("node_info") == 3


async def test_start_and_stop_are_remembered(master: Master) -> None:
    await stopped(master)
    succeeded(await master.run(startup()))
    assert master.instance(NAME).admin_state is AdminState.UP
    master.check()
    succeeded(await master.run(shutdown()))
    assert master.instance(NAME).admin_state is AdminState.DOWN
    master.check()


async def test_without_remembering_only_the_guest_changes(master: Master) -> None:
    uuid = await stopped(master)
    succeeded(await master.run(startup(no_remember=True)))
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    assert master.instance(NAME).admin_state is AdminState.DOWN
    succeeded(await master.run(startup()))
    succeeded(await master.run(shutdown(no_remember=True)))
    assert master.instance(NAME).admin_state is AdminState.UP
    assert master.world.where(uuid) == {}


async def test_it_is_remembered_that_a_user_shut_the_guest_down(master: Master) -> None:
    uuid = await running(master)
    _, (text, code) = failed(await master.run(shutdown(admin_state_source=AdminStateSource.USER)))
    assert (code, master.rpc.acts()) == ("wrong_state", [])
    assert "runs on node1.example.com, so its user has not shut it down" in text
    master.world.node(1).guests[uuid].state = "shutdown"
    succeeded(await master.run(shutdown(admin_state_source=AdminStateSource.USER)))
    instance = master.instance(NAME)
    assert (instance.admin_state, instance.admin_state_source) == ("down", "user")
    master.check()
    # Whatever an administrator says afterwards is the administrator's wish.
    succeeded(await master.run(shutdown()))
    instance = master.instance(NAME)
    assert (instance.admin_state, instance.admin_state_source) == ("down", "admin")
    succeeded(await master.run(startup()))
    assert master.instance(NAME).admin_state_source == "admin"


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_start_that_fails_leaves_the_guest_stopped(master: Master, fault: Fault) -> None:
    await stopped(master)
    master.rpc.fail(1, fault)
    failed(await master.run(startup()))
    assert master.instance(NAME).admin_state is AdminState.DOWN
    master.check()


async def test_starting_what_runs_never_stops_it(master: Master) -> None:
    uuid = await running(master)
    for fault in Fault:
        master.rpc.fail(1, fault)
        view = await master.run(startup())
        succeeded(view)
        assert "is running already" in said(view)
        assert master.world.where(uuid) == {"node1.example.com": "running"}
    assert master.rpc.acts() == []


@pytest.mark.requirement("F23")
async def test_a_guest_that_never_began_is_shown_as_paused_and_continues(master: Master) -> None:
    uuid = await stopped(master)
    succeeded(await master.run(startup(startup_paused=True)))
    shown = succeeded(await master.run(OpInstanceQueryData(instances=[NAME], use_locking=True)))
    assert shown[NAME]["run_state"] == "paused"
    view = await master.run(startup(startup_paused=True))
    assert "is paused" in said(view)
    for fault in Fault:  # an answer that is lost stops nobody
        master.rpc.fail(1, fault)
        failed(await master.run(startup()))
        assert list(master.world.where(uuid)) == ["node1.example.com"]
        master.world.node(1).guests[uuid].state = "paused"
    view = await master.run(startup())
    succeeded(view)
    assert "resuming instance" in said(view)
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    master.check()


async def test_a_guest_that_powered_itself_off_is_started(master: Master) -> None:
    uuid = await running(master)
    master.world.node(1).guests[uuid].state = "shutdown"
    succeeded(await master.run(startup()))
    assert master.world.where(uuid) == {"node1.example.com": "running"}


async def test_parameters_of_one_start_are_not_kept(master: Master) -> None:
    uuid = await stopped(master)
    succeeded(await master.run(startup(beparams={"memory": 700})))
    assert master.world.node(1).guests[uuid].spec.memory == 700
    assert master.instance(NAME).beparams["maxmem"] == 512


@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_a_start_whole_or_undone(master: Master, number: int) -> None:
    await stopped(master)
    job_id = await master.submit(startup())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    wanted = AdminState.UP if view.status is JobStatus.SUCCESS else AdminState.DOWN
    assert master.instance(NAME).admin_state is wanted
    master.check()


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_during_a_start_leaves_it_whole_or_undone(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await stopped(master)
    await master.submit(startup())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_the_next_master_finds_no_halves(master)


@pytest.mark.requirement("G7")
@pytest.mark.parametrize("is_done", [False, True])
async def test_a_master_that_dies_around_the_start_leaves_the_guest_stopped(
    world: World, is_done: bool
) -> None:
    master = await Master.begin(world)
    await stopped(master)
    master.die_at_act(1, is_done=is_done)
    await master.submit(startup())
    assert await master.is_dead_after_a_while()
    await check_the_next_master_finds_no_halves(master)
    assert world.node(1).guests == {}


@pytest.mark.requirement("G7", "G11")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_master_that_dies_during_a_reboot_leaves_a_guest_that_runs(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await running(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(OpInstanceReboot(instance_name=NAME, reboot_type=RebootType.FULL))
    assert await master.is_dead_after_a_while()
    await check_the_next_master_finds_no_halves(master)
    assert len(world.node(1).guests) == 1


async def check_the_next_master_finds_no_halves(master: Master) -> None:
    after = await master.restart()
    try:
        await after.idle()
        after.check()
    finally:
        await after.end()


@pytest.mark.parametrize(
    ("kind", "acts"),
    [
        (RebootType.SOFT, ["instance_reboot"]),
        (RebootType.HARD, ["instance_reboot"]),
        (RebootType.FULL, ["instance_shutdown", "instance_start"]),
    ],
)
async def test_a_running_guest_is_rebooted(
    master: Master, kind: RebootType, acts: list[str]
) -> None:
    await running(master)
    succeeded(await master.run(OpInstanceReboot(instance_name=NAME, reboot_type=kind)))
    assert master.rpc.acts() == acts
    master.check()


async def test_rebooting_what_is_down_starts_it(master: Master) -> None:
    await stopped(master)
    succeeded(await master.run(OpInstanceReboot(instance_name=NAME)))
    assert master.rpc.acts() == ["instance_start"]
    assert master.instance(NAME).admin_state is AdminState.UP
    master.check()


async def test_a_removed_instance_leaves_nothing(master: Master) -> None:
    await running(master)
    succeeded(await master.run(OpInstanceRemove(instance_name="web1")))
    assert not master.snapshot.instances
    master.check()


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_a_removal_forgets_the_history_if_it_can(master: Master, fault: Fault | None) -> None:
    await running(master)
    uuid, node = master.instance(NAME).uuid, master.world.node(1)
    node.histories[uuid] = HistoryPart()
    if fault is not None:
        master.rpc.fail(4, fault)  # after the shutdown and two disks
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert not master.snapshot.instances
    assert master.rpc.changing_calls[3].procedure == "history_forget"
    assert (uuid in node.histories) is (fault not in (None, Fault.LOST_ANSWER))
    master.check()


async def test_a_removal_asks_no_node_to_forget_what_it_does_not_have(master: Master) -> None:
    await running(master)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert "history_forget" not in master.rpc.acts()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 4))
async def test_a_removal_that_broke_off_can_be_repeated(
    master: Master, number: int, fault: Fault
) -> None:
    await running(master)
    master.rpc.fail(number, fault)
    failed(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert master.snapshot.instance_by_name(NAME)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert not master.snapshot.instances
    master.check()


@pytest.mark.requirement("G7")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, 4))
async def test_a_removal_can_be_repeated_by_the_next_master(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await running(master)
    master.die_at_act(number, is_done=is_done)
    await master.submit(OpInstanceRemove(instance_name=NAME))
    assert await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        succeeded(await after.run(OpInstanceRemove(instance_name=NAME)))
        after.check()
    finally:
        await after.end()


async def test_ignoring_failures_removes_all_that_can_be_removed(master: Master) -> None:
    await running(master)
    master.rpc.fail(2, Fault.REFUSED)  # the first of two disks
    view = await master.run(OpInstanceRemove(instance_name=NAME, ignore_failures=True))
    succeeded(view)
    assert "may remain there" in said(view)
    assert not master.snapshot.instances
    assert [path.rpartition(".")[2] for path in master.world.disks()] == ["disk0"]


@pytest.mark.requirement("F21")
async def test_an_instance_of_an_offline_node_is_only_marked_as_stopped_when_asked(
    master: Master,
) -> None:
    succeeded(await master.run(create(pnode="node2")))
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    for op in (shutdown(), startup(), OpInstanceRemove(instance_name=NAME)):
        name, (text, code) = failed(await master.run(op))
        assert (name, code) == ("OpPrereqError", "wrong_state")
        assert "node node2.example.com is marked offline" in text
    view = await master.run(shutdown(ignore_offline_nodes=True))
    succeeded(view)
    assert "is only marked as stopped" in said(view)
    assert master.instance(NAME).admin_state is AdminState.DOWN


async def test_an_instance_that_is_marked_offline_is_not_started(master: Master) -> None:
    await stopped(master)
    instance = master.instance(NAME)
    offline = replace(instance, admin_state=AdminState.OFFLINE)
    await master.change(lambda draft: draft.put(offline))
    for op in (startup(), OpInstanceReboot(instance_name=NAME)):
        name, (text, code) = failed(await master.run(op))
        assert (name, code) == ("OpPrereqError", "wrong_state")
        assert f"instance {NAME} is marked offline" in text
    assert master.rpc.acts() == []
    succeeded(await master.run(shutdown(force=True)))
    assert master.instance(NAME).admin_state is AdminState.OFFLINE


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (shutdown(timeout=-1), "timeout"),
        (shutdown(timeout=10**6), "timeout"),
        (OpInstanceRemove(instance_name=NAME, shutdown_timeout=-1), "shutdown_timeout"),
        (OpInstanceReboot(instance_name=NAME, shutdown_timeout=-1), "shutdown_timeout"),
        (startup(hvparams={"nosuch": 1}), "hvparams.nosuch"),
        (startup(beparams={"nosuch": 1}), "beparams.nosuch"),
    ],
)
async def test_a_wrong_argument_is_named(master: Master, op: OpCode, field: str) -> None:
    await stopped(master)
    name, (text, code) = failed(await master.run(op))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text.startswith(f"{field}: ")
    assert master.rpc.acts() == []


@pytest.mark.parametrize(
    "op",
    [
        startup(),
        shutdown(),
        OpInstanceRemove(instance_name=NAME),
        OpInstanceConsole(instance_name=NAME),
    ],
)
async def test_an_unknown_instance_is_refused(master: Master, op: OpCode) -> None:
    name, (text, code) = failed(await master.run(op))
    assert (name, code) == ("OpPrereqError", "unknown_entity")
    assert NAME in text


async def test_the_console_is_what_the_node_reports(master: Master) -> None:
    await running(master)
    answer = succeeded(await master.run(OpInstanceConsole(instance_name=NAME)))
    assert answer["kind"] == "msg"
    assert (answer["instance"], answer["host"]) == (NAME, "node1.example.com")


async def test_all_about_an_instance_is_shown(master: Master) -> None:
    uuid = await running(master)
    answer = succeeded(await master.run(OpInstanceQueryData(instances=["web1"], use_locking=True)))
    shown = answer[NAME]
    assert shown["uuid"] == uuid
    assert (shown["config_state"], shown["run_state"]) == ("up", "up")
    assert (shown["pnode"], shown["pnode_group_name"]) == ("node1.example.com", "default")
    assert shown["be_actual"]["maxmem"] == 512
    assert [disk["iv_name"] for disk in shown["disks"]] == ["disk/0", "disk/1"]
    status = DiskView(*shown["disks"][0]["pstatus"])
    assert (status.is_degraded, status.state) == (False, CopyState.OK)
    assert status.path == shown["disks"][0]["on_primary"]["path"]
    nic = NicView(*shown["nics"][0])
    assert (nic.link, nic.network_name) == ("br0", None)


async def test_the_memory_of_a_running_guest_is_shown_with_what_its_node_took(
    master: Master,
) -> None:
    uuid = await running(master)
    query = OpInstanceQueryData(instances=[NAME], use_locking=True)
    guest = master.world.node(1).guests[uuid]
    guest.spec, guest.lowered = (
        replace(guest.spec, memory=300),
        Lowered(before=512, since=5, goal=99),
    )
    shown = succeeded(await master.run(query))[NAME]["memory"]
    assert (shown["present"], shown["most"]) == (300, 512)
    assert shown["lowered"] == {"before": 512, "since": 5, "goal": 99}
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert succeeded(await master.run(query))[NAME]["memory"] is None


@pytest.mark.requirement("A64")
async def test_what_the_agent_in_a_guest_reports_is_shown_while_it_runs(master: Master) -> None:
    node = master.world.node(1)
    query = OpInstanceQueryData(instances=[NAME], use_locking=True)
    await master.change(
        lambda draft: draft.put(replace(draft.cluster, enabled_hypervisors=("kvm",)))
    )
    succeeded(await master.run(create(hvparams={"use_guest_agent": True})))
    uuid = master.instance(NAME).uuid
    assert succeeded(await master.run(query))[NAME]["guest_agent"] is None
    node.agents[uuid] = AgentInfo(host_name="web1", os="Debian")
    shown = succeeded(await master.run(query))[NAME]["guest_agent"]
    assert (shown["host_name"], shown["os"], shown["interfaces"]) == ("web1", "Debian", [])
    node.guests[uuid].state = "paused"
    assert succeeded(await master.run(query))[NAME]["guest_agent"] is None


async def test_fields_of_a_silent_node_are_empty(master: Master) -> None:
    await running(master)
    del master.rpc.nodes["node1.example.com"]
    view = await master.run(OpInstanceQueryData())
    assert succeeded(view)[NAME]["run_state"] is None
    assert "node1.example.com" in said(view)
    static = succeeded(await master.run(OpInstanceQueryData(static=True)))[NAME]
    assert static["disks"][0]["pstatus"] is None


async def test_what_is_shown_reports_that_a_guest_shut_itself_down(master: Master) -> None:
    uuid = await running(master)
    master.world.node(1).guests[uuid].state = "shutdown"
    view = await master.run(OpInstanceQueryData(instances=[NAME]))
    assert succeeded(view)[NAME]["run_state"] == "user down"


async def test_nodes_are_asked_about_many_instances_at_the_same_time(master: Master) -> None:
    names = [f"web{number}.example.com" for number in range(MOST_AT_ONCE)]
    for name in names:
        succeeded(await master.run(create(name, disk_template="diskless", disks=[], start=False)))
    asked = 0
    everybody = asyncio.Event()
    answer = master.rpc.nodes["node1.example.com"]["instance_info"]

    async def waiting_answer(args: Any, call: Call) -> Any:
        nonlocal asked
        asked += 1
        if asked == len(names):
            everybody.set()
        async with asyncio.timeout(10):
            await everybody.wait()
        return await answer(args, call)

    master.rpc.nodes["node1.example.com"]["instance_info"] = waiting_answer
    shown = succeeded(await master.run(OpInstanceQueryData()))
    assert list(shown) == sorted(names)
    assert {one["run_state"] for one in shown.values()} == {"down"}


async def test_a_guest_whose_bridge_is_gone_is_not_started(master: Master) -> None:
    await stopped(master)
    master.world.node(1).bridges.clear()
    name, (text, code) = failed(await master.run(startup()))
    assert (name, code) == ("OpPrereqError", "environment_error")
    assert "node node1.example.com cannot connect instance" in text
    assert "the bridge 'br0' does not exist" in text
    assert master.rpc.acts() == []
    master.check()


async def test_start_asks_its_node_for_memory_and_for_no_storage(master: Master) -> None:
    """A look at storage opens directories or runs programs of the volume manager."""
    await stopped(master)
    succeeded(await master.run(startup()))
    asked = [call.args for call in master.rpc.calls if call.procedure == NODE_INFO.name]
    assert asked == [NodeInfoArgs(hypervisors=[], storage=[])]
