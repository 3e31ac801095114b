"""Reinstalling and renaming instances, with failures at every step."""

from typing import Any

import pytest

from ganeti.model.names import AdminState, JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time

NEW = "shop1.example.com"
COMMITS = 6


def reinstall(**fields: object) -> OpInstanceReinstall:
    return OpInstanceReinstall(instance_name=NAME, **fields)  # type: ignore[arg-type]  # by the caller


def rename(new_name: str = NEW, **fields: object) -> OpInstanceRename:
    return OpInstanceRename(instance_name=NAME, new_name=new_name, **fields)  # type: ignore[arg-type]  # as above


async def stopped(master: Master, **fields: Any) -> str:
    """An instance that is down; its UUID."""
    succeeded(await master.run(create(start=False, **fields)))
    master.rpc.reset()
    return master.instance(NAME).uuid


def installed(master: Master, name: str = NAME) -> set[tuple[str, str]]:
    """What the instance's disks carry: OS and name."""
    node = master.world.node(1)
    return {node.installed[disk.uuid] for disk in master.instance(name).disks}


async def test_an_os_is_installed_again(master: Master) -> None:
    await stopped(master)
    master.world.node(1).installed.clear()
    view = await master.run(reinstall())
    succeeded(view)
    assert installed(master) == {("tiny", NAME)}
    assert "installed" in said(view)
    [call] = master.rpc.changing_calls
    assert call.args.reinstall
    master.check()


@pytest.mark.requirement("S123")
async def test_another_os_is_kept_its_parameters_are_not(master: Master) -> None:
    await stopped(master, osparams={"ns1": "192.0.2.1"}, osparams_private={"key": "k"})
    master.world.node(1).oses["small"] = "1.0"
    given = {"osparams": {"ns2": "a"}, "osparams_secret": {"pw": "s3cret"}}
    succeeded(await master.run(reinstall(os_type="small+x", **given)))
    [call] = master.rpc.changing_calls
    assert call.args.osparams == {"ns1": "192.0.2.1", "ns2": "a", "key": "k", "pw": "s3cret"}
    instance = master.instance(NAME)
    assert (instance.os, instance.osparams) == ("small+x", {"ns1": "192.0.2.1"})
    succeeded(await master.run(reinstall(os_type="small+y")))
    assert installed(master) == {("small+y", NAME)}
    assert master.instance(NAME).os == "small+y"


@pytest.mark.requirement("G23")
async def test_secret_parameters_of_a_reinstallation_are_stored_nowhere(master: Master) -> None:
    await stopped(master)
    succeeded(await master.run(reinstall(osparams_secret={"pw": "s3cret"})))
    assert not [key for key, value in master.world.disk.rows.items() if b"s3cret" in value]


@pytest.mark.parametrize("op", [reinstall(), rename()])
async def test_a_running_guest_is_not_touched(master: Master, op: OpCode) -> None:
    succeeded(await master.run(create()))
    master.rpc.reset()
    name, (text, code) = failed(await master.run(op))
    assert (name, code) == ("OpPrereqError", "wrong_state")
    assert f"gnt-instance shutdown {NAME}" in text
    assert master.rpc.acts() == []


@pytest.mark.parametrize("op", [reinstall(), rename()])
async def test_a_guest_in_an_undesired_state_is_not_touched(master: Master, op: OpCode) -> None:
    await stopped(master)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME, no_remember=True)))
    master.rpc.reset()
    assert failed(await master.run(op))[1][1] == "wrong_state"
    assert master.rpc.acts() == []


@pytest.mark.parametrize(
    ("op", "part", "code"),
    [
        (reinstall(os_type="nosuch"), "there is no OS definition nosuch", "wrong_input"),
        (reinstall(os_type="../x"), "os_type: ", "wrong_input"),
        (reinstall(osparams={"A=B": "x"}), "osparams['A=B']", "wrong_input"),
        (reinstall(osparams_secret={"a": "x\ny"}), "osparams_secret.a", "wrong_input"),
        (rename("Shop1"), "new_name: must be in lower case", "wrong_input"),
        (rename("a/../b"), "new_name: ", "wrong_input"),
        (rename("$(id)"), "new_name: ", "wrong_input"),
        (rename("other"), "other.example.com exists already", "already_exists"),
        (rename("cluster"), "name of the cluster", "already_exists"),
        (rename("node2"), "node2.example.com", "already_exists"),
        (rename(ip_check=True), "ip_check: ", "wrong_input"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_is_done(
    master: Master, op: OpCode, part: str, code: str
) -> None:
    succeeded(await master.run(create("other.example.com", start=False)))
    await stopped(master)
    name, (text, found) = failed(await master.run(op))
    assert (name, found) == ("OpPrereqError", code)
    assert part in text
    assert master.rpc.acts() == []
    master.check()


async def test_without_disks_nothing_is_installed(master: Master) -> None:
    await stopped(master, disk_template="diskless", disks=[])
    assert "has no disks" in failed(await master.run(reinstall()))[1][0]


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_failed_reinstallation_can_be_repeated(master: Master, fault: Fault) -> None:
    await stopped(master)
    master.world.node(1).oses["small"] = "1.0"
    master.rpc.fail(1, fault)
    failed(await master.run(reinstall(os_type="small")))
    assert master.instance(NAME).os == "tiny"
    master.check()
    succeeded(await master.run(reinstall(os_type="small")))
    assert installed(master) == {("small", NAME)}


@pytest.mark.requirement("F24")
@pytest.mark.parametrize("op", [reinstall(), rename()])
async def test_a_script_whose_answer_was_lost_does_not_run_on_beside_a_guest(
    master: Master, op: OpCode
) -> None:
    await stopped(master)
    master.rpc.fail(1, Fault.LOST_ANSWER)
    failed(await master.run(op))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    [key] = master.world.node(1).ended_scripts
    assert key.startswith("2/0/")
    master.check()


async def test_a_renamed_instance_keeps_all_but_its_name(master: Master) -> None:
    uuid = await stopped(master)
    before = master.instance(NAME)
    view = await master.run(rename("shop1"))
    assert succeeded(view) == NEW
    after = master.instance(NEW)
    assert (after.uuid, after.disks, after.nics) == (uuid, before.disks, before.nics)
    assert installed(master, NEW) == {("tiny", NEW)}
    assert f"renamed from {NAME}" in said(view)
    assert master.snapshot.instance_by_name(NAME) is None
    master.check()
    succeeded(await master.run(OpInstanceStartup(instance_name="shop1")))
    master.check()


async def test_the_old_name_is_free_for_another_instance(master: Master) -> None:
    await stopped(master)
    succeeded(await master.run(rename()))
    succeeded(await master.run(create()))
    assert {one.name for one in master.snapshot.instances.values()} == {NAME, NEW}
    master.check()


async def test_a_waiting_job_finds_the_instance_by_its_uuid(master: Master) -> None:
    uuid = await stopped(master)
    first = await master.submit(rename())
    second = await master.submit(OpInstanceShutdown(instance_name=NAME, instance_uuid=uuid))
    third = await master.submit(OpInstanceShutdown(instance_name=NAME))
    succeeded(await master.final(first))
    succeeded(await master.final(second))
    assert failed(await master.final(third))[1][1] == "unknown_entity"


async def test_a_failing_script_does_not_keep_the_old_name(master: Master) -> None:
    await stopped(master)
    master.world.node(1).rename_script_fails = "OS tiny: script rename ended with exit status 3"
    view = await master.run(rename())
    succeeded(view)
    assert "in its system manually" in said(view)
    assert master.instance(NEW).uuid
    master.check()


@pytest.mark.parametrize("fault", list(Fault))
async def test_without_an_answer_of_the_script_the_old_name_stays(
    master: Master, fault: Fault
) -> None:
    await stopped(master)
    master.rpc.fail(1, fault)
    failed(await master.run(rename()))
    assert master.instance(NAME).uuid
    master.check()
    succeeded(await master.run(rename()))
    assert installed(master, NEW) == {("tiny", NEW)}


@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_one_of_both_names(master: Master, number: int) -> None:
    await stopped(master)
    job_id = await master.submit(rename())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    assert master.instance(NEW if view.status is JobStatus.SUCCESS else NAME).uuid
    assert len(master.snapshot.instances) == 1
    master.check()


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_leaves_one_of_both_names(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await stopped(master)
    await master.submit(rename())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        [instance] = after.snapshot.instances.values()
        assert instance.name in (NAME, NEW)
        assert instance.admin_state is AdminState.DOWN
        after.check()
    finally:
        await after.end()


async def test_a_name_that_is_checked_must_have_a_free_address(
    master: Master, asked: list[str]
) -> None:
    await stopped(master)
    text, code = failed(await master.run(rename(name_check=True, ip_check=True)))[1]
    assert (code, asked) == ("resource_not_unique", [NEW, "192.0.2.77"])
    assert "192.0.2.77" in text
    succeeded(await master.run(rename(name_check=True)))


async def test_renaming_to_the_same_name_runs_the_script_again(master: Master) -> None:
    await stopped(master)
    master.rpc.reset()
    assert succeeded(await master.run(rename("web1"))) == NAME
    assert master.rpc.acts() == ["os_rename"]
    assert master.instance(NAME).name == NAME
    master.check()
