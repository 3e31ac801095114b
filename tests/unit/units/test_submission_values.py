"""Values that the configuration does not allow are refused before there is a job."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.model.job import Submitter, remote_source
from ganeti.model.objects import Instance
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.simulation.virtual_time import LoopClock
from ganeti.units.submission import check_values
from tests.support.units_cluster import NODES, Master, succeeded
from tests.unit.units.opcodes import NAME, create

EVE = Submitter(remote_source("eve"))


def op_of(name: str, **fields: Any) -> OpCode:
    return parse_opcode({"OP_ID": name, **fields}, what="body")


async def refusal(master: Master, op: OpCode) -> str:
    """The text that refuses an opcode; '' if a job is made of it."""
    before = len(master.rpc.calls)
    reserved = master.config.reservations.count()
    said = ""
    try:
        await check_values(master.config.snapshot, op, EVE, LoopClock())
    except PrereqError as err:
        said = err.message if err.code is ErrorCode.WRONG_INPUT else f"another code: {err.code}"
    assert len(master.rpc.calls) == before
    assert master.config.reservations.count() == reserved
    return said


CREATE = create()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"disk_template": "plain"}, "disk_template: 'plain' is not enabled in this cluster"),
        ({"hypervisor": "xen-pvm"}, "hypervisor: 'xen-pvm' is not"),
        (
            {"hvparams": {"kernel_pth": "/x"}},
            "hvparams.kernel_pth: hypervisor fake has no such parameter",
        ),
        ({"file_storage_dir": "/etc"}, "file_storage_dir: must be a relative path"),
        ({"file_storage_dir": "../x"}, "file_storage_dir: must be a relative path"),
        ({"snode": "node2", "pnode": "node1"}, "snode: disk template sharedfile has no secondary"),
        ({"hvparams": {"security_model": "user"}, "hypervisor": "kvm"}, "hvparams."),
        ({"beparams": {"maxmem": 1 << 30}}, "violates the policy"),
    ],
)
async def test_wrong_value_of_a_new_instance_is_refused(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    assert text in await refusal(master, replace(CREATE, **fields))


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("OP_INSTANCE_GROW_DISK", {"disk": 3, "amount": 1}, "disk: number 3 does not exist: the instance has 2"),
        ("OP_INSTANCE_RECREATE_DISKS", {"disks": [5]}, "disks"),
        ("OP_INSTANCE_RECREATE_DISKS", {"disks": [[0, {"size": 1 << 40}]]}, "disks[0].size: a disk of 1099511627776 MiB is not possible"),
        ("OP_INSTANCE_RECREATE_DISKS", {"disks": [[0, {"size": "64x"}]]}, "disks[0].size: '64x' is not a size"),
        ("OP_INSTANCE_RECREATE_DISKS", {"disks": [0], "nodes": ["node2"]}, "on another node all 2 disks"),
        ("OP_INSTANCE_SET_PARAMS", {"disks": [["remove", 7, {}]]}, "disks[0]: number 7 does not exist"),
        ("OP_INSTANCE_SET_PARAMS", {"nics": [["modify", 2, {"link": "br0"}]]}, "nics[0]: number 2 does not exist"),
        ("OP_INSTANCE_SET_PARAMS", {"hvparams": {"kernel_pth": "/x"}}, "hvparams.kernel_pth: hypervisor fake has no such parameter"),
        ("OP_INSTANCE_SET_PARAMS", {"disk_template": "drbd", "remote_node": "node2"}, "disk_template: 'drbd' is not enabled"),
    ],
)  # fmt: skip
async def test_wrong_value_for_an_instance_is_refused(
    master: Master, name: str, fields: dict[str, Any], text: str
) -> None:
    succeeded(await master.run(CREATE))
    assert text in await refusal(master, op_of(name, instance_name=NAME, **fields))


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("OP_CLUSTER_SET_PARAMS", {"hvparams": {"kvm": {"kernel_pth": "/x"}}}, "hvparams"),
        ("OP_CLUSTER_SET_PARAMS", {"enabled_disk_templates": ["paper"]}, "enabled_disk_templates"),
        ("OP_CLUSTER_SET_PARAMS", {"beparams": {"maxmem": -1}}, "beparams"),
        ("OP_CLUSTER_SET_PARAMS", {"ipolicy": {"vcpu-ratio": "x"}}, "ipolicy"),
        ("OP_CLUSTER_SET_PARAMS", {"shared_file_storage_dir": ""}, "shared_file_storage_dir"),
        ("OP_CLUSTER_SET_PARAMS", {"file_storage_dir": "relative"}, "file_storage_dir"),
        ("OP_CLUSTER_SET_PARAMS", {"default_iallocator": "no/such/one"}, "default_iallocator"),
        ("OP_CLUSTER_SET_PARAMS", {"nicparams": {"mode": "none"}}, "nicparams"),
        ("OP_CLUSTER_SET_PARAMS", {"uid_pool": [[61000, 61001]]}, "uid_pool"),
        ("OP_CLUSTER_SET_PARAMS", {"diskparams": {"plain": {"x": 1}}}, "diskparams"),
        ("OP_CLUSTER_SET_PARAMS", {"ndparams": {"x": 1}}, "ndparams"),
        ("OP_GROUP_SET_PARAMS", {"group_name": "default", "ipolicy": {"vcpu-ratio": "x"}}, "ipolicy"),
        ("OP_GROUP_SET_PARAMS", {"group_name": "default", "diskparams": {"plain": {"x": 1}}}, "diskparams"),
        ("OP_GROUP_ADD", {"group_name": "new", "ndparams": {"x": 1}}, "ndparams"),
        ("OP_NODE_SET_PARAMS", {"node_name": "node2", "ndparams": {"x": 1}}, "ndparams"),
        ("OP_NODE_SET_PARAMS", {"node_name": "node2", "ndparams": {"oob_program": "/x"}}, "only on the master"),
        ("OP_NETWORK_ADD", {"network_name": "lan", "network": "192.0.2.0/33"}, "network"),
    ],
)  # fmt: skip
async def test_wrong_value_of_a_parameter_is_refused(
    master: Master, name: str, fields: dict[str, Any], text: str
) -> None:
    assert text in await refusal(master, op_of(name, **fields))


async def test_what_the_job_has_to_find_out_is_not_refused(master: Master) -> None:
    for op in (
        CREATE,
        op_of("OP_INSTANCE_REMOVE", instance_name="nosuch.example.com"),
        op_of("OP_INSTANCE_GROW_DISK", instance_name="nosuch", disk=9, amount=1),
        op_of("OP_CLUSTER_SET_PARAMS", candidate_pool_size=3),
    ):
        assert await refusal(master, op) == ""


async def test_index_of_a_mirrored_disk_that_is_not_there_is_refused(master: Master) -> None:
    succeeded(await master.run(CREATE))
    [instance] = master.config.snapshot.instances.values()
    disks = tuple(replace(disk, template="drbd") for disk in instance.disks)
    mirrored = replace(instance, disk_template="drbd", disks=disks, secondary_nodes=(NODES[1],))
    snapshot = replace_instance(master, mirrored)
    op = op_of(
        "OP_INSTANCE_REPLACE_DISKS", instance_name=NAME, mode="replace_on_secondary", disks=[4]
    )
    with pytest.raises(PrereqError, match="disk 4 does not exist"):
        await check_values(snapshot, op, EVE, LoopClock())


def replace_instance(master: Master, instance: Instance) -> Snapshot:
    """The configuration with another form of an instance, unchecked."""
    snapshot = master.config.snapshot
    tables = dict(snapshot.tables)
    tables[Instance] = {instance.uuid: instance}
    return dataclasses.replace(snapshot, tables=tables)
