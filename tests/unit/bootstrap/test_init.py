from dataclasses import replace
from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.base.paths import Paths
from ganeti.bootstrap.init import (
    FirstState,
    InitContext,
    InitOptions,
    check_options,
    first_cluster,
    first_objects,
)
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.objects import NodeUuid
from ganeti.simulation.counting_ids import CountingIds
from tests.support.predictable import FrozenClock

GOOD = InitOptions(
    cluster_name="cluster.example", node_name="node1.example", primary_ip="192.0.2.1"
)


def options(**changes: Any) -> InitOptions:
    """Fields of the options, and parameters of the cluster, by their names."""
    params = {name: changes.pop(name) for name in list(changes) if name in CLUSTER_PARAMS}
    return replace(GOOD, params=params, **changes)


def test_valid_options_are_accepted() -> None:
    refusal = ""
    try:
        check_options(GOOD)
    except InputError as err:
        refusal = err.message
    assert refusal == ""


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cluster_name": "no host!"}, "cluster_name"),
        ({"cluster_name": "Upper.example"}, "cluster_name"),
        ({"cluster_name": "node1.example"}, "cluster_name"),
        ({"node_name": ""}, "node_name"),
        ({"primary_ip": "node1.example"}, "primary_ip"),
        ({"primary_ip": "0.0.0.0"}, "primary_ip"),
        ({"secondary_ip": "x"}, "secondary_ip"),
        ({"master_ip": "300.1.1.1"}, "master_ip"),
        ({"master_netmask": 33}, "master_netmask"),
        ({"master_netdev": "a b"}, "master_netdev"),
        ({"port": 0}, "port"),
        ({"group_name": "../x"}, "group_name"),
        ({"mac_prefix": "aa:00"}, "mac_prefix"),
        ({"mac_prefix": "01:00:00"}, "mac_prefix"),
        ({"mac_prefix": "AA:00:00"}, "mac_prefix"),
        ({"enabled_hypervisors": []}, "enabled_hypervisors"),
        ({"enabled_hypervisors": ["vmware"]}, "enabled_hypervisors"),
        ({"enabled_disk_templates": ["floppy"]}, "enabled_disk_templates"),
        ({"hvparams": {"vmware": {}}}, "hvparams.vmware"),
        ({"hvparams": {"kvm": {"nonsense": 1}}}, "hvparams.kvm.nonsense"),
        ({"hvparams": {"kvm": {"kernel_path": "relative"}}}, "hvparams.kvm.kernel_path"),
        ({"beparams": {"vcpus": "many"}}, "beparams.vcpus"),
        ({"beparams": {"nonsense": 1}}, "beparams.nonsense"),
        ({"nicparams": {"nonsense": "x"}}, "nicparams.nonsense"),
        ({"ipolicy": {"nonsense": 1}}, "ipolicy.nonsense"),
        ({"uid_pool": [(5, 1)]}, "uid_pool"),
        ({"uid_pool": [(1, 99)]}, "uid_pool"),  # services of this host have some
        ({"candidate_pool_size": 0}, "candidate_pool_size"),
        ({"default_iallocator": "../hail"}, "default_iallocator"),
        ({"file_storage_dir": "srv"}, "file_storage_dir"),
        ({"file_storage_dir": "/"}, "file_storage_dir"),
        ({"file_storage_dir": "/srv/../etc"}, "file_storage_dir"),
        ({"shared_file_storage_dir": "/srv/a\n/etc"}, "shared_file_storage_dir"),
        ({"shared_file_storage_dir": "/srv/#x"}, "shared_file_storage_dir"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        check_options(options(**changes))
    assert field in caught.value.message


def founding(given: InitOptions) -> InitContext:
    node = NodeUuid("node-uuid")
    return InitContext(
        options=given,
        paths=Paths(),
        clock=FrozenClock(),
        ids=CountingIds(),
        daemons=None,  # type: ignore[arg-type]  # not asked for anything here
        undo=None,  # type: ignore[arg-type]  # the same
        cluster=first_cluster(given, "cluster-uuid", node, FrozenClock().time()),
        node_uuid=node,
        first=FirstState(first_objects),
    )


def test_the_first_configuration_is_a_cluster_a_group_and_its_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ganeti.base.tls.fingerprint", lambda _pem: "ab" * 32)
    given = options(
        master_ip="192.0.2.100",
        beparams={"vcpus": "2"},
        hvparams={"kvm": {"acpi": "false"}},
        default_iallocator="hail",
    )
    cluster, group, node = first_objects(founding(given))
    assert (cluster.uuid, cluster.master_node, cluster.master_ip) == (
        "cluster-uuid",
        "node-uuid",
        "192.0.2.100",
    )
    assert cluster.beparams == {"default": {"vcpus": 2}}
    assert cluster.hvparams == {"kvm": {"acpi": False}}
    assert cluster.default_iallocator == "hail"
    assert (node.uuid, node.group, node.certificate) == ("node-uuid", group.uuid, "ab" * 32)
    assert (node.primary_ip, node.secondary_ip) == ("192.0.2.1", "192.0.2.1")
    assert node.master_candidate
    assert group.name == "default"
    assert {cluster.ctime, group.ctime, node.mtime} == {FrozenClock().time()}


@pytest.mark.requirement("S105", "S230")
@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({}, None),
        ({"uid_pool": [(61000, 61009)]}, "pool"),
        ({"uid_pool": [(61000, 61009)], "enabled_hypervisors": ["fake"]}, None),
        (
            {"uid_pool": [(61000, 61009)], "hvparams": {"kvm": {"security_model": "none"}}},
            "none",
        ),
    ],
)
def test_guests_of_a_new_cluster_have_ids_of_its_pool(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], model: str | None
) -> None:
    monkeypatch.setattr("ganeti.base.tls.fingerprint", lambda _pem: "ab" * 32)
    cluster = first_objects(founding(options(**changes)))[0]
    assert cluster.uid_pool == tuple(changes.get("uid_pool", ()))
    assert cluster.hvparams.get("kvm", {}).get("security_model") == model
