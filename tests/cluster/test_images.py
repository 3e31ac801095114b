"""Machines from elsewhere by the real commands: an export goes out as an OVA and comes back."""

import shutil
from collections.abc import Callable

import pytest

from tests.cluster.test_gnt_backup import add, digests, disks_of, install_os
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NewName = Callable[[], str]


@pytest.mark.requirement("A51")
def test_an_instance_goes_out_as_an_ova_and_comes_back(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "quiet", ["create", "verify"])
    old, new = new_name(), new_name()
    data = add(cluster, old, "quiet")
    cluster.ok("gnt-backup", "export", "-n", "node2", "--ova", "--remove-instance", old)
    paths = cluster.node(2).paths
    [exported] = paths.exports.iterdir()
    packed = exported / f"{exported.name}.ova"
    images = paths.below("/srv/ganeti/images")
    images.mkdir(parents=True)
    shutil.copy(packed, images / "box.ova")
    listed = ["--src-node=node2", "-t", "file", "-n", "node3"]
    wrong = "/srv/ganeti/export/box.ova"
    assert "is not below" in cluster.fails("gnt-backup", "import", "--image", wrong, *listed, new)
    image = "/srv/ganeti/images/box.ova"
    said = cluster.fails("gnt-backup", "import", "--image", image, "--format=qcow2", *listed, new)
    assert "no header of qcow2" in said
    said = cluster.ok("gnt-backup", "import", "--image", image, *listed, new).out
    assert "converting" in said
    assert digests(disks_of(cluster, 3, new)) == data
    assert cluster.value("instance", new, "be/maxmem") == "16M"
    assert [path.name for path in paths.exports.iterdir()] == [exported.name]
    cluster.ok("gnt-instance", "remove", "-f", new)
    cluster.ok("gnt-backup", "remove", exported.name)
    shutil.rmtree(images)
