"""Guests above the disks of a backup.

    device -> above-X (qcow2): what the guest has written
                  | where it has written nothing
                  v
              NBD: the backup

A move of the disks (`disk_moves.py`) then copies both to the real disk, and the guest changes to that. The image is the
node of the device, not below a raw node as other disks: QEMU's mirror does not see the backing file of a node below.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.command_line import DiskBackend
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.live_restores import StartsAbove
from ganeti.model.instance_spec import DiskSpec, InstanceSpec

RECONNECT_S = 30
"""The time for which a read waits for a backup that is out of reach; then the guest stops."""
CONTINUE_S, LOOK_EVERY_S = 10.0, 0.2
"""The time for a stopped guest to get its backup back."""


class _Start(Protocol):
    def __call__(
        self,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        disks: Sequence[DiskBackend],
        /,
    ) -> Awaitable[None]: ...


@dataclass(frozen=True)
class KvmLiveRestores(StartsAbove):
    """Starts guests with `start_with`, which gets the way to open each disk."""

    guests: Guests
    start_with: _Start

    async def start(
        self,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        overlays: Sequence[Path],
        socket: Path,
    ) -> None:
        disks = [
            overlay_backend(disk, overlay, socket)
            for disk, overlay in zip(instance.disks, overlays, strict=True)
        ]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONTINUE_S
        while True:
            try:
                await self.start_with(instance, disk_paths, disks)
            except HypervisorError:
                # After a long loss QEMU connects in the background, and repeated reads fail until then.
                guest = self.guests.peek(self.guests.files(instance.uuid))
                if guest is None or loop.time() > deadline or await guest.status() != "io-error":
                    raise
                await asyncio.sleep(LOOK_EVERY_S)
            else:
                return


def overlay_backend(disk: DiskSpec, overlay: Path, socket: Path) -> DiskBackend:
    """Return the way to open a disk above a backup: no format is probed, no name in an image is followed."""
    backup = {
        "driver": "nbd",
        "server": {"type": "unix", "path": str(socket)},
        "export": disk.uuid,
        "reconnect-delay": RECONNECT_S,
    }
    written = {"driver": "file", "filename": str(overlay), "locking": "auto"}
    image = {"driver": "qcow2", "file": written, "backing": backup}
    return DiskBackend(str(overlay), is_block=False, direct=False, above=image)
