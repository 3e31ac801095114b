"""Parameters of disks and NICs with all their layers."""

import pytest
from msgspec.structs import replace

from ganeti.config.fill import all_diskparams, filled_diskparams, without, without_globals
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.objects import Cluster, GroupUuid, NodeGroup, NodeUuid

CLUSTER = Cluster(
    uuid="c", name="c", master_node=NodeUuid("n"), diskparams={"drbd": {"protocol": "A"}}
)
GROUP = NodeGroup(uuid=GroupUuid("g"), name="g", diskparams={"drbd": {"resync-rate": 7}})


@pytest.mark.requirement("S74", "S75")
def test_each_layer_of_disk_parameters_is_stronger_than_the_one_before() -> None:
    assert (
        filled_diskparams(Cluster(uuid="c", name="c", master_node=NodeUuid("n")), None, "drbd")
        == TEMPLATES["drbd"].params
    )
    filled = filled_diskparams(CLUSTER, GROUP, "drbd", {"resync-rate": 8})
    assert (filled["protocol"], filled["resync-rate"], filled["metavg"]) == ("A", 8, "")
    assert filled_diskparams(CLUSTER, GROUP, "drbd")["resync-rate"] == 7


def test_every_template_is_shown_with_all_its_parameters() -> None:
    shown = all_diskparams(replace(CLUSTER, diskparams={"plain": {"stripes": 2}}), GROUP)
    assert shown["plain"] == {
        "stripe_size": 64,
        "stripes": 2,
        "thin_overcommit": 100,
        "thin_pool": "",
        "vg": "",
    }
    assert shown["file"] == {"format": "raw"}
    assert shown.keys() == TEMPLATES.keys()


@pytest.mark.requirement("S85")
def test_what_only_a_cluster_has_is_left_out_of_any_kind_of_parameters() -> None:
    assert without({"vcpus": 2, "always_failover": True}, {"always_failover"}) == {"vcpus": 2}
    assert without({"vcpus": 2}, ()) == {"vcpus": 2}
    hvparams = {"migration_port": 1, "acpi": True}
    assert without_globals("kvm", hvparams) == without(hvparams, {"migration_port"})
