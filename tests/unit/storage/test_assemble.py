"""Which driver handles a disk."""

from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec
from ganeti.storage.assemble import DRIVERS, device


def spec(template: str) -> DiskSpec:
    return DiskSpec(uuid="u", index=1, size=1, template=template, logical_id=("loop", "/srv/x/d"))


@pytest.mark.parametrize("template", [t for t in DISK_TEMPLATES.values() if t.has_disks])
def test_every_template_with_disks_has_a_driver_of_its_name(template: object) -> None:
    assert {driver.name for driver in DISK_TEMPLATES.values() if driver.has_disks} == set(DRIVERS)


def test_a_file_disk_lies_below_the_prefix_and_a_shared_one_does_not() -> None:
    paths = Paths(Path("/tmp/node1"))
    assert device(paths, "web1", spec("file")).path == "/tmp/node1/srv/x/d"
    assert device(paths, "web1", spec("sharedfile")).path == "/srv/x/d"


def test_an_unknown_template_is_refused_with_the_known_ones() -> None:
    with pytest.raises(StorageError, match=r"disk 1 of web1.*'gluster'.*known: blockdev, drbd"):
        device(Paths(), "web1", spec("gluster"))
