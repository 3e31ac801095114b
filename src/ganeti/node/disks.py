"""All disks of an instance together: all usable, or none."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import DiskRole
from ganeti.storage.interface import BlockDevice

DeviceFactory = Callable[[str, DiskSpec], BlockDevice]
"""Instance name and disk -> its driver object (`ganeti.storage.assemble.device`, with this node's paths)."""

log = logging.getLogger(__name__)


class InstanceDisks:
    """The disks of one instance on this node, in order."""

    def __init__(self, device: DeviceFactory, instance: InstanceSpec) -> None:
        self._name = instance.name
        self._devices = [device(instance.name, disk) for disk in instance.disks]

    @property
    def paths(self) -> list[str]:
        """Return the paths with the disks' bytes, usable or not; StorageError if a disk is an image in a format."""
        return [device.path for device in self._devices]

    @property
    def are_images(self) -> list[bool]:
        """Return whether each disk is an image, whose path has other bytes than the disk."""
        return [device.is_image for device in self._devices]

    @property
    def images(self) -> list[str]:
        """Return the paths for the hypervisor, which knows the format of each disk, usable or not."""
        return [device.image for device in self._devices]

    async def open(self, role: DiskRole = DiskRole.PRIMARY) -> list[str]:
        """Open all disks and return `images`; on failure no disk stays open."""
        for count, device in enumerate(self._devices):
            try:
                await device.open(role)
            except BaseException:
                await self._abandon(self._devices[:count])
                raise
        return self.images

    async def close(self) -> None:
        """Undo `open` for all, also if it fails for some; then the first failure is raised."""
        failures = await self._close(self._devices)
        if failures:
            raise failures[0]

    async def abandon(self) -> None:
        """Undo `open` after a failure that is already reported; log further failures."""
        await self._abandon(self._devices)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[list[str]]:
        """Keep the disks usable for the block, and return `images`."""
        images = await self.open()
        try:
            yield images
        except BaseException:
            await self.abandon()
            raise
        await self.close()

    async def _abandon(self, devices: Sequence[BlockDevice]) -> None:
        for failure in await self._close(devices):
            log.warning("disks of %s: %s", self._name, failure)

    async def _close(self, devices: Sequence[BlockDevice]) -> list[StorageError]:
        failures = []
        for device in reversed(devices):
            try:
                await device.close()
            except StorageError as err:
                failures.append(err)
        return failures
