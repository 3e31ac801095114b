"""Exports and imports: all of it or nothing, nothing left over, and the guest as it was."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.names import AdminState
from ganeti.model.opcodes.backup import (
    OpBackupExport,
    OpBackupQuery,
    OpBackupRemove,
    OpBackupVerify,
)
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceRemove
from ganeti.model.opcodes.network import OpNetworkAdd, OpNetworkConnect
from ganeti.protocols.export_description import parse_description
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.export_nodes import Export, ExportNode, digest
from tests.support.fake_rpc import Fault
from tests.support.slow_calls import Slow, check_shown
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

CLONE = "web2.example.com"


@pytest.fixture
def world() -> World:
    return World(node_type=ExportNode)


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def node(master: Master, number: int) -> ExportNode:
    found = master.world.node(number)
    assert isinstance(found, ExportNode)
    return found


def export(**fields: Any) -> OpBackupExport:
    given: dict[str, Any] = {"instance_name": NAME, "target_node": "node2.example.com"}
    return OpBackupExport(**{**given, **fields})


def import_(name: str = CLONE, **fields: Any) -> OpInstanceCreate:
    given: dict[str, Any] = {
        "instance_name": name,
        "mode": "import",
        "pnode": "node3.example.com",
        "src_path": NAME,
        "start": False,
    }
    return OpInstanceCreate(**{**given, **fields})


async def with_data(master: Master, **fields: Any) -> str:
    """An instance on the first node, with something on its disks; its UUID."""
    succeeded(await master.run(create(disk_template="file", **fields)))
    local = node(master, 1).local
    for path in local.disks:
        local.contents[path] = f"data of {path}"
    master.rpc.reset()
    return master.instance(NAME).uuid


def contents(master: Master, name: str, number: int) -> list[str]:
    """What is on the disks of an instance, on one node."""
    local = node(master, number).local
    return [local.contents[str(disk.logical_id[1])] for disk in master.instance(name).disks]


def check_nothing_is_left(master: Master) -> None:
    master.check()
    for number in (1, 2, 3):
        one = node(master, number)
        assert (one.keys, one.receiving, one.unfinished, one.snapshots) == (set(), {}, {}, {})


# --- exports ---


@pytest.mark.requirement("S132", "S140")
async def test_an_export_has_all_disks_their_digests_and_a_description(master: Master) -> None:
    uuid = await with_data(master, tags=["blue"], osparams={"ns1": "100%"})
    data = contents(master, NAME, 1)
    view = await master.run(export())
    assert succeeded(view) == [True, [True, True]]
    found = node(master, 2).exports[NAME]
    assert list(found.files.values()) == data
    described = parse_description(found.config)
    assert [disk.sha256 for disk in described.disks] == [digest(one) for one in data]
    assert [disk.size for disk in described.disks] == [512, 256]
    assert (described.name, described.os, described.data) == (NAME, "tiny", "script")
    assert (described.tags, described.osparams) == (("blue",), {"ns1": "100%"})
    assert described.nics[0].mac == master.instance(NAME).nics[0].mac
    assert node(master, 1).carried == [("tiny", "", "none")] * 2
    assert master.world.where(uuid) == {"node1.example.com": "running"}
    assert "exporting disk 1 (256 MiB) to node2.example.com" in said(view)
    check_nothing_is_left(master)


@pytest.mark.parametrize("is_import", [False, True])
async def test_an_export_and_an_import_show_how_far_each_disk_is(
    master: Master, *, is_import: bool
) -> None:
    await with_data(master)
    if is_import:
        succeeded(await master.run(export()))
    Slow(master, 2 if is_import else 1, "stream_send")
    view = await master.run(import_() if is_import else export())
    succeeded(view)
    for index in (0, 1):
        check_shown(view, f"disk {index}")


async def test_without_snapshots_the_guest_is_down_meanwhile(master: Master) -> None:
    uuid = await with_data(master)
    succeeded(await master.run(export()))
    acts = master.rpc.acts()
    assert acts[0] == "instance_shutdown"
    assert "instance_start" in acts
    assert acts.index("instance_start") > acts.index("export_finish")
    _, (text, code) = failed(await master.run(export(shutdown=False)))
    assert code == "wrong_state"
    assert "have no snapshots" in text
    assert master.world.where(uuid) == {"node1.example.com": "running"}


async def test_with_snapshots_it_is_down_for_a_moment_or_not_at_all(master: Master) -> None:
    await with_data(master)
    node(master, 1).has_snapshots = True
    data = contents(master, NAME, 1)
    succeeded(await master.run(export()))
    acts = master.rpc.acts()
    assert acts.index("instance_start") < acts.index("stream_send")
    assert list(node(master, 2).exports[NAME].files.values()) == data
    master.rpc.reset()
    succeeded(await master.run(export(shutdown=False)))
    assert "instance_shutdown" not in master.rpc.acts()
    master.rpc.reset()
    succeeded(await master.run(export(long_sleep=True)))
    assert "snapshot_take" not in master.rpc.acts()
    check_nothing_is_left(master)


async def test_a_newer_export_elsewhere_replaces_the_older_one(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export(target_node="node3")))
    succeeded(await master.run(export()))
    assert succeeded(await master.run(OpBackupQuery())) == {
        "node1.example.com": [],
        "node2.example.com": [NAME],
        "node3.example.com": [],
    }
    succeeded(await master.run(OpBackupRemove(instance_name=NAME)))
    assert node(master, 2).exports == {}
    _, (text, code) = failed(await master.run(OpBackupRemove(instance_name=NAME)))
    assert code == "unknown_entity"
    assert "no node that answers has an export" in text


async def test_exports_are_verified_on_all_nodes_and_damage_is_named(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    verify = OpBackupVerify(instance_name=NAME)
    found = succeeded(await master.run(verify))
    assert [(one["node"], one["disk"], one["problem"]) for one in found] == [
        ("node2.example.com", 0, ""),
        ("node2.example.com", 1, ""),
    ]
    files = node(master, 2).exports[NAME].files
    node(master, 3).exports[NAME] = replace_files(node(master, 2).exports[NAME], damaged=1)
    view = await master.run(verify)
    _, (text, *_code) = failed(view)
    assert f"node3.example.com: disk 1 ({list(files)[1]}): its data is not" in text
    assert "1 problems" in text
    assert "node2.example.com: disk 1 is good" in said(view)
    _, (text, code) = failed(await master.run(OpBackupVerify(instance_name="web9.example.com")))
    assert code == "unknown_entity"


async def test_a_node_that_fails_does_not_hide_the_state_of_other_exports(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    node(master, 1).exports[NAME] = node(master, 2).exports[NAME]
    master.rpc.reset()
    master.rpc.fail(1, Fault.REFUSED)
    view = await master.run(OpBackupVerify(instance_name=NAME))
    failed(view)
    assert "node2.example.com: disk 0 is good" in said(view)
    assert master.world.where(master.instance(NAME).uuid) == {"node1.example.com": "running"}


def replace_files(found: Export, *, damaged: int) -> Export:
    """The same export with another byte in one dump."""
    files = dict(found.files)
    name = list(files)[damaged]
    return Export(found.config, {**files, name: files[name] + "!"})


async def test_an_os_without_scripts_has_its_disks_copied_as_they_are(master: Master) -> None:
    await with_data(master)
    node(master, 1).os_scripts = ["create"]
    succeeded(await master.run(export(compress="zstd")))
    assert node(master, 1).carried == [("", "", "zstd")] * 2
    described = parse_description(node(master, 2).exports[NAME].config)
    assert (described.data, described.compression) == ("raw", "zstd")


async def test_an_exported_instance_can_be_removed(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export(remove_instance=True)))
    assert master.snapshot.instance_by_name(NAME) is None
    assert NAME in node(master, 2).exports
    check_nothing_is_left(master)


async def test_output_of_a_long_script_is_logged_while_it_runs(master: Master) -> None:
    await with_data(master)
    node(master, 1).script_says = "saving the root file system\n"
    view = await master.run(export())
    assert "   saving the root file system" in said(view)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"target_node": "node9"}, "unknown_entity", "node9"),
        ({"target_node": None}, "wrong_input", "target_node"),
        ({"target_node": [1]}, "wrong_input", "target_node"),
        ({"compress": "rar"}, "wrong_input", "compress"),
        ({"mode": "elsewhere"}, "wrong_input", "mode"),
        ({"zero_free_space": True}, "wrong_input", "zero_free_space"),
        ({"shutdown_timeout": -1}, "wrong_input", "shutdown_timeout"),
        ({"shutdown": False, "remove_instance": True}, "wrong_input", "remove_instance"),
        ({"ignore_remove_failures": True}, "wrong_input", "ignore_remove_failures"),
    ],
)
async def test_a_wrong_export_is_refused(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    await with_data(master)
    _, arguments = failed(await master.run(export(**fields)))
    assert arguments[1] == code
    assert text in arguments[0]
    assert master.rpc.acts() == []


async def test_an_export_that_will_not_fit_is_refused(master: Master) -> None:
    await with_data(master)
    node(master, 2).export_space = 700
    _, (text, code) = failed(await master.run(export()))
    assert code == "insufficient_resources"
    assert "768 MiB are needed" in text
    succeeded(await master.run(export(compress="gzip")))


async def test_a_drained_node_takes_no_export(master: Master) -> None:
    await with_data(master)
    drained = replace(master.node(2), drained=True)
    await master.change(lambda draft: draft.put(drained))
    _, (text, code) = failed(await master.run(export()))
    assert "is drained and accepts no exports" in text
    assert code == "wrong_state"


@pytest.mark.requirement("S132", "A54")
async def test_what_no_import_could_read_is_refused_before_anything_is_done(
    master: Master,
) -> None:
    await with_data(master, osparams={"ns1": "a\x1b[2J"})
    _, arguments = failed(await master.run(export()))
    assert "os.ns1" in arguments[0]
    succeeded(await master.run(create("web.new", disk_template="file")))
    master.rpc.reset()
    _, arguments = failed(await master.run(export(instance_name="web.new")))
    assert "gnt-instance rename" in arguments[0]
    assert master.rpc.acts() == []


async def test_blanks_that_an_export_does_not_keep_are_reported(master: Master) -> None:
    await with_data(master, osparams={"ns1": " a\tb"})
    view = await master.run(export())
    assert "osparams.ns1" in said(view)
    succeeded(await master.run(import_()))
    assert master.instance(CLONE).osparams == {"ns1": "a\tb"}


EXPORT_ACTS = 20


@pytest.mark.parametrize("number", range(1, EXPORT_ACTS))
async def test_after_any_failed_call_of_an_export_nothing_is_left_and_the_guest_runs(
    master: Master, number: int
) -> None:
    fault = (Fault.REFUSED, Fault.LOST_ANSWER)[number // 3 % 2]
    uuid = await with_data(master)
    node(master, 2).exports[NAME] = older = node(master, 2).exports.get(NAME) or _older()
    master.rpc.fail(number, fault)
    view = await master.run(export())
    await master.nothing_is_left()
    found = node(master, 2).exports[NAME]
    if view.status.value == "error" and fault is Fault.REFUSED:
        assert found is older
    elif view.status.value != "error":
        assert list(found.files.values()) == contents(master, NAME, 1)
    # A guest whose start was refused is the watcher's; any other runs.
    if master.world.where(uuid):
        check_nothing_is_left(master)
    else:
        assert "instance_start" in master.rpc.acts()[number - 1 : number + 1]


def _older() -> Export:

    return Export("[export]\n", {"old": "data"})


@pytest.mark.parametrize("number", range(0, 14, 2))
async def test_a_refused_commit_leaves_no_half_export(master: Master, number: int) -> None:
    await with_data(master)
    job_id = await master.submit(export())
    master.store.inject(Refuse(), after=number)
    await master.final(job_id)
    await master.nothing_is_left()
    assert [node(master, one).unfinished for one in (1, 2, 3)] == [{}, {}, {}]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize("number", range(0, 14, 2))
async def test_a_master_that_dies_leaves_no_half_export_no_key_and_a_guest_that_runs(
    world: World, number: int, written: bool, snapshots: bool
) -> None:
    master = await Master.begin(world)
    uuid = await with_data(master)
    node(master, 1).has_snapshots = snapshots
    await master.submit(export())
    master.store.inject(Crash(written=written), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        for one in (1, 2, 3):
            assert (node(after, one).unfinished, node(after, one).keys) == ({}, set())
        assert node(after, 1).snapshots == {}
        assert after.world.where(uuid) == {"node1.example.com": "running"}
    finally:
        await after.end()


# --- imports ---


async def test_an_interface_comes_back_to_its_network_if_that_is_there(master: Master) -> None:
    for op in (
        OpNetworkAdd(network_name="lan", network="198.51.100.0/24"),
        OpNetworkConnect(
            network_name="lan", group_name="default", network_mode="bridged", network_link="br7"
        ),
    ):
        succeeded(await master.run(op))
    await with_data(master, nics=[NicRequest(network="lan", ip="198.51.100.9")])
    network = master.instance(NAME).nics[0].network
    succeeded(await master.run(export()))
    [nic] = parse_description(node(master, 2).exports[NAME].config).nics
    assert (nic.network, nic.ip) == (network, "198.51.100.9")
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME, ignore_failures=False)))
    succeeded(await master.run(import_()))
    made = master.instance(CLONE).nics[0]
    assert (made.network, made.ip) == (network, "198.51.100.9")
    found = node(master, 2).exports[NAME]
    found.config = found.config.replace(str(network), "11111111-2222-4333-8444-555555555555")
    found.config = found.config.replace("198.51.100.9", "None")
    view = await master.run(import_("other.example.com"))
    succeeded(view)
    assert master.instance("other.example.com").nics[0].network is None
    assert "of interface 0 is unknown" in said(view)


@pytest.mark.requirement("S156")
async def test_blacklisted_os_is_imported_all_the_same(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    os = master.instance(NAME).os.partition("+")[0]
    succeeded(await master.run(OpClusterSetParams(blacklisted_os=[("add", os)])))
    succeeded(await master.run(import_()))
    assert master.instance(CLONE).os.partition("+")[0] == os


@pytest.mark.requirement("S131", "S132", "S136")
async def test_an_import_is_the_instance_under_another_name(master: Master) -> None:
    await with_data(master, tags=["blue"], osparams={"ns1": "a"}, beparams={"memory": 300})
    data = contents(master, NAME, 1)
    succeeded(await master.run(export()))
    view = await master.run(import_())
    assert succeeded(view) == ["node3.example.com"]
    assert contents(master, CLONE, 3) == data
    made, old = master.instance(CLONE), master.instance(NAME)
    assert (made.os, made.tags, made.osparams) == ("tiny", ("blue",), {"ns1": "a"})
    assert made.beparams == old.beparams
    assert [disk.size for disk in made.disks] == [512, 256]
    assert made.nics[0].mac != old.nics[0].mac
    assert made.admin_state is AdminState.DOWN
    assert node(master, 2).carried == [("", "tiny", "none")] * 2
    assert f"renamed from {NAME}" in said(view)
    assert {node(master, 3).installed[disk.uuid] for disk in made.disks} == {("tiny", CLONE)}
    check_nothing_is_left(master)


@pytest.mark.parametrize("is_older", [False, True])
async def test_frames_have_no_seal_where_the_receiver_has_the_digest_and_wants_none(
    master: Master, is_older: bool
) -> None:
    await with_data(master)
    node(master, 3).is_older = is_older
    succeeded(await master.run(export()))
    succeeded(await master.run(import_()))
    assert node(master, 1).seals == [True, True]
    assert node(master, 2).seals == [is_older, is_older]


async def test_under_its_own_name_it_keeps_its_addresses(master: Master) -> None:
    await with_data(master, nics=[NicRequest(ip="192.0.2.9")])
    before = master.instance(NAME)
    succeeded(await master.run(export(compress="gzip", remove_instance=True)))
    succeeded(await master.run(import_(NAME, src_path=None, start=True)))
    after = master.instance(NAME)
    assert (after.nics[0].mac, after.nics[0].ip) == (before.nics[0].mac, "192.0.2.9")
    assert after.uuid != before.uuid
    assert master.world.where(after.uuid) == {"node3.example.com": "running"}
    assert node(master, 3).guests.keys() == {after.uuid}


async def test_the_request_wins_over_the_export(master: Master) -> None:
    await with_data(master, osparams={"ns1": "a"})
    succeeded(await master.run(export()))
    succeeded(
        await master.run(
            import_(
                disk_template="sharedfile",
                disks=[DiskRequest(size=600), DiskRequest(size=256), DiskRequest(size=10)],
                beparams={"memory": 128},
                osparams={"ns1": "b"},
                nics=[NicRequest(ip="192.0.2.77")],
                tags=["red"],
                pnode="node1",
                identify_defaults=True,
            )
        )
    )
    made = master.instance(CLONE)
    assert (made.disk_template, len(made.disks)) == ("sharedfile", 3)
    assert made.beparams == {}  # the cluster's
    assert made.osparams == {"ns1": "b"}
    assert (made.nics[0].ip, made.tags) == ("192.0.2.77", ("red",))


async def test_an_import_may_have_no_interfaces(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    _, (text, _code) = failed(await master.run(import_(no_nics=True, nics=[NicRequest()])))
    assert "cannot be combined with" in text
    succeeded(await master.run(import_(no_nics=True)))
    assert master.instance(CLONE).nics == ()


@pytest.mark.requirement("S126", "S133")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"disks": [DiskRequest(size=512)]}, "the export has 2 disks"),
        ({"disks": [DiskRequest(size=512), DiskRequest(size=255)]}, "at least as many"),
        ({"src_path": "../../etc"}, "src_path"),
        ({"src_path": "/etc/passwd"}, "src_path"),
        ({"src_path": "web9.example.com"}, "is on no node"),
        ({"src_node": "node3.example.com"}, "does not exist on this node"),
        ({"src_node": "node9"}, "node9"),
        ({"no_install": True, "start": False}, "no_install"),
        ({"compress": "rar"}, "compress"),
        ({"os_type": "other"}, "no script import"),
    ],
)
async def test_a_wrong_import_is_refused_before_anything_is_made(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    master.rpc.reset()
    _, arguments = failed(await master.run(import_(**fields)))
    assert text in arguments[0]
    assert master.rpc.acts() == []
    assert master.snapshot.instance_by_name(CLONE) is None


@pytest.mark.requirement("A54")
@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("version = 0", "version = 1", "is not supported, only 0"),
        ("disk1_size = 256", "disk1_size = 99999999999999999999", "disk1_size"),
        ("hypervisor = fake", "hypervisor = xen-pvm", "hypervisor"),
        ("name = web1.example.com", "name = ../etc", "instance.name"),
        ("compression = none", "compression = rm -rf", "compression"),
        ("ns1 = a", "ns1 = %(mac)s", "refers to another value"),
        ("ns1 = a", "ns1-x = a", "osparams"),
        ("tags = ", "tags = $(reboot)", "is not a tag"),
        ("nic0_name = None", "nic0_name = a/b", "nics[0].name"),
        ("[os]", "[hypervisor]", "cannot be read"),
    ],
)
async def test_a_description_is_checked_like_a_request(
    master: Master, old: str, new: str, text: str
) -> None:
    await with_data(master, osparams={"ns1": "a"}, hypervisor="fake")
    succeeded(await master.run(export()))
    found = node(master, 2).exports[NAME]
    assert old in found.config
    found.config = found.config.replace(old, new, 1)
    for identify_defaults in (False, True):
        wanted = import_(start=True, identify_defaults=identify_defaults)
        _, arguments = failed(await master.run(wanted))
        assert text in arguments[0]
        assert master.snapshot.instance_by_name(CLONE) is None
    check_nothing_is_left(master)


async def without_scripts(master: Master) -> Export:
    """An export whose dumps are disks as they are."""
    await with_data(master)
    for number in (1, 2, 3):
        node(master, number).os_scripts = ["create"]
    succeeded(await master.run(export()))
    return node(master, 2).exports[NAME]


@pytest.mark.requirement("S123", "S140")
async def test_disks_as_they_are_need_no_os_but_one_that_is_named_must_be_there(
    master: Master,
) -> None:
    found = await without_scripts(master)
    found.config = re.sub("sha256 = .*", "sha256 =", found.config)
    found.config = found.config.replace("os = ", "os = gone-")
    view = await master.run(import_())
    succeeded(view)
    assert "there is no OS definition gone" in said(view)
    assert "shorter than the disk" in said(view)
    _, (text, _code) = failed(await master.run(import_("web3.example.com", os_type="windows")))
    assert "there is no OS definition windows" in text


@pytest.mark.requirement("S133", "A54")
async def test_dumps_of_another_length_than_their_disks_are_refused_before(master: Master) -> None:
    found = await without_scripts(master)
    _, (text, _code) = failed(await master.run(import_()))
    assert "one of them is damaged" in text  # cut off
    found.config = found.config.replace("disk0_size = 512", "disk0_size = 1")
    found.files[next(iter(found.files))] = "x" * (2 << 20)
    _, (text, _code) = failed(await master.run(import_()))
    assert "has 2097152 bytes, and disk 0 has 1048576" in text
    assert master.snapshot.instance_by_name(CLONE) is None


async def test_a_damaged_dump_makes_no_instance(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    files = node(master, 2).exports[NAME].files
    files[list(files)[1]] += "!"
    _, (text,) = failed(await master.run(import_()))
    assert "the dump is damaged" in text
    assert master.snapshot.instance_by_name(CLONE) is None
    check_nothing_is_left(master)


async def test_a_missing_dump_is_found_before(master: Master) -> None:
    await with_data(master)
    succeeded(await master.run(export()))
    node(master, 2).exports[NAME].files.popitem()
    _, (text, _code) = failed(await master.run(import_()))
    assert "has no file" in text


@pytest.mark.parametrize("number", range(1, 16))
async def test_after_any_failed_call_of_an_import_nothing_is_left(
    master: Master, number: int
) -> None:
    fault = (Fault.REFUSED, Fault.LOST_ANSWER)[number // 3 % 2]
    await with_data(master, start=False)
    succeeded(await master.run(export()))
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(import_())
    await master.nothing_is_left()
    if view.status.value == "error":
        assert master.snapshot.instance_by_name(CLONE) is None
    else:
        assert contents(master, CLONE, 3) == contents(master, NAME, 1)
    check_nothing_is_left(master)
    assert NAME in node(master, 2).exports


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(1, 13, 2))
async def test_a_master_that_dies_in_an_import_leaves_nothing(
    world: World, number: int, is_done: bool
) -> None:
    master = await Master.begin(world)
    await with_data(master, start=False)
    succeeded(await master.run(export()))
    master.rpc.reset()
    master.die_at_act(len(master.rpc.changing_calls) + number, is_done=is_done)
    await master.submit(import_())
    assert await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_nothing_is_left(after)
    finally:
        await after.end()


async def test_an_import_of_something_else_is_a_creation(master: Master) -> None:
    await with_data(master)
    _, (text, _code) = failed(await master.run(create(CLONE, src_path="x")))
    assert "only with mode import" in text
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
