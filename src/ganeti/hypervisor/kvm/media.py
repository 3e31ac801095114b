"""Changing the CD of a running guest.

QEMU gets the image as an open descriptor, because a confined one can open nothing; the descriptor's
own path is held to the directories for images, so that no link can be exchanged between (A45).
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.images import CDS, EMPTY, image_problem, outside_problem
from ganeti.hypervisor.kvm.monitor import CommandRefused, Talk
from ganeti.model.params import Params

_FDSET_BASE = 0x48000
"""Sets of descriptors for images are numbered from here; disks have lower ones."""
_TRAY_S = 20.0


async def change_medium(ask: Talk, drive: str, hvparams: Params) -> bool:
    """Put what `hvparams` say into the drive, or take its medium out; False if this guest has no such drive.

    The medium that was there stays if the new one cannot be used. HypervisorError.
    """
    device = f"cdrom{CDS.index(drive)}"
    block = await _block(ask, device)
    if block is None or not block.get("removable"):
        return False
    old = _node(block)
    image = str(hvparams[drive])
    if image in ("", EMPTY):
        await _take_out(ask, device)
    else:
        new = f"{device}-raw" if old == f"{device}-raw-2" else f"{device}-raw-2"
        await _forget(ask, new)
        await _add(ask, new, drive, hvparams)
        try:
            await _exchange(ask, device, old, new)
        except BaseException:
            await _forget(ask, new)
            raise
    if old:
        await _forget(ask, old)
    return True


async def _exchange(ask: Talk, device: str, old: str, new: str) -> None:
    await _take_out(ask, device)
    try:
        await _put_in(ask, device, new)
    except HypervisorError:
        if old:
            await _put_in(ask, device, old)
        raise


async def _take_out(ask: Talk, device: str) -> None:
    """Open the tray, also one that the guest has locked, and leave it empty and closed."""
    await ask("blockdev-open-tray", {"id": device, "force": True}, timeout_s=_TRAY_S)
    with contextlib.suppress(CommandRefused):  # it was empty
        await ask("blockdev-remove-medium", {"id": device})
    await ask("blockdev-close-tray", {"id": device})


async def _put_in(ask: Talk, device: str, node: str) -> None:
    await ask("blockdev-open-tray", {"id": device, "force": True}, timeout_s=_TRAY_S)
    await ask("blockdev-insert-medium", {"id": device, "node-name": node})
    await ask("blockdev-close-tray", {"id": device})


async def _add(ask: Talk, node: str, drive: str, hvparams: Params) -> None:
    """Give QEMU an image as an open descriptor, read-only and raw."""
    fdset = _FDSET_BASE + 2 * CDS.index(drive) + node.endswith("-2")
    lower = {"driver": "file", "node-name": _file_of(node), "filename": f"/dev/fdset/{fdset}"}
    upper = {"driver": "raw", "node-name": node, "file": _file_of(node)}
    with _opened(drive, hvparams) as file:
        await ask.with_files(
            [file],
            [
                ("add-fd", {"fdset-id": fdset}),
                ("blockdev-add", {**lower, "read-only": True}),
                ("blockdev-add", {**upper, "read-only": True}),
            ],
        )


async def _forget(ask: Talk, node: str) -> None:
    for name in (node, _file_of(node)):
        with contextlib.suppress(CommandRefused):  # it is not there
            await ask("blockdev-del", {"node-name": name})


def _file_of(node: str) -> str:
    return node.replace("-raw", "-file")


async def _block(ask: Talk, device: str) -> dict[str, Any] | None:
    """What QEMU says about a drive; None if the guest has it not."""
    found: list[dict[str, Any]] = await ask("query-block")
    places = (device, f"/machine/peripheral/{device}")
    for block in found:
        qdev = str(block.get("qdev", ""))
        if qdev in places or qdev.startswith(f"/machine/peripheral/{device}/"):
            return block
    return None


def _node(block: dict[str, Any]) -> str:
    return str(block.get("inserted", {}).get("node-name", ""))


@contextlib.contextmanager
def _opened(drive: str, hvparams: Params) -> Iterator[int]:
    """An image's file for the time of a block, if it may be shown to guests."""
    if problem := image_problem(drive, hvparams):
        raise HypervisorError(problem)
    path = str(hvparams[drive])
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        raise HypervisorError(f"{drive}: {path} cannot be opened: {err.strerror}") from err
    try:
        # What was looked at by name may be another file by now.
        real = Path(f"/proc/self/fd/{file}").readlink()
        if problem := outside_problem(drive, real, hvparams):
            raise HypervisorError(problem)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise HypervisorError(f"{drive}: {path} is not a file")
        yield file
    finally:
        os.close(file)
