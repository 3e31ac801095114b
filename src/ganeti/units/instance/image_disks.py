"""Refusals because of disks that are images: nothing but a guest reads or writes their data."""

from collections.abc import Iterable

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import RAW, disk_format
from ganeti.model.objects import Disk


def is_image(disk: Disk) -> bool:
    """Return whether the disk is an image in a format of its own, so that its file has other bytes than the disk."""
    return disk_format(disk.template, disk.params) != RAW


def check_no_images(name: str, disks: Iterable[Disk], participle: str, advice: str = "") -> None:
    """Refuse an operation that reads or writes the data of an instance's disks; `participle` names it."""
    for index, disk in enumerate(disks):
        if is_image(disk):
            form = disk_format(disk.template, disk.params)
            raise PrereqError(
                f"{name} cannot be {participle}: its disk {index} has format={form}, and only a guest can read or"
                f" write such a disk; {advice or _ADVICE}",
                ErrorCode.WRONG_STATE,
            )


_ADVICE = (
    f"add a disk with format={RAW} (gnt-instance modify --disk add:size=SIZE,format={RAW}), copy the data in the"
    " guest, and remove the other disk"
)
