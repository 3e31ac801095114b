"""What cannot be created: one clear error each, with its code and field, and nothing is changed."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode
from ganeti.config.transaction import Draft
from ganeti.model.objects import GroupUuid, NodeGroup
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.rpc.procedures.programs import AllocatorOutput
from tests.support.units_cluster import GROUP, NODES, Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time

OTHER_GROUP = GroupUuid("00000000-0000-4000-9000-00000000000b")
WRONG, UNKNOWN = ErrorCode.WRONG_INPUT, ErrorCode.UNKNOWN_ENTITY


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"disks": [DiskRequest(size=1, name="a")] * 2}, "disks: 2 devices have the name 'a'"),
        ({"disks": [DiskRequest(size=1, name="0")]}, "disks: '0' is a number"),
        ({"nics": [NicRequest(name="a")] * 2}, "nics: 2 devices have the name 'a'"),
    ],
)
async def test_a_name_means_one_device(master: Master, fields: dict[str, Any], text: str) -> None:
    await refused(master, WRONG, text, **fields)


@pytest.mark.parametrize("none", ["none", "None", "NONE"])
async def test_none_in_any_case_is_no_name(master: Master, none: str) -> None:
    disks = [DiskRequest(size=1, name=none)] * 2
    nics = [NicRequest(name=none, ip=none, network=none)] * 2
    succeeded(await master.run(create(disks=disks, nics=nics)))
    made = master.instance(NAME)
    assert {one.name for one in made.disks} | {one.name for one in made.nics} == {None}
    assert {(nic.ip, nic.network) for nic in made.nics} == {(None, None)}


async def refused(master: Master, code: ErrorCode, text: str, **fields: Any) -> None:
    """The creation fails for that reason, and leaves the configuration and the nodes as they were."""
    position = {uuid: one.serial_no for uuid, one in master.snapshot.instances.items()}
    before = master.rpc.acts()
    name, (message, got) = failed(await master.run(create(**fields)))
    assert name == "OpPrereqError"
    assert got == code
    assert text in message
    assert master.rpc.acts() == before
    assert {uuid: one.serial_no for uuid, one in master.snapshot.instances.items()} == position
    master.check_nothing_is_held()


def disk(**fields: Any) -> list[DiskRequest]:
    return [DiskRequest(**{"size": 100, **fields})]


def nic(**fields: Any) -> list[NicRequest]:
    return [NicRequest(**fields)]


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"mode": "copy"}, WRONG, "mode: 'copy' is not a mode of creation"),
        ({"name": "no_host"}, WRONG, "instance_name: 'no_host' is not a host name"),
        ({"name": "Web1.example.com"}, WRONG, "instance_name: must be in lower case"),
        ({"name": ""}, WRONG, "instance_name: '' is not a host name"),
        ({"name": "../../etc/passwd"}, WRONG, "instance_name: "),
        ({"name": "x" * 300}, WRONG, "instance_name: "),
        ({"ip_check": True}, WRONG, "ip_check: requires the check of the name as well"),
        ({"name": "node2.example.com"}, ErrorCode.EXISTS, "used by node node2.example.com"),
        ({"name": "cluster.example.com"}, ErrorCode.EXISTS, "the name of the cluster"),
        ({"disk_template": "drbd"}, WRONG, "disk_template: 'drbd' is not enabled"),
        ({"disk_template": "diskless"}, WRONG, "disks: template diskless has no disks"),
        ({"disks": []}, WRONG, "disks: template sharedfile needs at least one disk"),
        ({"disks": disk() * 17}, WRONG, "disks: 17 disks: at most 16"),
        ({"disks": disk(size=0)}, WRONG, "disks[0].size: a disk of 0 MiB is not possible"),
        ({"disks": disk(size=-5)}, WRONG, "disks[0].size: "),
        ({"disks": disk() + disk(size=2**40)}, WRONG, "disks[1].size: "),
        ({"disks": disk(mode="rx")}, WRONG, "disks[0].mode: must be rw or ro"),
        ({"disks": disk(name="a/b")}, WRONG, "disks[0].name: "),
        ({"disks": disk(params={"a": 1})}, WRONG, "disks[0].params.a: "),
        ({"nics": nic() * 9}, WRONG, "nics: 9 network interfaces: at most 8"),
        ({"nics": nic(mac="zz")}, WRONG, "nics[0].mac: "),
        ({"nics": nic(mac="01:00:00:00:00:01")}, WRONG, "nics[0].mac: "),
        ({"nics": nic(ip="300.1.1.1")}, WRONG, "nics[0].ip: '300.1.1.1' is not an IP address"),
        (
            {"nics": nic(mode="tunnel")},
            WRONG,
            "nics[0].mode: must be bridged, routed or openvswitch",
        ),
        ({"nics": nic(link="br0; reboot")}, WRONG, "nics[0].link: "),
        ({"nics": nic(vlan="4095")}, WRONG, "nics[0].vlan: "),
        ({"nics": nic(vlan=".1.2")}, WRONG, "nics[0].vlan: "),
        ({"nics": nic(vlan=":")}, WRONG, "nics[0].vlan: "),
        ({"nics": nic(vlan="0")}, WRONG, "nics[0].vlan: "),
        ({"nics": nic(vlan="1;id")}, WRONG, "nics[0].vlan: "),
        (
            {"nics": nic(mac="aa:00:00:00:00:01") * 2},
            WRONG,
            "nics[1].mac: aa:00:00:00:00:01 occurs",
        ),
        ({"nics": nic(ip="192.0.2.9", link="br0") * 2}, WRONG, "nics[1].ip: "),
        ({"os_type": None}, WRONG, "os_type: name the OS to install"),
        ({"os_type": "../tiny"}, WRONG, "os_type: "),
        ({"os_type": "nosuch"}, WRONG, "there is no OS definition nosuch"),
        ({"osparams": {"Bad-Key": "1"}}, WRONG, "osparams['Bad-Key']: "),
        ({"osparams_secret": {"key": "a\nb"}}, WRONG, "osparams_secret.key: must be one line"),
        ({"tags": ["with space"]}, WRONG, "tags: 'with space' is not a tag"),
        ({"tags": [""]}, WRONG, "tags: '' is not a tag"),
        ({"hypervisor": "xen-pvm"}, WRONG, "hypervisor: 'xen-pvm' is not a hypervisor"),
        (
            {"hvparams": {"nosuch": 1}},
            WRONG,
            "hvparams.nosuch: hypervisor fake has no such parameter",
        ),
        (
            {"hypervisor": "kvm", "hvparams": {"kvm_path": "/x"}},
            WRONG,
            "hvparams.kvm_path: can only",
        ),
        ({"hypervisor": "kvm", "hvparams": {"acpi": 3}}, WRONG, "hvparams.acpi: 3 is not true or"),
        ({"hypervisor": "kvm", "hvparams": {"kernel_path": "a"}}, WRONG, "hvparams.kernel_path: "),
        ({"beparams": {"cores": 1}}, WRONG, "beparams.cores: is not a backend parameter"),
        ({"beparams": {"vcpus": 0}}, WRONG, "beparams.vcpus: must be at least 1"),
        ({"beparams": {"memory": "much"}}, WRONG, "beparams.memory: "),
        ({"beparams": {"memory": -1}}, WRONG, "beparams.memory: must be at least 1 MiB"),
        ({"pnode": "node9"}, UNKNOWN, "there is no node node9"),
        ({"pnode": "no_node"}, WRONG, "node name: 'no_node' is not a host name"),
        ({"pnode": "node"}, UNKNOWN, "there is no node node"),
        ({"pnode": None}, WRONG, "the cluster has no default allocator"),
        ({"snode": "node2"}, WRONG, "snode: disk template sharedfile has no secondary node"),
        ({"iallocator": "hail"}, WRONG, "iallocator: give either a node or an allocator"),
        ({"pnode": None, "iallocator": "../hail"}, WRONG, "iallocator: "),
        ({"pnode": None, "iallocator": "nosuch"}, UNKNOWN, "Can't find iallocator 'nosuch'"),
        ({"file_storage_dir": "/etc"}, WRONG, "file_storage_dir: must be a relative path"),
        ({"file_storage_dir": "../up"}, WRONG, "file_storage_dir: must be a relative path"),
        ({"file_storage_dir": "a/../../b"}, WRONG, "file_storage_dir: must be a relative path"),
        ({"file_storage_dir": "./a"}, WRONG, "file_storage_dir: must be a relative path"),
        ({"file_storage_dir": "a\0b"}, WRONG, "file_storage_dir: "),
        ({"file_storage_dir": ".hidden"}, WRONG, "file_storage_dir: "),
        ({"file_driver": "blktap"}, WRONG, "file_driver: the only file driver is loop"),
        ({"forthcoming": True}, WRONG, "forthcoming: this implementation does not support it"),
        ({"group_name": "default"}, WRONG, "group_name: give either a node or the group"),
        (
            {"pnode": None, "iallocator": "hail", "group_name": "nosuch"},
            UNKNOWN,
            "there is no group nosuch",
        ),
        ({"beparams": {"memory": 4097}}, ErrorCode.NO_RESOURCES, "needs 4097 MiB"),
        ({"disks": disk(size=200_000)}, ErrorCode.NO_RESOURCES, "needs 200000 MiB"),
        ({"beparams": {"vcpus": 300}}, WRONG, "cpu-count 300 is not between 1 and 256"),
    ],
)
async def test_a_wrong_request_has_one_clear_error(
    master: Master, fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    if "disk_template" in fields and fields["disk_template"] == "diskless":
        fields = {**fields, "disks": disk()}
    await refused(master, code, text, **fields)


@pytest.mark.requirement("S81")
async def test_a_routed_interface_needs_an_address(master: Master) -> None:
    wanted = "nics[0].ip: a routed network interface needs an IP address"
    await refused(master, WRONG, wanted, nics=nic(mode="routed", link="100"))
    succeeded(await master.run(create(nics=nic(mode="route", link="100", ip="192.0.2.77"))))


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"offline": True}, ErrorCode.WRONG_STATE, "node node2.example.com is marked offline"),
        ({"drained": True}, ErrorCode.WRONG_STATE, "node node2.example.com is drained"),
        ({"vm_capable": False}, ErrorCode.WRONG_STATE, "is not vm_capable"),
    ],
)
async def test_a_node_that_takes_no_instances_is_refused(
    master: Master, fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], **fields)))
    await refused(master, code, text, pnode="node2")


async def test_a_node_that_does_not_answer_is_refused(master: Master) -> None:
    del master.rpc.nodes["node2.example.com"]
    await refused(master, ErrorCode.ENVIRONMENT, "node2.example.com", pnode="node2")


async def test_a_node_whose_hypervisor_refuses_is_refused(master: Master) -> None:
    master.world.node(1).wrong_hvparams = ["kernel /x does not exist"]
    await refused(master, WRONG, "kernel /x does not exist")


async def test_a_template_without_a_directory_is_refused(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.cluster, file_storage_dir="")))
    await refused(master, WRONG, "--file-storage-dir of gnt-cluster init", disk_template="file")


@pytest.mark.requirement("F24")
@pytest.mark.parametrize(
    ("nics", "text"),
    [
        (nic(mac="aa:00:00:12:34:56"), "the MAC address aa:00:00:12:34:56 is already in use"),
        (nic(mac="AA:00:00:12:34:56"), "the MAC address aa:00:00:12:34:56 is already in use"),
        (nic(ip="192.0.2.50"), "the IP address 192.0.2.50 on br0 is already in use"),
    ],
)
async def test_an_address_in_use_is_refused_before_any_disk_is_made(
    master: Master, nics: list[NicRequest], text: str
) -> None:
    first = nic(mac="aa:00:00:12:34:56", ip="192.0.2.50")
    succeeded(await master.run(create("web2.example.com", nics=first)))
    await refused(master, ErrorCode.NOT_UNIQUE, text, nics=nics)


async def test_a_second_instance_of_the_same_name_is_refused(master: Master) -> None:
    succeeded(await master.run(create()))
    await refused(master, ErrorCode.EXISTS, f"instance {NAME} exists already")
    master.check()


@pytest.mark.requirement("S235")
async def test_the_policy_of_the_chosen_node_s_group_counts(master: Master) -> None:
    def limit(draft: Draft) -> None:
        small = {"min": {"memory-size": 1}, "max": {"memory-size": 256}}
        draft.put(replace(draft.groups[GROUP], ipolicy={"minmax": [small]}))
        draft.put(NodeGroup(uuid=OTHER_GROUP, name="large"))  # would allow it, but has no such node

    await master.change(limit)
    await refused(master, WRONG, "memory-size 512 is not between 1 and 256")
    succeeded(await master.run(create(ignore_ipolicy=True)))
    master.check()


def outputs(text: str, status: int = 0, stderr: str = "") -> Any:
    return lambda message: AllocatorOutput(found=True, status=status, stdout=text, stderr=stderr)


@pytest.mark.requirement("S162", "S163", "S176", "S177", "S182", "S237")
@pytest.mark.parametrize(
    ("program", "code", "text"),
    [
        (
            outputs("half", 1, " crashed"),
            ErrorCode.ENVIRONMENT,
            "ended with status 1: half crashed",
        ),
        (outputs("", 139), ErrorCode.ENVIRONMENT, "it ended with status 139"),
        (outputs("hello"), ErrorCode.ENVIRONMENT, "Can't parse the answer of iallocator 'mine'"),
        (outputs("[1]"), ErrorCode.ENVIRONMENT, "it is not an object"),
        (outputs('{"success": true, "info": ""}'), ErrorCode.ENVIRONMENT, "it has no result"),
        (
            outputs('{"success": false, "info": "no room", "result": []}'),
            ErrorCode.NO_RESOURCES,
            "Can't compute nodes using iallocator 'mine': no room",
        ),
        (
            outputs('{"success": true, "info": "", "result": ["node1.example.com", "x"]}'),
            ErrorCode.ENVIRONMENT,
            "returned an invalid number of nodes (2), required 1",
        ),
        (
            outputs('{"success": true, "info": "", "result": ["nosuch"]}'),
            ErrorCode.ENVIRONMENT,
            "chose 'nosuch', which is not a node that accepts instances",
        ),
    ],
)
async def test_a_bad_allocator_gives_a_clear_error(
    master: Master, program: Any, code: ErrorCode, text: str
) -> None:
    master.world.node(1).allocators["mine"] = program
    await refused(master, code, text, pnode=None, iallocator="mine")


@pytest.mark.requirement("S168")
async def test_a_drained_node_that_an_allocator_chose_is_refused(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], drained=True)))
    chosen = outputs('{"success": true, "info": "", "result": ["node2.example.com"]}')
    master.world.node(1).allocators["mine"] = chosen
    text = "chose 'node2.example.com', which is not a node that accepts instances"
    await refused(master, ErrorCode.ENVIRONMENT, text, pnode=None, iallocator="mine")


@pytest.mark.requirement("S185")
async def test_a_dry_run_returns_the_nodes_and_changes_nothing(master: Master) -> None:
    position = master.snapshot.position
    instances = master.snapshot.instances
    view = await master.run(create(dry_run=True))
    assert succeeded(view) == ["node1.example.com"]
    assert master.snapshot.instances == instances
    assert master.snapshot.position == position
    assert master.rpc.acts() == []
    chosen = await master.run(create(dry_run=True, pnode=None, iallocator="hail"))
    assert len(succeeded(chosen)) == 1
    assert "Selected nodes for the instance: " in said(chosen)
    await refused(master, UNKNOWN, "node9", dry_run=True, pnode="node9")


async def test_a_name_without_address_and_an_address_in_use_are_refused_where_that_is_asked_for(
    master: Master, asked: list[str]
) -> None:
    text = "a host already answers at 192.0.2.77, the address of web1.example.com"
    await refused(master, ErrorCode.NOT_UNIQUE, text, name_check=True, ip_check=True)
    assert asked == [NAME, "192.0.2.77"]
    succeeded(await master.run(create(name_check=True)))
    assert asked[2:] == [NAME]
