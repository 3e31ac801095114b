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
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.live_restores import StartsAbove
from ganeti.model.instance_spec import DiskSpec, InstanceSpec

RECONNECT_S = 30
"""The time for which a read waits for a backup that is out of reach; then the guest stops."""
CONTINUE_S, LOOK_EVERY_S, STABLE_S = 15.0, 0.2, 1.0
"""The time for a stopped guest to get its backup back, and without an error after that."""
IO_ERROR = "io-error"


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
        files = self.guests.files(instance.uuid)
        may_stop = self.guests.peek(files) is not None  # a read may still wait for the lost backup
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONTINUE_S
        while True:
            try:
                await self.start_with(instance, disk_paths, disks)
                guest = self.guests.peek(files)
                if not may_stop or guest is None or await self._continues(guest):
                    return
            except HypervisorError:
                if not may_stop or loop.time() > deadline:
                    raise
            # After a long loss QEMU connects in the background, and repeated reads fail until then.
            if loop.time() > deadline:
                raise HypervisorError(
                    f"{instance.name} is stopped, because it does not reach its backup; check that the node with the backup answers, and"
                    " repeat the command"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def _continues(self, guest: Guest) -> bool:
        """Return whether a guest that continues has no error of a disk soon after that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + STABLE_S
        while loop.time() < end:
            if await guest.status() == IO_ERROR:
                return False
            await asyncio.sleep(LOOK_EVERY_S)
        return True


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
