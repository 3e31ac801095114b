"""Changing the disks, NICs and memory of instances, with failures at every step."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.fill import filled_nicparams
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import NodeUuid
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time

EVERYTHING: dict[str, Any] = {
    "disks": [["remove", 1, {}], ["add", 0, {"size": 100, "name": "data"}]],
    "nics": [["modify", 0, {"link": "br1", "mac": "aa:00:00:00:00:77"}], ["add", -1, {}]],
    "runtime_mem": 400,
    "beparams": {"minmem": 256, "maxmem": 512},
    "hotplug": True,
}
ACTS = [
    "blockdev_create", "hotplug_disk", "hotplug_nic", "hotplug_disk", "hotplug_nic",
    "instance_memory", "blockdev_remove",
]  # fmt: skip
COMMITS = 11


async def instance(master: Master, *, up: bool = True, **fields: Any) -> str:
    """An instance with two disks and a NIC, which may use from 256 to 512 MiB; returns its UUID."""
    beparams = {"minmem": 256, "maxmem": 512}
    succeeded(await master.run(create(**{"start": up, "beparams": beparams, **fields})))
    master.rpc.reset()
    return master.instance(NAME).uuid


def check(master: Master) -> None:
    """Nothing is left over, and what runs is what is configured."""
    master.check()
    master.check_guests_have_what_the_configuration_says()


@pytest.mark.requirement("S75")
async def test_a_running_guest_gets_and_loses_devices_at_once(master: Master) -> None:
    uuid = await instance(master)
    old = master.instance(NAME)
    view = await master.run(modify(**EVERYTHING))
    new = master.instance(NAME)
    assert [disk.size for disk in new.disks] == [100, 512]
    assert (new.disks[0].name, new.disks[1].uuid) == ("data", old.disks[0].uuid)
    assert (new.nics[0].uuid, new.nics[0].mac) == (old.nics[0].uuid, "aa:00:00:00:00:77")
    assert filled_nicparams(master.snapshot.cluster, new.nics[0])["link"] == "br1"
    results = succeeded(view)
    assert ["disk/1", "remove"] in results
    assert ["disk/0", "add:size=100,mode=rw"] in results
    assert ["nic.mac/0", "aa:00:00:00:00:77"] in results
    assert ["nic.link/0", "br1"] in results
    assert ["runtime_memory", 400] in results
    assert ["be/maxmem", 512] in results
    assert [value for _, value in results].count("hotplug:done") == 4
    assert master.rpc.acts() == ACTS
    assert master.world.node(1).guests[uuid].spec.memory == 400
    assert "be/maxmem takes effect at the next start" in said(view)
    assert "disk/0 takes effect" not in said(view)
    check(master)


@pytest.mark.sampled(6)
@pytest.mark.requirement("G11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, len(ACTS)))
async def test_a_change_that_fails_leaves_everything_as_it_was(
    master: Master, number: int, fault: Fault
) -> None:
    uuid = await instance(master)
    before = master.instance(NAME)
    master.rpc.fail(number, fault)
    failed(await master.run(modify(**EVERYTHING)))
    assert master.instance(NAME) == before
    assert master.world.node(1).guests[uuid].spec.memory == 512
    check(master)


async def test_a_removed_disk_that_cannot_be_deleted_is_reported(master: Master) -> None:
    await instance(master)
    master.rpc.fail(len(ACTS), Fault.REFUSED)
    view = await master.run(modify(**EVERYTHING))
    succeeded(view)
    assert "could not clean up (remove_disk)" in said(view)
    assert len(master.instance(NAME).disks) == 2
    assert len(master.world.disks()) == 3
    await master.nothing_is_left()
    check(master)


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("kept", ["memory", "nic", "disk"])
async def test_what_does_not_use_the_new_disk_does_not_block_its_removal(
    master: Master, kept: str
) -> None:
    """Acts: the disk is made, the guest gets it, then a NIC, then other memory, which fails."""
    await instance(master)
    master.rpc.fail(4, Fault.REFUSED)
    master.rpc.fail({"memory": 5, "nic": 6, "disk": 7}[kept], Fault.REFUSED)
    changes: dict[str, Any] = {"disks": [["add", {"size": 100}]], "nics": [["add", -1, {}]]}
    _, (text,) = failed(await master.run(modify(**changes, runtime_mem=400, hotplug=True)))
    assert "could not undo (" in text
    assert len(master.world.disks()) == (3 if kept == "disk" else 2)
    assert ("not tried, because change_disk_of_guest could not be undone" in text) == (
        kept == "disk"
    )
    await master.nothing_is_left()
    check(master)


@pytest.mark.sampled(4)
@pytest.mark.requirement("G11")
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_refused_commit_leaves_a_change_whole_or_undone(
    master: Master, number: int
) -> None:
    await instance(master)
    before = master.instance(NAME)
    job_id = await master.submit(modify(**EVERYTHING))
    master.store.inject(Refuse(), after=number)
    view = await master.final(job_id)
    assert (master.instance(NAME) == before) is (view.status is JobStatus.ERROR)
    check(master)


@pytest.mark.sampled(6)
@pytest.mark.requirement("G7", "G11")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(COMMITS))
async def test_a_master_that_dies_at_a_commit_leaves_a_change_whole_or_undone(
    world: World, number: int, written: bool
) -> None:
    master = await Master.begin(world)
    await instance(master)
    before = master.instance(NAME)
    await master.submit(modify(**EVERYTHING))
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    await check_whole_or_undone(master, before)


@pytest.mark.sampled(4)
@pytest.mark.requirement("G7", "G11")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, len(ACTS) + 1))
async def test_a_master_that_dies_around_an_act_leaves_a_change_whole_or_undone(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await instance(master)
    before = master.instance(NAME)
    master.die_at_act(number, is_done=is_done)
    await master.submit(modify(**EVERYTHING))
    assert await master.is_dead_after_a_while()
    await check_whole_or_undone(master, before)


async def check_whole_or_undone(master: Master, before: object) -> None:
    after = await master.restart()
    try:
        await after.idle()
        check(after)
        changed = after.instance(NAME)
        assert changed == before or [disk.size for disk in changed.disks] == [100, 512]
    finally:
        await after.end()


@pytest.mark.requirement("F24")
async def test_a_guest_that_cannot_be_changed_now_gets_new_devices_at_its_next_start(
    master: Master,
) -> None:
    uuid = await instance(master)
    master.world.node(1).hotplug_obstacles = ["the guest has no ACPI"]
    changes: dict[str, Any] = {"disks": [["add", {"size": 100}]], "nics": [["remove", 0, {}]]}
    name, (text, code) = failed(await master.run(modify(**changes, hotplug=True)))
    assert (name, code) == ("OpPrereqError", "wrong_state")
    assert "the guest has no ACPI" in text
    view = await master.run(modify(**changes, hotplug_if_possible=True))
    succeeded(view)
    assert "the running guest is not changed: the guest has no ACPI" in said(view)
    assert "disk/2 takes effect at the next start" in said(view)
    assert "nic.0 takes effect at the next start" in said(view)
    assert master.rpc.acts() == ["blockdev_create"]
    assert len(master.world.node(1).guests[uuid].spec.disks) == 2
    master.check()


async def test_no_disk_is_taken_from_under_a_running_guest(master: Master) -> None:
    await instance(master)
    master.world.node(1).hotplug_obstacles = ["it stands still"]
    for if_possible in (False, True):
        op = modify(disks=[["remove", -1, {}]], hotplug_if_possible=if_possible)
        name, (text, code) = failed(await master.run(op))
        assert (name, code) == ("OpPrereqError", "wrong_state")
        assert "has disk 1 open" in text
        assert "gnt-instance shutdown" in text
    assert master.rpc.acts() == []
    check(master)


async def test_of_what_is_down_only_the_configuration_and_the_disks_change(master: Master) -> None:
    await instance(master, up=False)
    fields = {**EVERYTHING, "runtime_mem": None}
    succeeded(await master.run(modify(**fields)))
    assert master.rpc.acts() == ["blockdev_create", "blockdev_remove"]
    check(master)


@pytest.mark.requirement("A40")
@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({}, "instance"),
        ({"disks": [["grow", 0, {}]]}, "disks[0]"),
        ({"disks": [["modify", 2, {"mode": "ro"}]]}, "disks[0]"),
        ({"disks": [["modify", -3, {"mode": "ro"}]]}, "disks[0]"),
        ({"disks": [["modify", 0, {}]]}, "disks[0]"),
        ({"disks": [["modify", 0, {"size": 5}]]}, "disks[0].size"),
        ({"disks": [["modify", 0, {"mode": "rx"}]]}, "disks[0].mode"),
        ({"disks": [["modify", 0, {"adopt": "x"}]]}, "disks[0].adopt"),
        ({"disks": [["modify", True, {"mode": "ro"}]]}, "disks[0]"),
        ({"disks": [["remove", 0, {"size": 1}]]}, "disks[0]"),
        ({"disks": [["add", -1, {}]]}, "disks[0].size"),
        ({"disks": [["add", -1, {"size": 0}]]}, "disks[0].size"),
        ({"disks": [["add", 4, {"size": 1}]]}, "disks[0]"),
        ({"disks": [["add", -2, {"size": 1}]]}, "disks[0]"),
        ({"disks": [["add", "x", {"size": 1}]]}, "disks[0]"),
        ({"disks": [["add", -1, {"size": 1, "name": "../x"}]]}, "disks[0].name"),
        ({"disks": [["add", -1, {"size": 1}]] * 15}, "disks"),
        ({"disks": [[]]}, "disks[0]"),
        ({"disks": [["add", 0, 1]]}, "disks[0]"),
        ({"nics": [["add", -1, {"mode": "open"}]]}, "nics[0].mode"),
        ({"nics": [["add", -1, {"mode": "routed"}]]}, "nics[1].ip"),
        ({"nics": [["modify", 0, {"mode": "routed"}]]}, "nics[0].ip"),
        ({"nics": [["modify", 0, {"mac": "x"}]]}, "nics[0].mac"),
        ({"nics": [["modify", 0, {"link": "a b;id"}]]}, "nics[0].link"),
        ({"nics": [["modify", 0, {"script": "/x"}]]}, "nics[0].script"),
        ({"nics": [["add", -1, {}]] * 8}, "nics"),
        ({"disk_template": "plain"}, "disk_template"),
        ({"pnode": "node2", "runtime_mem": 64}, "runtime_mem"),
        ({"hotplug": True, "hotplug_if_possible": True, "nics": [["add", {}]]}, "hotplug_if_possible"),
        ({"runtime_mem": 0}, "runtime_mem"),
        ({"runtime_mem": 1000}, "runtime_mem"),
    ],
)  # fmt: skip
async def test_a_wrong_request_is_named_and_nothing_is_done(
    master: Master, fields: dict[str, Any], where: str
) -> None:
    await instance(master)
    before = master.instance(NAME)
    name, (text, code) = failed(await master.run(modify(**fields)))
    assert (name, code) == ("OpPrereqError", "wrong_input"), text
    assert text.startswith((f"{where}: ", f"{where} ")), text
    assert master.rpc.acts() == []
    assert master.instance(NAME) == before
    check(master)


async def test_devices_are_found_by_index_from_either_end_by_name_and_by_uuid(
    master: Master,
) -> None:
    await instance(
        master,
        up=False,
        disks=[DiskRequest(size=1, name="a"), DiskRequest(size=2), DiskRequest(size=3, name="c")],
        nics=[NicRequest(name="lan")],
    )
    first, second, third = master.instance(NAME).disks
    alike = replace(master.instance(NAME), disks=(first, second, replace(third, name="a")))
    await master.change(lambda draft: draft.put(alike))  # an older version allowed it
    middle = master.instance(NAME).disks[1].uuid
    for identifier in (1, -2, "1", middle):
        for mode in ("ro", "rw"):
            op = modify(disks=[["modify", identifier, {"mode": mode}]])
            assert succeeded(await master.run(op)) == [["disk.mode/1", mode]]
            assert [disk.mode for disk in master.instance(NAME).disks] == ["rw", mode, "rw"]
    op = modify(nics=[["lan", {"link": "br1", "vlan": "7", "name": "None"}]])
    assert succeeded(await master.run(op)) == [
        ["nic.link/0", "br1"], ["nic.vlan/0", ".7"], ["nic.name/0", None],
    ]  # fmt: skip
    _, (text, code) = failed(await master.run(modify(nics=[["add", {"link": "nosuchbr"}]])))
    assert (code, "the bridge 'nosuchbr' does not exist" in text) == ("environment_error", True)
    succeeded(await master.run(modify(nics=[["add", {"link": "nosuchbr"}]], force=True)))
    for identifier, code in (("a", "resource_not_unique"), ("b", "unknown_entity")):
        _, (_, found) = failed(await master.run(modify(disks=[["remove", identifier, {}]])))
        assert found == code


@pytest.mark.parametrize(
    "changes",
    [
        {"disks": [["add", {"size": 1, "name": "b"}], ["add", {"size": 1, "name": "b"}]]},
        {"disks": [["add", {"size": 1, "name": "2"}]]},
        {"disks": [[0, {"name": "b"}], [1, {"name": "b"}]]},
        {"nics": [["add", {"name": "b"}], ["add", {"name": "b"}]]},
        {"nics": [["add", {"name": "-1"}]]},
    ],
)
async def test_a_name_means_one_device_and_is_no_number(
    master: Master, changes: dict[str, Any]
) -> None:
    await instance(master, up=False)
    before = master.instance(NAME)
    _, (_, code) = failed(await master.run(modify(**changes)))
    assert (code, master.instance(NAME)) == ("wrong_input", before)
    check(master)


@pytest.mark.requirement("F24", "G11")
async def test_an_address_that_another_instance_has_is_refused_before_any_act(
    master: Master,
) -> None:
    await instance(master)
    mac = "aa:00:00:00:00:99"
    succeeded(
        await master.run(create("web2.example.com", nics=[NicRequest(mac=mac, ip="192.0.2.77")]))
    )
    master.rpc.reset()
    for nic in ({"mac": mac}, {"ip": "192.0.2.77"}):
        for change in (["add", -1, nic], ["modify", 0, nic]):
            op = modify(nics=[change], disks=[["add", {"size": 1}]], hotplug=True)
            _, (_, code) = failed(await master.run(op))
            assert code == "resource_not_unique"
    assert master.rpc.acts() == []
    check(master)


async def test_a_nic_takes_its_network_from_the_cluster_again(master: Master) -> None:
    await instance(master, up=False, nics=[NicRequest(link="br1", ip="192.0.2.9", vlan=".7")])
    change = {"link": "default", "vlan": None, "ip": "None", "mac": "generate"}
    op = modify(nics=[["modify", 0, change]])
    succeeded(await master.run(op))
    [nic] = master.instance(NAME).nics
    assert (nic.nicparams, nic.ip) == ({}, None)


@pytest.mark.requirement("F20")
async def test_while_it_is_not_known_where_the_guest_is_nothing_is_changed(
    master: Master,
) -> None:
    uuid = await instance(master)
    moving = replace(master.instance(NAME), migrating_to=NodeUuid(NODES[1]))
    await master.change(lambda draft: draft.put(moving))
    _, (text, code) = failed(await master.run(modify(**EVERYTHING)))
    assert code == "wrong_state"
    assert "migrate --cleanup" in text
    await master.change(lambda draft: draft.put(replace(moving, migrating_to=None)))
    master.world.node(1).guests[uuid].state = "migrating"
    _, (text, code) = failed(await master.run(modify(**EVERYTHING)))
    assert (code, "is under way" in text) == ("wrong_state", True)
    assert master.rpc.acts() == []


@pytest.mark.requirement("S235")
async def test_the_instance_policy_holds_for_changes_too(master: Master) -> None:
    await instance(master, up=False)
    limits = {"minmax": [{"max": {"disk-count": 2, "memory-size": 512}}]}
    cluster = replace(master.snapshot.cluster, ipolicy=limits)
    await master.change(lambda draft: draft.put(cluster))
    for fields in ({"disks": [["add", {"size": 1}]]}, {"beparams": {"memory": 600}}):
        _, (text, _) = failed(await master.run(modify(**fields)))
        assert "violates the policy" in text
    view = await master.run(modify(disks=[["add", {"size": 1}]], ignore_ipolicy=True))
    succeeded(view)
    assert "violates the policy" in said(view)


async def test_disks_that_do_not_fit_and_memory_that_is_not_there_are_refused(
    master: Master,
) -> None:
    await instance(master)
    for fields in ({"disks": [["add", {"size": 10**6}]]}, {"beparams": {"memory": 9000}}):
        _, (_, code) = failed(await master.run(modify(**fields, ignore_ipolicy=True)))
        assert code == "insufficient_resources"
    assert master.rpc.acts() == []
    succeeded(await master.run(modify(beparams={"memory": 9000}, force=True)))


async def test_a_dry_run_reports_what_would_change_and_changes_nothing(master: Master) -> None:
    await instance(master)
    before = master.instance(NAME)
    results = succeeded(await master.run(modify(**EVERYTHING, dry_run=True)))
    assert ["runtime_memory", 400] in results
    assert master.instance(NAME) == before
    assert master.rpc.acts() == []


async def test_memory_of_what_is_down_is_not_changed(master: Master) -> None:
    await instance(master, up=False)
    _, (text, code) = failed(await master.run(modify(runtime_mem=300)))
    assert (code, "does not run" in text) == ("wrong_state", True)


async def test_offline_and_online_are_remembered(master: Master) -> None:
    await instance(master)
    _, (text, _) = failed(await master.run(modify(offline=True)))
    assert "shut it down" in text
    assert succeeded(await master.run(modify(offline=False))) == [], "it is so already"
    down = replace(master.instance(NAME), admin_state=AdminState.DOWN)
    await master.change(lambda draft: draft.put(down))
    _, (text, _) = failed(await master.run(modify(offline=True)))
    assert "runs; shut it down" in text
    master.world.node(1).guests.clear()
    assert succeeded(await master.run(modify(offline=True))) == [["admin_state", "offline"]]
    assert succeeded(await master.run(modify(offline=False))) == [["admin_state", "down"]]
    assert master.instance(NAME).admin_state is AdminState.DOWN


async def test_on_an_offline_node_parameters_change_and_disks_do_not(master: Master) -> None:
    succeeded(await master.run(create(pnode="node2", start=False)))
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    master.rpc.reset()
    succeeded(await master.run(modify(beparams={"vcpus": 2}, nics=[["add", {}]])))
    _, (text, _) = failed(await master.run(modify(disks=[["add", {"size": 1}]])))
    assert "is marked offline" in text
    assert master.rpc.acts() == []


@pytest.mark.parametrize("name", ["link", "mode"])
async def test_what_a_nic_must_have_cannot_be_empty(master: Master, name: str) -> None:
    await master.run(create())
    view = await master.run(modify(nics=[["modify", 0, {name: ""}]]))
    assert f"nics[0].{name}: cannot be empty; 'default' resets it to the cluster's" in str(
        view.ops[0].result
    )


async def test_an_empty_vlan_is_none_whatever_the_cluster_has(master: Master) -> None:
    await master.run(create(nics=[NicRequest(vlan="10")]))
    assert master.instance(NAME).nics[0].nicparams["vlan"] == ".10"
    await master.run(modify(nics=[["modify", 0, {"vlan": ""}]]))
    assert master.instance(NAME).nics[0].nicparams["vlan"] == ""
    await master.run(modify(nics=[["modify", 0, {"vlan": "default"}]]))
    assert "vlan" not in master.instance(NAME).nics[0].nicparams


@pytest.mark.parametrize("directory", ["", "/", "//", ".", "a/./b", "x/" * 300, "x" * 200])
async def test_a_subdirectory_that_is_none_makes_no_disk(master: Master, directory: str) -> None:
    view = await master.run(create(file_storage_dir=directory))
    assert "file_storage_dir" in str(view.ops[0].result)
    assert master.rpc.acts() == []
    await master.run(create())
    add = modify(disks=[["add", -1, {"size": 64}]], file_storage_dir=directory)
    assert "file_storage_dir" in str((await master.run(add)).ops[0].result)
    await master.nothing_is_left()


CD, EMPTY = "/srv/ganeti/images/a.iso", "empty"


async def _with_drive(master: Master, world: World) -> str:
    """An instance of kvm that runs with an empty CD drive; its UUID."""
    made = await master.run(create(hypervisor="kvm", hvparams={"cdrom_image_path": EMPTY}))
    succeeded(made)
    return master.instance(NAME).uuid


def _in_the_drive(world: World, uuid: str) -> object:
    return world.node(1).guests[uuid].spec.hvparams["cdrom_image_path"]


async def test_the_cd_of_a_running_guest_is_changed_at_once(master: Master, world: World) -> None:
    uuid = await _with_drive(master, world)
    put_in = modify(hvparams={"cdrom_image_path": CD}, hotplug_if_possible=True)
    view = await master.run(put_in)
    succeeded(view)
    assert _in_the_drive(world, uuid) == CD
    assert "next start" not in said(view)
    await master.run(modify(hvparams={"cdrom_image_path": ""}, hotplug=True))
    assert (_in_the_drive(world, uuid), master.instance(NAME).hvparams["cdrom_image_path"]) == (
        EMPTY,
        "",
    )
    later = await master.run(modify(hvparams={"cdrom_image_path": CD}))
    assert _in_the_drive(world, uuid) == EMPTY
    assert "hv/cdrom_image_path takes effect at the next start" in said(later)


async def test_a_guest_without_a_drive_gets_it_at_its_next_start(
    master: Master, world: World
) -> None:
    succeeded(await master.run(create(hypervisor="kvm")))
    wanted = {"cdrom_image_path": CD}
    refused = await master.run(modify(hvparams=wanted, hotplug=True))
    assert "no drive for cdrom_image_path" in str(refused.ops[0].result)
    assert "cdrom_image_path" not in master.instance(NAME).hvparams
    view = await master.run(modify(hvparams=wanted, hotplug_if_possible=True))
    succeeded(view)
    assert "it takes effect at the next start" in said(view)
    assert master.instance(NAME).hvparams["cdrom_image_path"] == CD


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2])
async def test_a_change_that_fails_puts_the_old_cd_back(
    master: Master, world: World, number: int, fault: Fault
) -> None:
    uuid = await _with_drive(master, world)
    master.rpc.reset()
    master.rpc.fail(number, fault)
    op = modify(hvparams={"cdrom_image_path": CD}, hotplug=True, runtime_mem=512)
    view = await master.run(op)
    assert master.rpc.acts()[:number] == ["hotplug_medium", "instance_memory"][:number]
    assert view.status == "error"
    await master.nothing_is_left()
    assert _in_the_drive(world, uuid) == EMPTY
    assert master.instance(NAME).hvparams["cdrom_image_path"] == EMPTY


def _vcpus_of_guest(master: Master, uuid: str) -> int:
    return master.world.node(1).guests[uuid].spec.vcpus


async def test_a_running_guest_gets_processors_at_once_if_it_has_room(
    master: Master, world: World
) -> None:
    uuid = await instance(master)
    view = await master.run(modify(beparams={"vcpus": 4}, hotplug=True))
    assert ["runtime_vcpus", 4] in succeeded(view)
    assert "next start" not in said(view)
    assert _vcpus_of_guest(master, uuid) == 4
    less = await master.run(modify(beparams={"vcpus": 2}, hotplug_if_possible=True))
    assert "next start" not in said(less)
    assert _vcpus_of_guest(master, uuid) == 2
    later = await master.run(modify(beparams={"vcpus": 3}))
    assert "be/vcpus takes effect at the next start" in said(later)
    back = await master.run(modify(beparams={"vcpus": 2}))
    assert "next start" not in said(back), "the guest has two"
    assert _vcpus_of_guest(master, uuid) == 2
    check(master)


async def test_a_guest_without_room_gets_processors_at_its_next_start(
    master: Master, world: World
) -> None:
    uuid = await instance(master)
    world.node(1).guests_may_have_vcpus = 2
    _, (text, code) = failed(await master.run(modify(beparams={"vcpus": 4}, hotplug=True)))
    assert (code, "can have 1 to 2 processors, not 4" in text) == ("wrong_state", True)
    assert master.instance(NAME).beparams.get("vcpus", 1) == 1
    changes: dict[str, Any] = {"beparams": {"vcpus": 4}, "nics": [["add", -1, {}]]}
    view = await master.run(modify(**changes, hotplug_if_possible=True))
    succeeded(view)
    assert "be/vcpus takes effect at the next start" in said(view)
    assert "nic.1 takes" not in said(view)
    assert (_vcpus_of_guest(master, uuid), master.instance(NAME).beparams["vcpus"]) == (1, 4)
    check(master)


async def test_processors_wait_while_something_stands_in_the_way(master: Master) -> None:
    uuid = await instance(master)
    master.world.node(1).hotplug_obstacles = ["the guest has no ACPI"]
    failed(await master.run(modify(beparams={"vcpus": 4}, hotplug=True)))
    view = await master.run(modify(beparams={"vcpus": 4}, hotplug_if_possible=True))
    assert "be/vcpus takes effect at the next start" in said(view)
    assert _vcpus_of_guest(master, uuid) == 1


async def test_the_policy_bounds_processors_of_running_guests(master: Master) -> None:
    uuid = await instance(master)
    name, _ = failed(await master.run(modify(beparams={"vcpus": 300}, hotplug=True)))
    assert (name, _vcpus_of_guest(master, uuid)) == ("OpPrereqError", 1)


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", [1, 2])
async def test_a_change_that_fails_gives_the_guest_its_processors_back(
    master: Master, number: int, fault: Fault
) -> None:
    uuid = await instance(master)
    master.rpc.fail(number, fault)
    op = modify(beparams={"vcpus": 3}, hotplug=True, runtime_mem=400)
    failed(await master.run(op))
    assert master.rpc.acts()[:number] == ["instance_vcpus", "instance_memory"][:number]
    await master.nothing_is_left()
    assert _vcpus_of_guest(master, uuid) == 1
    assert master.instance(NAME).beparams.get("vcpus", 1) == 1
    check(master)


def _memory_of_guest(master: Master, uuid: str) -> int:
    return master.world.node(1).guests[uuid].spec.memory


async def test_a_running_guest_gets_memory_at_once_if_it_has_room(master: Master) -> None:
    uuid = await instance(master)
    view = await master.run(modify(beparams={"maxmem": 768}, hotplug_if_possible=True))
    assert ["runtime_memory", 768] in succeeded(view)
    assert "next start" not in said(view)
    assert _memory_of_guest(master, uuid) == 768
    # Without an explicit request no memory is taken from a running guest.
    kept = await master.run(modify(beparams={"maxmem": 512}, hotplug_if_possible=True))
    assert "be/maxmem takes effect at the next start" in said(kept)
    assert _memory_of_guest(master, uuid) == 768
    less = await master.run(modify(beparams={"memory": 384}, hotplug=True))
    assert ["runtime_memory", 384] in succeeded(less)
    assert _memory_of_guest(master, uuid) == 384
    check(master)


async def test_a_higher_minimum_gives_a_guest_memory_back(master: Master) -> None:
    uuid = await instance(master)
    succeeded(await master.run(modify(runtime_mem=300)))
    succeeded(await master.run(modify(beparams={"minmem": 280}, hotplug=True)))
    assert _memory_of_guest(master, uuid) == 300
    succeeded(await master.run(modify(beparams={"minmem": 400}, hotplug=True)))
    assert _memory_of_guest(master, uuid) == 400


async def test_a_guest_without_room_gets_memory_at_its_next_start(master: Master) -> None:
    uuid = await instance(master)
    master.world.node(1).guests_may_have_memory = 600
    _, (text, code) = failed(await master.run(modify(beparams={"maxmem": 768}, hotplug=True)))
    assert (code, "at most 600 MiB of memory, not 768" in text) == ("wrong_state", True)
    view = await master.run(modify(beparams={"maxmem": 768}, hotplug_if_possible=True))
    assert "be/maxmem takes effect at the next start" in said(view)
    assert _memory_of_guest(master, uuid) == 512
    check(master)


async def test_a_node_without_the_memory_refuses_it_to_a_running_guest(master: Master) -> None:
    uuid = await instance(master)
    later = await master.run(modify(beparams={"maxmem": 100_000}, force=True))
    succeeded(later)
    name, (text, code) = failed(await master.run(modify(beparams={"maxmem": 99_000}, hotplug=True)))
    assert (name, code) == ("OpPrereqError", "insufficient_resources")
    assert "memory" in text
    assert _memory_of_guest(master, uuid) == 512


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("fault", list(Fault))
async def test_memory_that_a_guest_does_not_take_changes_nothing(
    master: Master, fault: Fault
) -> None:
    uuid = await instance(master)
    before = master.instance(NAME)
    master.rpc.fail(1, fault)
    failed(await master.run(modify(beparams={"maxmem": 768}, hotplug=True)))
    await master.nothing_is_left()
    assert (_memory_of_guest(master, uuid), master.instance(NAME)) == (512, before)
    check(master)
