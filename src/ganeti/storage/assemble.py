"""The driver of a disk of the model on this node."""

from collections.abc import Callable, Iterator
from functools import partial

from ganeti.base.errors import StorageError
from ganeti.base.modules import implementations
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.storage.interface import BlockDevice

Driver = Callable[[Paths, DiskSpec, Callable[[DiskSpec], BlockDevice]], BlockDevice]
"""Makes the driver object of one disk, as `BlockDevice.of` does."""


def find_drivers() -> Iterator[tuple[str, Driver]]:
    """Return each driver that this package declares, with the name of its template."""
    for driver in implementations("ganeti.storage", BlockDevice):  # type: ignore[type-abstract]  # only looked for
        yield driver.template.name, driver.of


DRIVERS: dict[str, Driver] = dict(find_drivers())


def device(paths: Paths, instance_name: str, disk: DiskSpec) -> BlockDevice:
    """Return the driver object of one disk; StorageError if its template or location is unknown."""
    driver = DRIVERS.get(disk.template)
    if driver is None:
        raise StorageError(
            f"disk {disk.index} of {instance_name}: no driver supports the template"
            f" {disk.template!r:.60} (known: {', '.join(sorted(DRIVERS))})"
        )
    return driver(paths, disk, partial(device, paths, f"disk {disk.uuid}"))
