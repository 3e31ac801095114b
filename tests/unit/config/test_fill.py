"""Parameters of disks and NICs with all their layers."""

import pytest
from msgspec.structs import replace

from ganeti.config.fill import all_diskparams, filled_diskparams
from ganeti.model.disk_params import DISK_PARAM_DEFAULTS
from ganeti.model.objects import Cluster, GroupUuid, NodeGroup, NodeUuid

CLUSTER = Cluster(
    uuid="c", name="c", master_node=NodeUuid("n"), diskparams={"drbd": {"protocol": "A"}}
)
GROUP = NodeGroup(uuid=GroupUuid("g"), name="g", diskparams={"drbd": {"resync-rate": 7}})


@pytest.mark.requirement("S74", "S75")
def test_each_layer_of_disk_parameters_is_stronger_than_the_one_before() -> None:
    assert (
        filled_diskparams(Cluster(uuid="c", name="c", master_node=NodeUuid("n")), None, "drbd")
        == (DISK_PARAM_DEFAULTS["drbd"])
    )
    filled = filled_diskparams(CLUSTER, GROUP, "drbd", {"resync-rate": 8})
    assert (filled["protocol"], filled["resync-rate"], filled["metavg"]) == ("A", 8, "xenvg")
    assert filled_diskparams(CLUSTER, GROUP, "drbd")["resync-rate"] == 7


def test_every_template_is_shown_with_all_its_parameters() -> None:
    shown = all_diskparams(replace(CLUSTER, diskparams={"plain": {"stripes": 2}}), GROUP)
    assert shown["plain"] == {"stripes": 2}
    assert shown["file"] == {}
    assert shown.keys() == DISK_PARAM_DEFAULTS.keys()
