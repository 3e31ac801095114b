"""Changes of the CD of a running guest.

QEMU gets the image as an open descriptor, because a confined one can open nothing. The check uses the descriptor's own
path, so that no link can be swapped in between (A45).
"""

import asyncio
import contextlib
import itertools
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.images import CDS, EMPTY, image_problem, outside_problem
from ganeti.hypervisor.kvm.monitor import CommandRefused, Talk
from ganeti.model.params import Params

_FDSET_BASE = 0x48000
"""Sets of descriptors for images are numbered from here; disks have lower ones."""
_TRAY_S = 20.0
_ATTEMPTS = 8
_PAUSE_S = 0.25


async def change_medium(ask: Talk, drive: str, hvparams: Params) -> bool:
    """Insert the medium of `hvparams` into the drive, or eject it; False if this guest has no such drive.

    The former medium remains if QEMU cannot open the new one. HypervisorError.
    """
    device = f"cdrom{CDS.index(drive)}"
    block = await _block(ask, device)
    if block is None or not block.get("removable"):
        return False
    old = _node(block)
    if str(hvparams[drive]) in ("", EMPTY):
        await _reach(ask, device, "", lambda: _empty(ask, device))
    else:
        fdset = await _free_fdset(ask)
        with _opened(drive, hvparams) as file:
            await _reach(ask, device, _fdset_path(fdset), lambda: _fill(ask, device, fdset, file))
    await _forget(ask, old)
    return True


async def _reach(ask: Talk, device: str, file: str, change: Callable[[], Awaitable[None]]) -> None:
    """Change a drive until QEMU reports this file ("" for none), and a closed tray if the guest permits it.

    QEMU does each change at once, but between two queries the guest may open and close the tray.
    """
    refusal: CommandRefused | None = None
    holds_it = False
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        try:
            await change()
            await ask("blockdev-close-tray", {"id": device})
        except CommandRefused as err:
            refusal = err
        block = await _block(ask, device)
        holds_it = block is not None and _file(block) == file
        if block is not None and holds_it and not block.get("tray_open"):
            return
    if not holds_it:
        why = str(refusal or "the guest ejects the medium each time")
        raise HypervisorError(
            f"{device} of the guest could not be changed: {why}; release the drive in the guest, and try again"
        )


async def _empty(ask: Talk, device: str) -> None:
    """Open the tray, even if the guest has locked it, and remove its medium, in one step."""
    await ask("eject", {"id": device, "force": True}, timeout_s=_TRAY_S)


async def _fill(ask: Talk, device: str, fdset: int, file: int) -> None:
    """Exchange the medium in one step: open the image, then the tray, exchange, and close it."""
    medium = {"id": device, "filename": _fdset_path(fdset), "format": "raw"}
    await ask.with_files(
        [file],
        [
            ("add-fd", {"fdset-id": fdset}),
            ("blockdev-change-medium", {**medium, "read-only-mode": "read-only", "force": True}),
        ],
    )


async def _free_fdset(ask: Talk) -> int:
    """Return an unused number of a set of descriptors: the former medium may still be open."""
    taken = {int(one["fdset-id"]) for one in await ask("query-fdsets")}
    return next(number for number in itertools.count(_FDSET_BASE) if number not in taken)


def _fdset_path(fdset: int) -> str:
    return f"/dev/fdset/{fdset}"


async def _forget(ask: Talk, node: str) -> None:
    """Remove the nodes of the guest's first medium; QEMU removes its own ("#...") automatically."""
    if node.startswith("cdrom"):
        for name in (node, node.replace("-raw", "-file")):
            with contextlib.suppress(CommandRefused):  # it does not exist
                await ask("blockdev-del", {"node-name": name})


async def _block(ask: Talk, device: str) -> dict[str, Any] | None:
    """Return QEMU's report about a drive; None if the guest does not have it."""
    found: list[dict[str, Any]] = await ask("query-block")
    places = (device, f"/machine/peripheral/{device}")
    for block in found:
        qdev = str(block.get("qdev", ""))
        if qdev in places or qdev.startswith(f"/machine/peripheral/{device}/"):
            return block
    return None


def _node(block: dict[str, Any]) -> str:
    return str(block.get("inserted", {}).get("node-name", ""))


def _file(block: dict[str, Any]) -> str:
    return str(block.get("inserted", {}).get("file", ""))


@contextlib.contextmanager
def _opened(drive: str, hvparams: Params) -> Iterator[int]:
    """Open an image's file for the time of a block, if guests may see it."""
    if problem := image_problem(drive, hvparams):
        raise HypervisorError(problem)
    path = str(hvparams[drive])
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        raise HypervisorError(f"{drive}: {path} cannot be opened: {err.strerror}") from err
    try:
        # The file at the checked name may be different by now.
        real = Path(f"/proc/self/fd/{file}").readlink()
        if problem := outside_problem(drive, real, hvparams):
            raise HypervisorError(problem)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise HypervisorError(f"{drive}: {path} is not a file")
        yield file
    finally:
        os.close(file)
