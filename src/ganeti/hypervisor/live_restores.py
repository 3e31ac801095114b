"""Guests that start while the content of their disks still arrives: an optional part of a driver."""

import abc
from collections.abc import Sequence
from pathlib import Path

from ganeti.model.instance_spec import InstanceSpec


class StartsAbove(abc.ABC):
    """Starts a guest above the disks of a backup."""

    @abc.abstractmethod
    async def start(
        self,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        overlays: Sequence[Path],
        socket: Path,
    ) -> None:
        """Start a guest whose writes go to `overlays`, qcow2 images, and that reads everything else from `socket`.

        An NBD server at the socket has an export for each disk, named by the disk's UUID. `disk_paths` are the disks
        of the instance, which the guest does not use yet. A guest that runs already continues, also after an error of
        its disks. The guest stops at an error of a disk, and never sees it.
        """
