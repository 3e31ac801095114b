"""Instances on DRBD go through everything, by the real driver over a DRBD in memory."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.model.instance_view import CopyState, DiskView
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams, OpClusterVerifyGroup
from ganeti.model.opcodes.group import OpGroupSetParams
from ganeti.model.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceQueryData,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceGrowDisk,
    OpInstanceReplaceDisks,
)
from ganeti.model.opcodes.mirrors import (
    OpClusterVerifyDisks,
    OpGroupVerifyDisks,
    OpInstanceDiskStatus,
    OpInstanceRepair,
    OpNodeListDrbd,
)
from ganeti.model.opcodes.moving import OpInstanceFailover, OpInstanceMove
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.opcodes.storage import OpRepairNodeStorage
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.rpc.procedures.disks import DISKS_INFO, DiskInfo, SyncStatus
from ganeti.rpc.procedures.storage_units import STORAGE_UNIT_REPAIR
from ganeti.simulation.faulty_store import Crash
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.units.undo.disks import removals
from tests.support.drbd_nodes import DrbdModelNode, Kernels
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES as UUIDS
from tests.support.units_cluster import Master, World, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = pytest.mark.virtual_time

ONE, TWO, THREE = (node_name(number) for number in (1, 2, 3))


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels(tmp_path)
    made.install(monkeypatch)
    return made


@pytest.fixture
async def master(kernels: Kernels) -> AsyncIterator[Master]:
    del kernels
    world = World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))
    one = await Master.begin(world)
    yield one
    await one.end()


def mirrored(**fields: Any) -> OpInstanceCreate:
    given: dict[str, Any] = {
        "disk_template": "drbd",
        "snode": TWO,
        "disks": [DiskRequest(size=64), DiskRequest(size=32, params={"meta_size": 2})],
    }
    return create(**{**given, **fields})


def check(master: Master, kernels: Kernels) -> None:
    """On every node there are the volumes, devices and roles that the configuration says, and no others."""
    for number, uuid in enumerate(UUIDS, 1):
        volumes, devices = set(), {}
        for instance in master.snapshot.instances.values():
            if uuid not in instance.all_nodes:
                continue
            primary = uuid == instance.primary_node
            for disk in instance.disks:
                volumes |= {
                    str(layer.part(uuid)[1]) for layer in disk.layers() if layer.template == "plain"
                }
                if instance.admin_state is AdminState.UP and disk.template == "drbd":
                    devices[disk.uuid] = (
                        disk.parts[uuid][0],
                        "Primary" if primary else "Secondary",
                    )
        node = kernels.of(node_name(number))
        assert kernels.volumes(node_name(number)) == volumes
        assert {name: (one.minor, one.role) for name, one in node.devices.items()} == devices
        assert not any(one.two_primaries for one in node.devices.values())
        assert {node.disk_state(one) for one in node.devices.values()} <= {"UpToDate"}


async def made(master: Master, **fields: Any) -> Instance:
    succeeded(await master.run(mirrored(**fields)))
    return master.instance(NAME)


def replaced(mode: str, **fields: Any) -> OpInstanceReplaceDisks:
    return OpInstanceReplaceDisks(instance_name=NAME, mode=mode, **fields)


@pytest.mark.requirement("S41", "S93", "G11")
async def test_what_a_new_disk_has(master: Master, kernels: Kernels) -> None:
    instance = await made(master)
    first, second = instance.disks
    assert first.parts == {UUIDS[0]: (0,), UUIDS[1]: (0,)}
    assert second.parts == {UUIDS[0]: (1,), UUIDS[1]: (1,)}
    assert first.logical_id != second.logical_id
    assert [child.size for child in first.children] == [64, 128]
    assert [child.size for child in second.children] == [32, 2]
    assert {child.part(UUIDS[0])[0] for child in first.children} == {"xenvg"}
    check(master, kernels)


@pytest.mark.requirement("S75")
async def test_group_chooses_the_volume_groups_and_the_size_of_metadata(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).groups |= {"data": SharedDirectory(), "meta": SharedDirectory()}
    names: dict[str, dict[str, Any]] = {
        "drbd": {"metavg": "meta", "meta_size": 256},
        "plain": {"vg": "data"},
    }
    succeeded(await master.run(OpGroupSetParams(group_name="default", diskparams=names)))
    allocated = {"pnode": None, "snode": None, "iallocator": "hail"}
    for name, where in ((NAME, {}), ("web2.example.com", allocated)):
        succeeded(await master.run(mirrored(name=name, start=False, **where)))
        instance = master.instance(name)
        first, second = instance.disks
        groups = [child.part(instance.primary_node)[0] for child in first.children]
        assert groups == ["data", "meta"]
        assert [child.size for child in (*first.children, *second.children)] == [64, 256, 32, 2]
    none: dict[str, dict[str, Any]] = {"drbd": {"metavg": None, "meta_size": None}}
    succeeded(await master.run(OpGroupSetParams(group_name="default", diskparams=none)))
    succeeded(await master.run(mirrored(name="web3.example.com", start=False, **allocated)))
    instance = master.instance("web3.example.com")
    assert {one.part(instance.primary_node)[0] for one in instance.disks[0].children} == {"data"}


async def question(master: Master, **fields: Any) -> dict[str, Any]:
    """What an allocator would be sent."""
    op = OpTestAllocator(direction="in", **fields)
    message: dict[str, Any] = json.loads(succeeded(await master.run(op)))
    return message


@pytest.mark.requirement("S170")
async def test_allocators_are_sent_the_space_of_data_and_metadata(master: Master) -> None:
    disks = [DiskRequest(size=1024), DiskRequest(size=2048)]  # the example of the design document
    new = await question(master, name="new.example.com", disk_template="drbd", disks=disks)
    assert (new["request"]["required_nodes"], new["request"]["disk_space_total"]) == (2, 3328)
    await made(master, disks=disks)
    again = await question(master, mode="relocate", name=NAME)
    assert again["request"]["disk_space_total"] == 3328
    assert again["instances"][NAME]["disk_space_total"] == 3328


@pytest.mark.requirement("S170")
async def test_an_allocator_chooses_no_node_without_room_for_the_metadata(master: Master) -> None:
    disks = [DiskRequest(size=700), DiskRequest(size=300)]
    for number in (2, 3):
        master.world.node(number).local.total = 1100  # enough for the data alone
    view = await master.run(mirrored(pnode=None, snode=None, iallocator="hail", disks=disks))
    text, code = failed(view)[1]
    assert code == "insufficient_resources"
    assert "node2.example.com, node3.example.com: 157 MiB of disk short" in text
    master.world.node(3).local.total = 1300
    succeeded(await master.run(mirrored(pnode=None, snode=None, iallocator="hail", disks=disks)))
    assert set(master.instance(NAME).all_nodes) == {UUIDS[0], UUIDS[2]}


@pytest.mark.requirement("G23", "F34")
async def test_no_job_has_the_secret(master: Master) -> None:
    instance = await made(master)
    secrets = {disk.secret for disk in instance.disks}
    assert len(secrets) == 2
    spec = instance_spec(master.snapshot, instance)
    assert {disk.secret for disk in spec.disks} == secrets
    for step in removals(UUIDS[0], spec):
        assert not any(secret in repr(step) for secret in secrets)
    shown = succeeded(await master.run(OpInstanceQueryData(instances=[NAME])))
    assert not any(secret in repr(shown) for secret in secrets)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert not any(secret in repr(master.world.disk.rows) for secret in secrets)


STEPS: list[tuple[str, Callable[[], OpCode]]] = [
    ("shutdown", lambda: OpInstanceShutdown(instance_name=NAME)),
    ("startup", lambda: OpInstanceStartup(instance_name=NAME)),
    ("failover", lambda: OpInstanceFailover(instance_name=NAME)),
    ("migrate", lambda: migrate(target_node=None)),
    ("grow", lambda: OpInstanceGrowDisk(instance_name=NAME, disk=1, amount=32)),
    ("on primary", lambda: replaced("replace_on_primary")),
    ("on secondary", lambda: replaced("replace_on_secondary", disks=[1])),
    ("early", lambda: replaced("replace_on_secondary", early_release=True)),
    ("new secondary", lambda: replaced("replace_new_secondary", remote_node=THREE)),
    ("move", lambda: OpInstanceMove(instance_name=NAME, target_node=THREE)),
    ("remove", lambda: OpInstanceRemove(instance_name=NAME)),
]


@pytest.mark.sampled(4)
@pytest.mark.requirement("G11", "G13", "F23")
@pytest.mark.parametrize("op", [op for _name, op in STEPS], ids=[name for name, _op in STEPS])
async def test_each_object_is_exported_as_configured(
    master: Master, kernels: Kernels, op: Callable[[], OpCode]
) -> None:
    await made(master)
    check(master, kernels)
    succeeded(await master.run(op()))
    check(master, kernels)


@pytest.mark.sampled(0)
@pytest.mark.requirement("G11", "F24", "F25")
async def test_a_creation_that_fails_anywhere_leaves_nothing(
    master: Master, kernels: Kernels
) -> None:
    for name in (TWO, ONE):
        node = kernels.of(name)
        for fail_at in range(80):
            node.calls.clear()
            node.fail_at = fail_at
            view = await master.run(mirrored(disks=[DiskRequest(size=64)]))
            node.fail_at = None
            if NAME in {one.name for one in master.snapshot.instances.values()}:
                if len(node.calls) <= fail_at:
                    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
                    break
                succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
            else:
                failed(view)
            await master.idle()
            check(master, kernels)
        else:
            pytest.fail("it never went through")
    assert master.snapshot.instances == {}
    check(master, kernels)


@pytest.mark.sampled(0)
@pytest.mark.timeout(600)
@pytest.mark.requirement("G11", "F24", "F25")
async def test_hundred_rounds_of_adding_failing_and_removing_leave_nothing(
    master: Master, kernels: Kernels
) -> None:
    first = await made(master)
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    for number in range(100):
        node = kernels.of((ONE, TWO)[number % 2])
        node.calls.clear()
        node.fail_at = number // 5 if number % 5 else None
        await master.run(mirrored(disks=[DiskRequest(size=8)]))
        node.fail_at = None
        await master.nothing_is_left()
        if master.snapshot.instances:
            succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
        master.check_nothing_is_held()
        check(master, kernels)
    again = await made(master)
    assert [disk.parts for disk in again.disks] == [disk.parts for disk in first.disks]


@pytest.mark.requirement("S95", "S97")
async def test_the_status_has_a_row_for_each_disk_and_node(
    master: Master, kernels: Kernels
) -> None:
    await made(master)
    op = OpInstanceDiskStatus(instance_name=NAME)
    rows = succeeded(await master.run(op))
    assert [(row["disk"], row["node"], row["primary"], row["status"]) for row in rows] == [
        (0, ONE, True, "ok"),
        (0, TWO, False, "ok"),
        (1, ONE, True, "ok"),
        (1, TWO, False, "ok"),
    ]
    assert rows[0]["state"] == "Primary, UpToDate, peer Secondary, UpToDate, Established"
    for volume in kernels.volumes(TWO):
        (kernels.of(TWO).directory / volume).unlink()
    assert {row["status"] for row in succeeded(await master.run(op)) if not row["primary"]} == {
        "missing"
    }
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert {row["status"] for row in succeeded(await master.run(op)) if row["primary"]} == {
        "closed"
    }


@pytest.mark.requirement("S98")
async def test_only_what_is_broken_on_the_primary_is_repaired(
    master: Master, kernels: Kernels
) -> None:
    before = await made(master)
    repair = OpInstanceRepair(instance_name=NAME)
    assert succeeded(await master.run(repair))["jobs"] == []
    secondary = str(before.disks[0].children[0].part(UUIDS[1])[1])
    (kernels.of(TWO).directory / secondary).unlink()
    assert succeeded(await master.run(repair))["jobs"] == []
    primary = str(before.disks[0].children[0].part(UUIDS[0])[1])
    (kernels.of(ONE).directory / primary).unlink()
    _, (text, code) = failed(await master.run(repair))
    assert (code, "no copy can repair it" in text) == ("wrong_state", True)


@pytest.mark.requirement("S98")
async def test_a_broken_disk_on_the_primary_is_recreated(master: Master, kernels: Kernels) -> None:
    before = await made(master)
    lost = str(before.disks[1].children[0].part(UUIDS[0])[1])
    (kernels.of(ONE).directory / lost).unlink()
    succeeded(await master.run(OpInstanceRepair(instance_name=NAME)))
    await master.idle()
    after = master.instance(NAME)
    assert after.disks[0] == before.disks[0]
    assert after.disks[1].children[0].part(UUIDS[0]) != before.disks[1].children[0].part(UUIDS[0])
    check(master, kernels)


async def test_disks_that_lost_their_connection_are_found_and_activated(
    master: Master, kernels: Kernels
) -> None:
    await made(master)
    verify = OpGroupVerifyDisks(group_name="default")
    assert succeeded(await master.run(verify)) == [{}, [], {}]
    node = kernels.of(TWO)
    for name in list(node.devices):
        node.drop(name, "StandAlone")
    node.devices.clear()
    assert succeeded(await master.run(verify)) == [{}, [NAME], {}]
    succeeded(await master.run(OpInstanceActivateDisks(instance_name=NAME)))
    assert succeeded(await master.run(verify)) == [{}, [], {}]
    check(master, kernels)
    lost = min(kernels.volumes(TWO))
    (node.directory / lost).unlink()
    silent, closed, missing = succeeded(await master.run(verify))
    assert (silent, closed, list(missing)) == ({}, [], [NAME])
    assert [row[0] for row in missing[NAME]] == [TWO]


@pytest.mark.requirement("G13", "F22")
async def test_a_copy_that_was_cut_off_while_its_primary_was_written_to_is_not_used(
    master: Master, kernels: Kernels
) -> None:
    instance = await made(master, pnode=TWO, snode=THREE)
    one, two = kernels.of(TWO), kernels.of(THREE)
    verify = OpGroupVerifyDisks(group_name="default")
    written, other = (disk.uuid for disk in instance.disks)
    one.drop(written, "Connecting")
    two.drop(written, "Connecting")
    view = await master.run(verify)
    assert f"disk/0 of {NAME} on {THREE} misses the writes since" in said(view)
    assert two.disk_state(two.devices[written]) == "Outdated"
    assert two.disk_state(two.devices[other]) == "UpToDate"
    one.is_dead = True
    master.world.node(2).guests.clear()
    gone = replace(master.snapshot.nodes[UUIDS[1]], offline=True, master_candidate=False)
    await master.change(lambda draft: draft.put(gone))
    _, (text, _) = failed(await master.run(OpInstanceFailover(instance_name=NAME)))
    assert f"the copy on {THREE} is older than the other copy" in text
    view = await master.run(OpInstanceFailover(instance_name=NAME, ignore_consistency=True))
    succeeded(view)
    assert f"the guest loses these writes on {THREE}" in said(view)
    assert two.devices[written].role == "Primary"


@pytest.mark.requirement("G13")
async def test_a_copy_that_was_outdated_is_brought_up_to_date_again(
    master: Master, kernels: Kernels
) -> None:
    instance = await made(master)
    one = kernels.of(ONE)
    for node in (one, kernels.of(TWO)):
        for disk in instance.disks:
            node.drop(disk.uuid, "StandAlone")
    one.write(instance.disks[0].uuid)
    succeeded(await master.run(OpGroupVerifyDisks(group_name="default")))
    succeeded(await master.run(OpInstanceActivateDisks(instance_name=NAME)))
    check(master, kernels)


async def test_all_groups_are_looked_at(master: Master) -> None:
    await made(master)
    jobs = succeeded(await master.run(OpClusterVerifyDisks()))["jobs"]
    assert [is_accepted for is_accepted, _id in jobs] == [True]
    await master.idle()


@pytest.mark.requirement("F25")
async def test_the_devices_of_a_node_are_listed_also_orphaned_ones(
    master: Master, kernels: Kernels
) -> None:
    await made(master)
    node = kernels.of(TWO)
    await node.run(["drbdsetup", "new-resource", "foreign"])
    await node.run(["drbdsetup", "new-minor", "foreign", "7", "0"])
    rows = succeeded(await master.run(OpNodeListDrbd(node_name=TWO)))
    assert [row[:6] for row in rows] == [
        [TWO, 0, NAME, "disk/0", "secondary", ONE],
        [TWO, 1, NAME, "disk/1", "secondary", ONE],
        [TWO, 7, "", "", "nobody's", "foreign"],
    ]
    assert rows[0][6].startswith("Secondary, UpToDate")


@pytest.mark.requirement("S93")
async def test_a_node_gets_another_name_without_a_change_of_any_disk(master: Master) -> None:
    before = await made(master)
    node = master.snapshot.nodes[UUIDS[1]]
    await master.change(lambda draft: draft.put(replace(node, name="other.example.com")))
    assert master.instance(NAME).disks == before.disks
    assert before.disks[0].parts.keys() == {UUIDS[0], UUIDS[1]}


# --- another template, around the same data ---

CONVERSIONS = [("plain", "drbd"), ("drbd", "plain")]
CALLS, COMMITS = 8, 8
"""As many as the longer way has."""


def converted(template: str) -> OpCode:
    remote = TWO if template == "drbd" else None
    return modify(disk_template=template, remote_node=remote)


async def filled(master: Master, kernels: Kernels, template: str) -> None:
    """An instance that is down, and has been written to."""
    others = {} if template == "drbd" else {"disk_template": template, "snode": None}
    succeeded(await master.run(mirrored(**others, disks=[DiskRequest(size=8)])))
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    (path,) = _data(master, kernels)
    with path.open("r+b") as file:
        file.write(b"what the guest wrote")
    master.rpc.reset()


def _data(master: Master, kernels: Kernels) -> list[Path]:
    """The files that have the data of the instance on its primary node."""
    return [
        kernels.of(ONE).directory / str((disk.children or (disk,))[0].part(UUIDS[0])[1])
        for disk in master.instance(NAME).disks
    ]


async def check_whole(master: Master, kernels: Kernels, where: list[Path]) -> str:
    """The data is where it was, whatever became of the conversion; the template that the instance has."""
    master.rpc.forget_faults()
    master.check_nothing_is_held()
    assert _data(master, kernels) == where
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))
    check(master, kernels)
    assert where[0].read_bytes().startswith(b"what the guest wrote")
    return master.instance(NAME).disk_template


@pytest.mark.requirement("G11", "G12", "G13")
@pytest.mark.parametrize(("before", "after"), CONVERSIONS)
async def test_a_conversion_leaves_the_data_where_it_is(
    master: Master, kernels: Kernels, before: str, after: str
) -> None:
    await filled(master, kernels, before)
    where = _data(master, kernels)
    assert succeeded(await master.run(converted(after))) == [["disk_template", after]]
    assert not [call for call in master.rpc.calls if call.procedure.startswith("disk_")]
    assert await check_whole(master, kernels, where) == after


@pytest.mark.sampled(5)
@pytest.mark.requirement("G11", "G12", "G13", "F24")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, CALLS + 1))
@pytest.mark.parametrize(("before", "after"), CONVERSIONS)
async def test_a_conversion_in_place_that_fails_leaves_the_data(
    master: Master, kernels: Kernels, before: str, after: str, number: int, fault: Fault
) -> None:
    await filled(master, kernels, before)
    where = _data(master, kernels)
    master.rpc.fail(number, fault)
    view = await master.run(converted(after))
    await master.nothing_is_left()
    if await check_whole(master, kernels, where) == before:
        failed(view)


@pytest.mark.sampled(0)
@pytest.mark.requirement("G11", "G13", "F24")
@pytest.mark.parametrize("at", [ONE, TWO])
@pytest.mark.parametrize(("before", "after"), CONVERSIONS)
async def test_a_conversion_during_which_any_command_fails_leaves_the_data(
    master: Master, kernels: Kernels, before: str, after: str, at: str
) -> None:
    await filled(master, kernels, before)
    node, where = kernels.of(at), _data(master, kernels)
    for fail_at in range(80):
        node.calls.clear()
        node.fail_at = fail_at
        await master.run(converted(after))
        node.fail_at = None
        await master.nothing_is_left()
        done = await check_whole(master, kernels, where)
        succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
        if done == after:
            break
    else:
        pytest.fail("it never went through")


@pytest.mark.sampled(5)
@pytest.mark.requirement("G7", "G11", "G13")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
@pytest.mark.parametrize(("before", "after"), CONVERSIONS)
async def test_the_next_master_ends_or_undoes_a_conversion_in_place(
    kernels: Kernels, before: str, after: str, number: int, written: bool
) -> None:
    world = World(node_type=DrbdModelNode, enabled_disk_templates=("drbd", "plain", "diskless"))
    first = await Master.begin(world)
    await filled(first, kernels, before)
    where = _data(first, kernels)
    await first.submit(converted(after))
    first.store.inject(Crash(written=written), after=number)
    await first.is_dead_after_a_while()
    second = await first.restart()
    try:
        await second.idle()
        await check_whole(second, kernels, where)
    finally:
        await second.end()


@pytest.mark.requirement("G13")
async def test_a_copy_that_has_not_all_data_does_not_become_plain(
    master: Master, kernels: Kernels
) -> None:
    await filled(master, kernels, "drbd")
    (disk,) = master.instance(NAME).disks
    (kernels.of(ONE).directory / str(disk.children[1].part(UUIDS[0])[1])).unlink()
    failed(await master.run(converted("plain")))
    await master.nothing_is_left()
    assert master.instance(NAME).disk_template == "drbd"


async def test_a_mirrored_disk_is_shown_with_both_nodes_and_minors(master: Master) -> None:
    instance = await made(master)
    shown = succeeded(await master.run(OpInstanceQueryData(instances=[NAME])))[NAME]
    disk, shown_disk = instance.disks[0], shown["disks"][0]
    nodes = instance.all_nodes
    minors = [disk.part(node)[0] for node in nodes]
    assert shown_disk["logical_id"] == [*nodes, disk.logical_id[0], *minors, None]
    assert shown_disk["drbd_info"] == {
        "primary_node": shown["pnode"],
        "primary_minor": minors[0],
        "secondary_node": shown["snodes"][0],
        "secondary_minor": minors[1],
        "port": disk.logical_id[0],
    }
    for side in ("pstatus", "sstatus"):
        status = DiskView(*shown_disk[side])
        assert (status.is_degraded, status.state) == (False, CopyState.OK)
    assert [child["dev_type"] for child in shown_disk["children"]] == ["plain", "plain"]


# --- what verify finds ---


async def found(master: Master) -> list[list[str]]:
    """Severity, code, kind, name and text of what the check of the group says about DRBD."""
    view = await master.run(OpClusterVerifyGroup(group_name="default", error_codes=True))
    lines = [line.removeprefix("  - ").split(":", 4) for line in said(view).splitlines()]
    return [line for line in lines if len(line) > 1 and line[1].startswith("ENODEDRBD")]


@pytest.mark.requirement("F25", "G11")
async def test_verify_compares_minors_in_use_with_those_of_the_configuration(
    master: Master, kernels: Kernels
) -> None:
    await made(master)
    assert await found(master) == []
    node = kernels.of(TWO)
    await node.run(["drbdsetup", "new-resource", "foreign"])
    await node.run(["drbdsetup", "new-minor", "foreign", "7", "0"])
    first, second = (disk.uuid for disk in master.instance(NAME).disks)
    node.devices[first].minor = 9
    await node.run(["drbdsetup", "down", second])
    texts = {line[4] for line in await found(master)}
    assert texts == {
        "minor 7 is in use by foreign, which is not a disk of the cluster",
        f"disk/0 of {NAME} has minor 9 instead of 0",
        f"minor 1 (disk/1 of {NAME}) is not in use; run: gnt-instance activate-disks {NAME}",
    }


@pytest.mark.requirement("F22")
async def test_verify_compares_the_helper_and_the_version(
    master: Master, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(master)
    monkeypatch.setattr(kernels.of(ONE), "helper", "/sbin/drbdadm")
    monkeypatch.setattr(kernels.of(TWO), "version", "9.1.0")
    monkeypatch.setattr(kernels.of(THREE), "version", "")
    rows = [line[:2] + line[3:] for line in await found(master)]
    assert rows == [
        [
            *("ERROR", "ENODEDRBDHELPER", ONE),
            "DRBD calls '/sbin/drbdadm' instead of /bin/true: its option usermode_helper",
        ],
        ["ERROR", "ENODEDRBDVERSION", TWO, "has DRBD 9.1.0, but needs 8.4"],
        ["WARNING", "ENODEDRBD", THREE, "DRBD is not loaded (modprobe drbd)"],
    ]


async def test_verify_asks_for_storage_and_hypervisors_only_of_nodes_that_host_instances(
    master: Master,
) -> None:
    node = master.world.node(3)
    node.groups, node.hypervisors = {}, ()
    verify = OpClusterVerifyGroup(group_name="default")
    text = said(await master.run(verify))
    assert f"node {THREE}: lvm-vg storage: there is no volume group xenvg" in text
    assert f"node {THREE}: hypervisor kvm" in text
    succeeded(await master.run(OpNodeSetParams(node_name=THREE, vm_capable=False)))
    text = said(await master.run(verify))
    assert "there is no volume group" not in text
    assert "hypervisor" not in text


@pytest.mark.requirement("F22")
async def test_the_helper_of_the_cluster_is_one_that_decides_nothing(master: Master) -> None:
    refused = failed(await master.run(OpClusterSetParams(drbd_helper="/sbin/drbdadm")))
    assert "must be one that does nothing: /bin/true" in refused[1][0]
    succeeded(await master.run(OpClusterSetParams(drbd_helper="disabled")))
    assert {line[1] for line in await found(master)} == {"ENODEDRBDHELPER"}


@pytest.mark.requirement("S94")
@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("copy", "why"),
    [
        ({}, ""),
        ({"sync": None, "at_rest": SyncStatus(up_to_date=True, connected=False)}, ""),
        ({"sync": SyncStatus(up_to_date=False, connected=True)}, "is older than the other copy"),
        (
            {"sync": None, "at_rest": SyncStatus(up_to_date=False, connected=False)},
            "is older than the other copy",
        ),
        ({"exists": False}, "is missing"),
        ({"problem": "has an input error"}, "has an input error"),
        (None, "cannot be reached"),
    ],
)
async def test_a_group_is_repaired_only_if_the_other_node_has_a_good_copy(
    master: Master, copy: dict[str, Any] | None, why: str
) -> None:
    await made(master, disks=[DiskRequest(size=64)])
    repaired: list[str] = []

    async def look(_args: Any, _call: Any) -> list[DiskInfo]:
        good = SyncStatus(up_to_date=True, connected=True)
        return [DiskInfo(**{"exists": True, "sync": good, **(copy or {})})]

    async def give_up(_args: Any, _call: Any) -> list[str]:
        repaired.append(TWO)
        return []

    master.rpc.nodes[ONE] = {**master.rpc.nodes[ONE], DISKS_INFO.name: look}
    master.rpc.nodes[TWO] = {**master.rpc.nodes[TWO], STORAGE_UNIT_REPAIR.name: give_up}
    if copy is None:
        del master.rpc.nodes[ONE]
    view = await master.run(OpRepairNodeStorage(node_name=TWO, storage_type="lvm-vg", name="xenvg"))
    if not why:
        succeeded(view)
        assert repaired == [TWO]
        return
    text, code = failed(view)[1]
    assert code == "wrong_state"
    assert "data would be lost" in text
    assert why in text
    assert repaired == []
