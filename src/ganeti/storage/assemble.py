"""From a disk of the model to the driver that handles it on this node."""

from collections.abc import Callable

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.storage.block_device import AdoptedDevice
from ganeti.storage.drbd.driver import DrbdDisk
from ganeti.storage.external.volume import ExternalVolume
from ganeti.storage.file import FileDisk
from ganeti.storage.interface import BlockDevice
from ganeti.storage.lvm.volume import LogicalVolume
from ganeti.storage.rbd import RadosImage
from ganeti.storage.shared_file import SharedFileDisk


def _drbd(paths: Paths, disk: DiskSpec) -> BlockDevice:
    return DrbdDisk(disk, lambda layer: device(paths, f"disk {disk.uuid}", layer))


DRIVERS: dict[str, Callable[[Paths, DiskSpec], BlockDevice]] = {
    FileDisk.template.name: FileDisk,
    SharedFileDisk.template.name: SharedFileDisk,
    LogicalVolume.template.name: LogicalVolume,
    AdoptedDevice.template.name: AdoptedDevice,
    RadosImage.template.name: RadosImage,
    ExternalVolume.template.name: ExternalVolume,
    DrbdDisk.template.name: _drbd,
}


def device(paths: Paths, instance_name: str, disk: DiskSpec) -> BlockDevice:
    """The driver object of one disk; StorageError if its template or place is unknown."""
    driver = DRIVERS.get(disk.template)
    if driver is None:
        raise StorageError(
            f"disk {disk.index} of {instance_name}: no driver keeps disks of template"
            f" {disk.template!r:.60} (known: {', '.join(DRIVERS)})"
        )
    return driver(paths, disk)
