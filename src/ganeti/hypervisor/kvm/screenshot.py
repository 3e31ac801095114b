"""The present picture of a guest's screen, as PNG."""

import asyncio
import contextlib
import os
import secrets
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import TakesScreenshots
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.model.instance_spec import InstanceSpec

SIZE_LIMIT = 8 * 1024 * 1024
"""The limit of a picture in bytes, because a guest chooses the size of its screen."""
_FDSET = 0x46000
"""A number below those of disks; used for one conversation at a time."""
_PNG = b"\x89PNG\r\n\x1a\n"


class Screens(TakesScreenshots):
    """The screens of a node's guests."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    async def screenshot(self, instance: InstanceSpec) -> bytes:
        return await screenshot(self._guests.here(instance))


async def screenshot(guest: Guest) -> bytes:
    """Let QEMU draw the screen into a file that we opened (a confined one can open none), and return it."""
    path = guest.files.directory / f"{guest.files.short_uuid}.{secrets.token_hex(4)}.png"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        await guest.ask.with_files(
            [file],
            [
                ("add-fd", {"fdset-id": _FDSET}),
                ("screendump", {"filename": f"/dev/fdset/{_FDSET}", "format": "png"}),
                ("remove-fd", {"fdset-id": _FDSET}),
            ],
        )
        return await asyncio.to_thread(_taken, path, guest.instance.name)
    except CommandRefused as err:
        raise HypervisorError(
            f"{guest.instance.name} has no screen: {err}; it needs a graphics card, which"
            " gnt-instance modify -H vga=std adds at its next start"
        ) from err
    finally:
        os.close(file)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _taken(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            picture = file.read(SIZE_LIMIT + 1)
    except OSError as err:
        raise HypervisorError(f"the picture of {name} cannot be read: {err.strerror}") from err
    if len(picture) > SIZE_LIMIT:
        raise HypervisorError(f"the picture of {name} has more than {SIZE_LIMIT} bytes")
    if not picture.startswith(_PNG):
        raise HypervisorError(f"QEMU did not make a PNG picture of {name}")
    return picture
