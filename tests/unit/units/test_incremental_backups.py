"""Incremental backups of instances: complete or absent, and never a guest on a mixture of two contents."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, UnfinishedRestore
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.points import (
    OpBackupCheck,
    OpBackupPrune,
    OpBackupRestore,
    OpBackupSave,
)
from ganeti.model.opcodes.snapshots import OpInstanceSnapshotCreate
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.backup_nodes import Stored, backup_node, backup_world
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify
from tests.unit.units.test_backup import export

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

TARGET = "/srv/ganeti/backup"


@pytest.fixture
def world() -> World:
    return backup_world("plain", "file", "diskless")


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def backups(world: World, number: int = 2, target: str = TARGET) -> list[Stored]:
    return backup_node(world, number).points.get((target, NAME), [])


def save(**fields: Any) -> OpBackupSave:
    return OpBackupSave(instance_name=NAME, **{"node": "node2.example.com", **fields})


def restore(**fields: Any) -> OpBackupRestore:
    return OpBackupRestore(instance_name=NAME, **fields)


def write(world: World, text: str) -> None:
    for number in (1, 2, 3):
        place = backup_node(world, number).local
        for path in place.disks:
            place.contents[path] = f"{text} on {path}"


def contents(world: World) -> list[str]:
    return [
        text.partition(" ")[0] for _, text in sorted(backup_node(world, 1).local.contents.items())
    ]


async def with_data(master: Master, **fields: Any) -> Instance:
    succeeded(await master.run(create(**{"disk_template": "plain", "start": False, **fields})))
    write(master.world, "old")
    master.rpc.reset()
    return master.instance(NAME)


async def with_backup(master: Master, **fields: Any) -> str:
    """An instance with a backup and newer data; the backup's name."""
    await with_data(master, **fields)
    point = succeeded(await master.run(save()))["point"]
    write(master.world, "new")
    master.rpc.reset()
    return str(point)


def check_nothing_unfinished(world: World) -> None:
    for number in (1, 2, 3):
        assert backup_node(world, number).written == {}
        assert backup_node(world, number).keys == set()
        assert backup_node(world, number).moments == {}


@pytest.mark.parametrize("template", ["plain", "file"])
async def test_second_backup_is_based_on_the_first(master: Master, template: str) -> None:
    await with_data(master, disk_template=template)
    first = succeeded(await master.run(save(node="node3.example.com")))
    assert first["parent"] == ""
    assert first["consistency"] == "down"
    second = succeeded(await master.run(save(node=None)))
    assert second["parent"] == first["point"] != second["point"]
    disks = [disk.uuid for disk in master.instance(NAME).disks]
    stored = backups(master.world, 3)
    assert [list(one.contents) for one in stored] == [disks, disks]
    assert set(stored[1].parents.values()) == {first["point"]}
    full = succeeded(await master.run(save(node="node3.example.com", full=True)))
    assert full["parent"] == ""
    assert set(backups(master.world, 3)[2].parents.values()) == {""}
    check_nothing_unfinished(master.world)


async def test_new_and_grown_disks_are_complete_in_the_next_backup(master: Master) -> None:
    point = await with_backup(master)
    succeeded(await master.run(modify(disks=[["add", -1, {"size": 64}]])))
    succeeded(await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=64)))
    succeeded(await master.run(save()))
    uuids = [disk.uuid for disk in master.instance(NAME).disks]
    parents = backups(master.world)[1].parents
    assert [parents[uuid] for uuid in uuids] == [point, point, ""]
    view = await master.run(restore(point=point))
    succeeded(view)
    assert "disk 2 is not in backup" in said(view)
    assert contents(master.world)[:2] == ["old", "old"]


async def test_secrets_are_not_in_a_backup(master: Master) -> None:
    await with_data(master, osparams_private={"word": "canary"})
    view = await master.run(save())
    succeeded(view)
    assert "private OS parameters are not in the backup" in said(view)
    assert "canary" not in backups(master.world)[0].description


async def test_restore_gives_all_disks_or_one_the_content_of_a_backup(master: Master) -> None:
    await with_backup(master)
    succeeded(await master.run(restore(disk=1)))
    assert sorted(contents(master.world)) == ["new", "old"]
    succeeded(await master.run(restore()))
    assert contents(master.world) == ["old", "old"]
    assert master.instance(NAME).restoring is None


async def test_backup_becomes_a_new_instance(master: Master) -> None:
    point = await with_backup(master)
    op = create(
        "web9.example.com",
        mode="import",
        disks=[],
        src_path=NAME,
        src_backup=point,
        start=False,
        disk_template="plain",
    )
    succeeded(await master.run(op))
    assert sorted(contents(master.world)) == ["new", "new", "old", "old"]
    wrong = create(
        "web8.example.com", mode="import", disks=[], src_path=NAME, src_backup="20260101-000000"
    )
    _name, (text, code) = failed(await master.run(wrong))
    assert code == "wrong_input"
    assert "gnt-backup points" in text


async def test_restore_of_a_running_guest_is_refused_with_the_command(master: Master) -> None:
    await with_backup(master)
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    _name, (text, code) = failed(await master.run(restore()))
    assert code == "wrong_state"
    assert f"gnt-instance shutdown {NAME}" in text


async def test_running_guest_is_saved_by_its_bitmap_after_one_comparison(master: Master) -> None:
    uuid = (await with_data(master)).uuid
    first = succeeded(await master.run(save()))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    source = backup_node(master.world, 1)
    second = succeeded(await master.run(save()))
    assert (second["consistency"], second["parent"]) == ("crash", first["point"])
    assert source.read_by_bitmap == []
    assert len(source.bitmaps[uuid]) == 1
    third = succeeded(await master.run(save()))
    assert third["parent"] == second["point"]
    assert len(source.read_by_bitmap) == len(master.instance(NAME).disks)
    assert source.bitmaps[uuid] != set(source.read_by_bitmap)
    assert len(source.bitmaps[uuid]) == 1
    # Another directory has other backups, and so a bitmap of its own.
    succeeded(await master.run(save(node="node3.example.com")))
    assert len(source.bitmaps[uuid]) == 2
    succeeded(await master.run(save(full=True)))
    assert len(source.read_by_bitmap) == 2
    check_nothing_unfinished(master.world)


async def test_directory_must_be_unambiguous(master: Master) -> None:
    await with_data(master)
    _name, (text, code) = failed(await master.run(save(node=None)))
    assert code == "wrong_input"
    assert "--node" in text
    succeeded(await master.run(save()))
    succeeded(await master.run(save(node="node3.example.com", target="/srv/other")))
    for op in (
        restore(),
        OpBackupCheck(instance_name=NAME),
        OpBackupPrune(instance_name=NAME, keep_last=1),
    ):
        _name, (text, code) = failed(await master.run(op))
        assert code == "unknown_entity"
        assert "node2.example.com:/srv/ganeti/backup, node3.example.com:/srv/other" in text
    succeeded(await master.run(restore(node="node3.example.com")))
    for wrong in ({"target": "x"}, {"target": "/srv/../etc"}, {"node": None, "target": "/srv/x"}):
        _name, (text, code) = failed(await master.run(save(**wrong)))
        assert code == "wrong_input"
    for point in ("../x", "x", "20260101-000000\n", ""):
        assert failed(await master.run(restore(node="node2.example.com", point=point)))


async def test_full_backup_that_does_not_fit_is_refused(master: Master) -> None:
    await with_data(master)
    backup_node(master.world, 2).space = 700
    _name, (text, code) = failed(await master.run(save()))
    assert code == "insufficient_resources"
    assert "768 MiB" in text


SCHEDULE = "33333333-0000-4000-8000-000000000000"


async def test_prune_of_a_schedule_includes_its_backups_on_former_nodes(
    master: Master, world: World
) -> None:
    await with_data(master)

    async def saved(number: int, **fields: Any) -> str:
        node = f"node{number}.example.com"
        return str(succeeded(await master.run(save(node=node, **fields)))["point"])

    by_hand = await saved(2)
    first = [await saved(2, schedule=SCHEDULE) for _ in range(2)]
    of_other = await saved(3, schedule=SCHEDULE.replace("3", "4"))
    target = "/srv/other"
    now = [await saved(3, target=target, schedule=SCHEDULE) for _ in range(2)]

    def prune(keep: int, **fields: Any) -> OpBackupPrune:
        given = {"node": "node3.example.com", "target": target, "schedule": SCHEDULE}
        return OpBackupPrune(instance_name=NAME, keep_last=keep, **{**given, **fields})

    decided = succeeded(await master.run(prune(3)))
    assert decided["removed"] == [f"{first[0]} in node2.example.com:{TARGET}"]
    assert [one.info.point for one in backups(world)] == [by_hand, first[1]]
    # A silent former node is not an error: its backups are found by a later prune.
    master.rpc.fail(1, Fault.REFUSED)
    view = await master.run(prune(2))
    succeeded(view)
    assert "remain until the next prune" in said(view)
    assert len(backups(world)) == 2
    handlers = master.rpc.nodes.pop("node2.example.com")
    succeeded(await master.run(prune(2)))
    master.rpc.nodes["node2.example.com"] = handlers
    # Without the schedule, only the named directory counts.
    assert succeeded(await master.run(prune(1, schedule=None)))["removed"] == now[:1]
    succeeded(await master.run(prune(1)))
    assert [one.info.point for one in backups(world)] == [by_hand]
    assert [one.info.point for one in backups(world, 3)] == [of_other]
    assert [one.info.point for one in backups(world, 3, target)] == now[1:]
    _name, (text, _code) = failed(await master.run(prune(1, schedule="nightly")))
    assert "there is no schedule" in text
    _name, (text, _code) = failed(await master.run(save(schedule="nightly")))
    assert "UUID of a schedule" in text


async def test_prune_removes_what_no_rule_keeps(master: Master) -> None:
    await with_data(master)
    names = [succeeded(await master.run(save()))["point"] for _ in range(4)]
    assert len(set(names)) == 4
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    _name, (text, code) = failed(await master.run(OpBackupPrune(instance_name=NAME)))
    assert code == "wrong_input"
    assert "at least one rule" in text
    _name, (text, code) = failed(await master.run(OpBackupPrune(instance_name=NAME, keep_last=-1)))
    assert code == "wrong_input"
    decided = succeeded(
        await master.run(OpBackupPrune(instance_name=NAME, keep_last=2, dry_run=True))
    )
    assert decided["removed"] == names[:2]
    assert len(backups(master.world)) == 4
    assert succeeded(await master.run(OpBackupPrune(instance_name=NAME, keep_last=2))) == decided
    assert [one.info.point for one in backups(master.world)] == names[2:]


async def test_check_names_the_damaged_ones_and_those_that_remain(master: Master) -> None:
    await with_data(master)
    names = [succeeded(await master.run(save()))["point"] for _ in range(2)]
    good = succeeded(await master.run(OpBackupCheck(instance_name=NAME)))
    assert [one["point"] for one in good] == names
    backup_node(master.world, 2).unrecorded = "read-only"
    view = await master.run(OpBackupCheck(instance_name=NAME))
    succeeded(view)
    assert f"the result for {names[0]} is not recorded: read-only" in said(view)
    backup_node(master.world, 2).damaged = {names[1]}
    _name, (text, *_) = failed(await master.run(OpBackupCheck(instance_name=NAME)))
    assert f"{names[1]}: x.qcow2: not what was written" in text
    assert f"these can be restored: {names[0]}" in text


def save_here(**fields: Any) -> OpBackupSave:
    return save(node="node1.example.com", **fields)


@pytest.mark.parametrize("runs", [False, True])
async def test_backup_on_the_node_of_the_instance_needs_no_connection(
    master: Master, *, runs: bool
) -> None:
    await with_data(master)
    if runs:
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    master.rpc.reset()
    first = succeeded(await master.run(save_here(bandwidth=5)))["point"]
    calls = [one for one in master.rpc.changing_calls if one.procedure == "stream_within"]
    assert [one.args.rate for one in calls] == [5 * 1024 * 1024] * 2
    write(master.world, "new")
    assert succeeded(await master.run(save_here()))["parent"] == first
    if runs:
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    succeeded(await master.run(restore(point=first)))
    assert contents(master.world) == ["old", "old"]
    acts = set(master.rpc.acts())
    assert "stream_within" in acts
    assert not acts & {"stream_receive", "stream_send", "transfer_key_create"}
    check_nothing_unfinished(master.world)


async def test_node_of_the_version_before_saves_to_itself_by_a_connection(master: Master) -> None:
    await with_data(master)
    del master.rpc.nodes["node1.example.com"]["stream_within"]
    first = succeeded(await master.run(save_here()))["point"]
    assert succeeded(await master.run(save_here()))["parent"] == first
    write(master.world, "new")
    succeeded(await master.run(restore(point=first)))
    assert contents(master.world) == ["old", "old"]
    assert "stream_send" in master.rpc.acts()
    check_nothing_unfinished(master.world)


# --- failures ---


@pytest.mark.rotated(40)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("act", ["save", "save running", "restore"])
@pytest.mark.parametrize("number", range(1, 15))
async def test_failure_within_a_node_leaves_whole_backups(
    master: Master, number: int, act: str, fault: Fault
) -> None:
    await with_data(master)
    succeeded(await master.run(save_here()))
    write(master.world, "new")
    if act == "save running":
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(restore() if act == "restore" else save_here())
    await master.nothing_is_left()
    check_nothing_unfinished(master.world)
    found = backups(master.world, 1)
    assert len(found) >= 1 + (act != "restore" and view.status.value == "success")
    assert {one.partition(" ")[0] for one in found[0].contents.values()} == {"old"}
    if act == "restore" and view.status.value == "success":
        assert contents(master.world) == ["old", "old"]


@pytest.mark.rotated(40)
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("number", range(1, 21))
async def test_failed_backup_leaves_nothing_and_keeps_the_earlier_one(
    master: Master, number: int, fault: Fault, *, runs: bool
) -> None:
    await with_backup(master)
    if runs:
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
        master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(save())
    await master.nothing_is_left()
    check_nothing_unfinished(master.world)
    assert len(backups(master.world)) >= 1 + (view.status.value == "success")
    assert set(backups(master.world)[0].contents.values()) == {
        one for one in backups(master.world)[0].contents.values() if one.startswith("old")
    }


@pytest.mark.parametrize("number", range(14))
async def test_refused_commit_leaves_a_complete_backup_or_none(master: Master, number: int) -> None:
    await with_backup(master)
    job_id = await master.submit(save())
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    await master.nothing_is_left()
    check_nothing_unfinished(master.world)
    assert len(backups(master.world)) >= 1 + (view.status.value == "success")


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("act", ["save", "save running", "restore"])
@pytest.mark.parametrize("number", range(14))
async def test_master_that_dies_leaves_whole_backups_and_no_mixture_that_starts(
    world: World, number: int, act: str, written: bool
) -> None:
    master = await Master.begin(world)
    point = await with_backup(master)
    if act == "save running":
        succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    await master.submit(restore() if act == "restore" else save())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_nothing_unfinished(world)
        assert backups(world)[0].info.point == point
        if after.instance(NAME).restoring is None:
            assert len(set(contents(world))) == 1
        else:
            assert after.instance(NAME).restoring == UnfinishedRestore(point=point)
            for op in (OpInstanceStartup(instance_name=NAME), save(), export(), restore(disk=1)):
                _name, (text, _code) = failed(await after.run(op))
                assert f"gnt-backup restore --point={point} {NAME}" in text
            succeeded(await after.run(restore()))
            assert contents(world) == ["old", "old"]
        succeeded(await after.run(OpInstanceStartup(instance_name=NAME)))
        assert after.instance(NAME).admin_state is AdminState.UP
    finally:
        await after.end()


async def test_damaged_backup_blocks_the_start_until_another_is_restored(master: Master) -> None:
    first = await with_backup(master)
    second = succeeded(await master.run(save()))["point"]
    backup_node(master.world, 2).damaged = {second}
    _name, arguments = failed(await master.run(restore()))
    assert "SHA-256" in str(arguments)
    _name, (text, _code) = failed(await master.run(OpInstanceSnapshotCreate(instance_name=NAME)))
    assert "is not complete" in text
    succeeded(await master.run(restore(point=first)))
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))


async def test_limit_of_the_bandwidth_reaches_the_sender_and_has_bounds(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(save(bandwidth=5)))
    rates = {
        call.args.rate for call in master.rpc.changing_calls if call.procedure == "stream_send"
    }
    assert rates == {5 * 1024 * 1024}
    _name, (text, _code) = failed(await master.run(save(bandwidth=-1)))
    assert text.startswith("bandwidth: ")
