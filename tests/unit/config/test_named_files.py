"""The password files that go to all nodes."""

import dataclasses

import pytest
from msgspec.structs import replace

from ganeti.config.named_files import named_files
from ganeti.config.snapshot import Snapshot
from ganeti.config.view import Tables
from ganeti.model.hypervisors.kvm import VNC_PASSWORD_FILE
from ganeti.model.objects import Cluster, Instance
from tests.unit.query.cluster import snapshot


def changed(found: Snapshot, cluster: Cluster, instances: dict[str, Instance]) -> Snapshot:
    tables: Tables = {**found.tables, Instance: instances}
    return dataclasses.replace(found, cluster=cluster, tables=tables)


@pytest.mark.requirement("S70", "S71")
def test_the_files_of_the_cluster_of_an_os_and_of_instances_are_all_named() -> None:
    found = snapshot()
    cluster = replace(
        found.cluster,
        enabled_hypervisors=("kvm",),
        hvparams={"kvm": {"spice_password_file": "/etc/ganeti/spice-pw"}},
        os_hvp={"tiny": {"kvm": {"vnc_password_file": "/etc/ganeti/tiny-pw"}}},
    )
    instances = {
        uuid: replace(
            one, hypervisor="kvm", hvparams={"vnc_password_file": f"/etc/ganeti/pw{number}"}
        )
        for number, (uuid, one) in enumerate(list(found.instances.items())[:2])
    }
    assert named_files(changed(found, cluster, instances)) == [
        "/etc/ganeti/pw0",
        "/etc/ganeti/pw1",
        "/etc/ganeti/spice-pw",
        "/etc/ganeti/tiny-pw",
        VNC_PASSWORD_FILE,
    ]


def test_an_empty_name_is_no_file() -> None:
    found = snapshot()
    cluster = replace(
        found.cluster,
        enabled_hypervisors=("kvm",),
        hvparams={"kvm": {"vnc_password_file": ""}},
    )
    assert named_files(changed(found, cluster, {})) == []


@pytest.mark.requirement("A45")
def test_value_from_an_earlier_check_is_not_distributed() -> None:
    found = snapshot()
    cluster = replace(
        found.cluster,
        enabled_hypervisors=("kvm",),
        hvparams={"kvm": {"vnc_password_file": "/var/lib/ganeti/ca.key"}},
        os_hvp={"tiny": {"kvm": {"spice_password_file": "/etc/shadow"}}},
    )
    assert named_files(changed(found, cluster, {})) == []
