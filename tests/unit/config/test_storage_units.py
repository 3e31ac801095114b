"""Where disks take their space, also those that were made in another cluster."""

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_unit, disk_usage
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import Disk
from ganeti.units.cluster.gather import nodes_by_units
from tests.unit.config.merging_clusters import cluster


def in_file(path: str, template: str = "file") -> Disk:
    return Disk(uuid=path, size=8, template=template, logical_id=("loop", path))


@pytest.mark.requirement("S45", "S48")
@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_a_file_that_was_made_elsewhere_is_in_a_directory_of_its_own(template: str) -> None:
    ours = replace(
        cluster(1, nodes=1, instances=0).cluster,
        file_storage_dir="/srv/ours",
        shared_file_storage_dir="/srv/ours",
    )

    def unit(key: str) -> StorageUnit:
        return StorageUnit(kind=template, key=key)

    assert disk_unit(ours, in_file("/srv/ours/web1/disk0", template)) == unit("/srv/ours")
    assert disk_unit(ours, in_file("/srv/ours/deep/web1/disk0", template)) == unit("/srv/ours")
    assert disk_unit(ours, in_file("/srv/oursnot/web1/disk0", template)) == unit("/srv/oursnot")
    assert disk_unit(ours, in_file("/data/theirs/web1/disk0", template)) == unit("/data/theirs")


@pytest.mark.requirement("S48")
def test_only_nodes_that_use_another_directory_are_asked_about_it() -> None:
    given = cluster(1, nodes=3, instances=1)
    ours = replace(given.cluster, file_storage_dir="/srv/ours", enabled_disk_templates=("file",))
    (instance,) = given.instances.values()
    instance = replace(instance, disks=(in_file("/data/theirs/web1/disk0"),), disk_template="file")
    others = [one for one in given.objects() if one.uuid not in (ours.uuid, instance.uuid)]
    snapshot = Snapshot.of(1, ours, others=[*others, instance])
    asked = {
        node.uuid: {unit.key for unit in units}
        for units, nodes in nodes_by_units(snapshot, snapshot.nodes_by_name()).items()
        for node in nodes
    }
    assert {*snapshot.nodes} - {*instance.all_nodes}
    assert asked == {
        uuid: {"/srv/ours", "/data/theirs"} if uuid in instance.all_nodes else {"/srv/ours"}
        for uuid in snapshot.nodes
    }


@pytest.mark.requirement("S170")
def test_the_space_of_disks_on_a_node_includes_metadata() -> None:
    ours, leaf = (
        cluster(1, nodes=1, instances=0).cluster,
        Disk(uuid="d", size=1024, template="plain"),
    )
    mirror = Disk(uuid="m", size=1024, template="drbd")
    laid_out = replace(mirror, children=(leaf, replace(leaf, uuid="e", size=33)))
    device = Disk(uuid="b", size=1024, template="blockdev")
    usages = [disk_usage(ours, [disk]) for disk in (leaf, mirror, laid_out, device)]
    assert usages == [1024, 1152, 1057, 0]
    large = replace(ours, diskparams={"drbd": {"meta_size": 200}})
    assert disk_usage(large, [mirror]) == 1224
