"""What a guest's screen shows now, as a PNG picture."""

import asyncio
import contextlib
import secrets
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.guests import Guest
from ganeti.hypervisor.kvm.monitor import CommandRefused

SIZE_LIMIT = 8 * 1024 * 1024
"""Bytes of a picture; more is refused, because a guest chooses the size of its screen."""
_PNG = b"\x89PNG\r\n\x1a\n"


async def screenshot(guest: Guest) -> bytes:
    """Let QEMU draw the screen into a file beside the guest's sockets, and take it from there."""
    path = guest.files.directory / f"{guest.files.short_uuid}.{secrets.token_hex(4)}.png"
    try:
        await guest.ask("screendump", {"filename": str(path), "format": "png"})
        return await asyncio.to_thread(_taken, path, guest.instance.name)
    except CommandRefused as err:
        raise HypervisorError(
            f"{guest.instance.name} shows no screen: {err}; it needs a graphics card, as"
            " gnt-instance modify -H vga=std gives it at its next start"
        ) from err
    finally:
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
