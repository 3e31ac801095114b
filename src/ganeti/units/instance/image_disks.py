"""Refusals because of disks that are images: operations that need the bytes of a disk in its file."""

from collections.abc import Iterable

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import RAW, disk_format
from ganeti.model.objects import Disk


def is_image(disk: Disk) -> bool:
    """Return whether the disk is an image in a format of its own, so that its file has other bytes than the disk."""
    return disk_format(disk.template, disk.params) != RAW


def has_images(disks: Iterable[Disk]) -> bool:
    """Return whether a disk is an image."""
    return any(is_image(disk) for disk in disks)


def check_no_images(name: str, disks: Iterable[Disk], participle: str, advice: str) -> None:
    """Refuse an operation that needs raw disks; `participle` names it, `advice` the way out."""
    for index, disk in enumerate(disks):
        if is_image(disk):
            form = disk_format(disk.template, disk.params)
            raise PrereqError(
                f"{name} cannot be {participle}: its disk {index} has format={form}; {advice}",
                ErrorCode.WRONG_STATE,
            )
