"""Changing the cluster's parameters, and what stands against it."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.objects import Cluster
from ganeti.model.opcodes.base import NicRequest
from ganeti.model.opcodes.cluster import (
    OpClusterActivateMasterIp,
    OpClusterDeactivateMasterIp,
    OpClusterSetParams,
)
from ganeti.model.params import IPOLICY_DEFAULTS
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


def modify(**fields: Any) -> OpClusterSetParams:
    return OpClusterSetParams(**fields)


async def changed(master: Master, **fields: Any) -> Cluster:
    succeeded(await master.run(modify(**fields)))
    return master.snapshot.cluster


async def test_what_is_given_changes_and_nothing_else(master: Master) -> None:
    before = master.snapshot.cluster
    after = await changed(
        master,
        enabled_hypervisors=["fake"],
        enabled_disk_templates=["diskless", "file"],
        default_iallocator="hail",
        max_running_jobs=7,
        mac_prefix="aa:00:01",
    )
    assert (after.enabled_hypervisors, after.enabled_disk_templates) == (
        ("fake",),
        ("diskless", "file"),
    )
    assert (after.default_iallocator, after.max_running_jobs) == ("hail", 7)
    assert after.mac_prefix == "aa:00:01"
    assert (after.name, after.uuid, after.ipolicy) == (before.name, before.uuid, before.ipolicy)
    assert after.serial_no == before.serial_no + 1
    master.check()


@pytest.mark.requirement("S184")
async def test_default_allocator_that_the_master_lacks_is_refused_unless_forced(
    master: Master,
) -> None:
    await changed(master, default_iallocator="hail")
    for text in ("gone", "hail,gone", "hail/relocate=gone"):
        refused = await master.run(modify(default_iallocator=text))
        assert "Can't find iallocator 'gone' on node1" in failed(refused)[1][0]
        after = await changed(master, default_iallocator=text, force=True)
        assert after.default_iallocator == text
        await changed(master, default_iallocator="hail")


@pytest.mark.requirement("S79")
async def test_parameters_are_merged_and_none_takes_the_default_again(master: Master) -> None:
    after = await changed(
        master,
        hvparams={"kvm": {"acpi": "false", "kernel_args": "quiet"}},
        os_hvp={"tiny": {"kvm": {"acpi": True}}},
        osparams={"tiny": {"size": "small"}},
        beparams={"memory": "1g", "vcpus": "2"},
        nicparams={"link": "br1", "vlan": "10"},
        diskparams={"plain": {"stripes": "2"}, "drbd": {"protocol": "A", "resync-rate": 9}},
        ndparams={"spindle_count": 2},
    )
    assert after.hvparams == {"kvm": {"acpi": False, "kernel_args": "quiet"}}
    assert after.os_hvp == {"tiny": {"kvm": {"acpi": True}}}
    assert after.osparams == {"tiny": {"size": "small"}}
    assert after.beparams == {"default": {"minmem": 1024, "maxmem": 1024, "vcpus": 2}}
    assert after.nicparams == {"default": {"link": "br1", "vlan": ".10"}}
    assert after.diskparams == {
        "plain": {"stripes": 2},
        "drbd": {"protocol": "A", "resync-rate": 9},
    }
    after = await changed(
        master,
        hvparams={"kvm": {"acpi": None}},
        os_hvp={"tiny": {"kvm": {"acpi": None, "migration_port": None}}},
        beparams={"vcpus": None},
        diskparams={"plain": {"stripes": None}, "drbd": {"protocol": None}},
        ndparams={"spindle_count": None},
    )
    assert after.hvparams == {"kvm": {"kernel_args": "quiet"}}
    assert after.os_hvp == {}
    assert after.beparams == {"default": {"minmem": 1024, "maxmem": 1024}}
    assert after.diskparams == {"drbd": {"resync-rate": 9}}
    assert after.ndparams == {}


def spec(value: int) -> dict[str, int]:
    return dict.fromkeys(IPOLICY_DEFAULTS["std"], value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"vg_name": "../xenvg"}, "vg_name: '../xenvg' is not the name of a volume"),
        ({"vg_name": "-xenvg"}, "vg_name: '-xenvg' is not the name of a volume"),
        ({"reserved_lvs": ["xenvg/(swap"]}, "is not a regular expression"),
        ({"enabled_hypervisors": []}, "enabled_hypervisors: must name at least one"),
        ({"enabled_hypervisors": ["xen"]}, "enabled_hypervisors: 'xen' is unknown"),
        ({"enabled_hypervisors": []}, "at least one"),
        ({"enabled_disk_templates": ["tape"]}, "enabled_disk_templates: 'tape'"),
        ({"candidate_pool_size": 0}, "candidate_pool_size: must be from 1"),
        ({"max_running_jobs": 0}, "max_running_jobs: must be from 1"),
        ({"default_iallocator": "../hail"}, "default_iallocator"),
        ({"mac_prefix": "01:00:00"}, "mac_prefix"),
        ({"mac_prefix": "aa:00"}, "mac_prefix"),
        ({"master_netdev": "a b"}, "master_netdev"),
        ({"file_storage_dir": "/a/../b"}, "file_storage_dir"),
        ({"hvparams": {"xen": {}}}, "hvparams.xen"),
        ({"hvparams": {"kvm": {"nosuch": 1}}}, "hvparams.kvm.nosuch"),
        ({"hvparams": {"kvm": {"nosuch": None}}}, "hvparams.kvm.nosuch"),
        ({"beparams": {"nosuch": 1}}, "beparams.nosuch"),
        ({"beparams": {"nosuch": None}}, "beparams.nosuch"),
        ({"beparams": {"minmem": 512, "maxmem": 256}}, "beparams.minmem: 512 MiB is more"),
        ({"nicparams": {"mode": "loud"}}, "nicparams.mode"),
        ({"nicparams": {"nosuch": "x"}}, "nicparams.nosuch"),
        ({"nicparams": {"vlan": "x"}}, "nicparams.vlan"),
        ({"diskparams": {"tape": {}}}, "diskparams.tape"),
        ({"diskparams": {"plain": {"nosuch": None}}}, "diskparams.plain.nosuch"),
        ({"diskparams": {"plain": {"stripes": 0}}}, "diskparams.plain.stripes"),
        ({"ndparams": {"nosuch": 1}}, "ndparams.nosuch"),
        ({"osparams": {"tiny": {"A B": "x"}}}, "osparams.tiny"),
        (
            {"os_hvp": {"tiny": {"kvm": {"migration_port": 8102}}}},
            "os_hvp.tiny.kvm.migration_port: can only be set for the whole cluster",
        ),
        ({"ipolicy": {"nosuch": 1}}, "ipolicy.nosuch"),
        ({"ipolicy": {"vcpu-ratio": 0}}, "ipolicy.vcpu-ratio"),
        ({"ipolicy": {"disk-templates": ["tape"]}}, "ipolicy.disk-templates"),
        ({"ipolicy": {"minmax": [{"min": spec(2), "max": spec(1)}]}}, "greater than the maximum"),
        ({"ipolicy": {"minmax": [{"min": {}, "max": spec(1)}]}}, "must have exactly"),
        ({"ipolicy": {"std": spec(1 << 40)}}, "ipolicy.std: is outside all bounds"),
    ],
)
async def test_a_wrong_value_is_refused(master: Master, fields: dict[str, Any], text: str) -> None:
    before = master.snapshot.cluster
    name, (message, code) = failed(await master.run(modify(**fields)))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text in message
    assert master.snapshot.cluster == before


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"enabled_hypervisors": ["kvm"]}, "wrong_state", "hypervisor fake is used by " + NAME),
        ({"enabled_disk_templates": ["file"]}, "wrong_state", "sharedfile is used by " + NAME),
        ({"shared_file_storage_dir": "/new"}, "wrong_state", "/shared is used by " + NAME),
        ({"nicparams": {"mode": "routed"}}, "wrong_input", "need an IP address: " + NAME),
    ],
)
async def test_what_an_instance_uses_is_not_taken_away(
    master: Master, fields: dict[str, Any], code: str, text: str
) -> None:
    succeeded(await master.run(create(nics=[NicRequest()])))
    _, (message, got) = failed(await master.run(modify(**fields)))
    assert (got, text in message) == (code, True), message
    succeeded(await master.run(modify(file_storage_dir="/new")))


async def test_parameters_that_a_node_cannot_use_are_refused(master: Master) -> None:
    master.world.node(3).wrong_hvparams = ["no such kernel"]
    op = modify(hvparams={"kvm": {"kernel_path": "/boot/k"}})
    _, (text, code) = failed(await master.run(op))
    assert (code, "node3.example.com cannot use these" in text) == ("environment_error", True)
    assert master.snapshot.cluster.hvparams == {}


async def test_a_greater_pool_is_filled(master: Master) -> None:
    await changed(master, candidate_pool_size=2)
    assert [one.name for one in master.snapshot.master_candidates()] == [
        "node1.example.com",
        "node2.example.com",
    ]
    assert master.candidates.acts == [("promote", "node2.example.com")]
    await changed(master, candidate_pool_size=1)
    assert len(master.snapshot.master_candidates()) == 2


async def test_instances_outside_a_new_policy_are_named(master: Master) -> None:
    succeeded(await master.run(create()))
    bounds = {"min": spec(0), "max": {**spec(1 << 20), "memory-size": 256}}
    view = await master.run(modify(ipolicy={"minmax": [bounds]}))
    succeeded(view)
    assert f"instance {NAME} is outside the new policy: memory-size 512" in said(view)


@pytest.mark.requirement("F5")
async def test_the_cluster_s_address_moves_with_its_interface(master: Master) -> None:
    address = "192.0.2.99"
    await master.change(lambda draft: draft.put(replace(draft.cluster, master_ip=address)))
    await changed(master, master_netdev="eth0", master_netmask=24)
    assert master.rpc.acts() == ["master_ip_down", "master_ip_up"]
    assert master.world.node(1).has_master_ip
    succeeded(await master.run(OpClusterDeactivateMasterIp()))
    assert not master.world.node(1).has_master_ip
    succeeded(await master.run(OpClusterActivateMasterIp()))
    assert master.world.node(1).has_master_ip
    await changed(master, master_netdev="")
    assert not master.world.node(1).has_master_ip
    _, (text, code) = failed(await master.run(OpClusterActivateMasterIp()))
    assert (code, "--master-netdev" in text) == ("wrong_state", True)


@pytest.mark.requirement("F5")
async def test_the_cluster_s_address_is_taken_in_the_old_way_and_given_in_the_new_one(
    master: Master,
) -> None:
    await master.change(
        lambda draft: draft.put(
            replace(draft.cluster, master_ip="192.0.2.99", master_netdev="eth0")
        )
    )
    for by_script in (True, False):
        master.rpc.reset()
        await changed(master, use_external_mip_script=by_script)
        acts = [(call.procedure, call.args.by_script) for call in master.rpc.changing_calls]
        assert acts == [("master_ip_down", not by_script), ("master_ip_up", by_script)]
    master.rpc.reset()
    await changed(master, use_external_mip_script=False)
    assert master.rpc.acts() == []


async def test_an_address_that_does_not_come_up_is_reported(master: Master) -> None:
    master.rpc.fail(2, Fault.REFUSED)
    view = await master.run(modify(master_netdev="eth0"))
    succeeded(view)
    assert "run gnt-cluster activate-master-ip after the fix" in said(view)


async def test_changes_at_the_same_time_lose_nothing(master: Master) -> None:
    jobs = [
        await master.submit(modify(hvparams={"kvm": {name: 33}}))
        for name in ("migration_bandwidth", "migration_downtime")
    ]
    for job_id in jobs:
        succeeded(await master.final(job_id))
    assert master.snapshot.cluster.hvparams == {
        "kvm": {"migration_bandwidth": 33, "migration_downtime": 33}
    }


@pytest.mark.parametrize(
    ("field", "template"), [("file_storage_dir", "file"), ("shared_file_storage_dir", "sharedfile")]
)
async def test_a_directory_that_an_enabled_template_needs_cannot_be_taken_away(
    master: Master, field: str, template: str
) -> None:
    gone: dict[str, Any] = {field: ""}
    view = await master.run(OpClusterSetParams(**gone))
    assert f"{field}: disk template {template} needs a directory" in str(view.ops[0].result)
    both: dict[str, Any] = {field: "", "enabled_disk_templates": ["diskless"]}
    assert (await master.run(OpClusterSetParams(**both))).status == "success"


@pytest.mark.requirement("S235")
async def test_of_the_standard_instance_only_what_is_given_changes(master: Master) -> None:
    await changed(master, ipolicy={"std": {"memory-size": 256}})
    after = await changed(master, ipolicy={"std": {"cpu-count": 2}})
    assert after.ipolicy["std"] == {**IPOLICY_DEFAULTS["std"], "memory-size": 256, "cpu-count": 2}
    failed(await master.run(modify(ipolicy={"std": {"nosuch": 1}})))
