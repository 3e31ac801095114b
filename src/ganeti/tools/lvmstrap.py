"""`lvmstrap`: makes a volume group of unused disks of this host."""

import argparse
import asyncio
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.terminal import Parser, say
from ganeti.tools.host_disks import HostDisk, chosen, disks_of, problem_of
from ganeti.tools.program import ended

if TYPE_CHECKING:
    from ganeti.storage.lvm.reports import Physical
    from ganeti.storage.lvm.tools import Lvm

PROG = "lvmstrap"
GROUP = "xenvg"
MIB = 1 << 20
_READ_PARTITIONS_AGAIN = 0x125F
"""BLKRRPART"""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 after an error message."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: asyncio.run(_run(args, Path("/"))))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, with Ganeti's names."""
    made = Parser(prog=PROG, description="Make a volume group of unused disks.")
    made.add_argument(
        "command",
        choices=("diskinfo", "create"),
        help="diskinfo: show the disks and their uses; create: overwrite disks, and make the group",
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument(
        "-d",
        "--disks",
        metavar="NAME,...",
        help="use these disks, for example sdb,sdc; all data on them is lost",
    )
    which.add_argument(
        "--alldisks",
        action="store_true",
        help="use all unused disks; all data on them is lost",
    )
    made.add_argument("-r", "--allow-removable", action="store_true", help="allow removable disks")
    made.add_argument("-g", "--vg-name", default=GROUP, metavar="NAME", help="default: %(default)s")
    made.add_argument("-v", "--verbose", action="store_true", help="report each step")
    made.add_argument(
        "--use-sfdisk",
        action="store_true",
        help="ignored; kept for compatibility with Ganeti 3",
    )
    return made


async def _run(args: argparse.Namespace, root: Path) -> int:
    from ganeti.storage.lvm.tools import Lvm  # noqa: PLC0415 - heavy

    lvm = Lvm()
    disks = disks_of(root, _groups(await lvm.physical()))
    if args.command == "diskinfo":
        _show(disks, removable=args.allow_removable)
        return 0
    if not args.disks and not args.alldisks:
        raise PrereqError("name the disks: --disks or --alldisks", ErrorCode.WRONG_INPUT)
    names = args.disks.split(",") if args.disks else None
    taken = chosen(disks, names, removable=args.allow_removable)
    size = await create(lvm, args.vg_name, taken, say if args.verbose else None)
    say(f"{args.vg_name} has {size >> 30} GiB on {', '.join(disk.name for disk in taken)}.")
    return 0


def _groups(found: Sequence["Physical"]) -> dict[str, str]:
    """Return name of a device -> its volume group."""
    return {os.path.realpath(one.name).removeprefix("/dev/"): one.group for one in found}


def _show(disks: Sequence[HostDisk], *, removable: bool) -> None:
    say(f"{'Name':12} {'Size/MiB':>10}  Use")
    for disk in disks:
        say(
            f"{disk.name:12} {disk.size // MIB:>10}  {problem_of(disk, removable=removable) or 'free'}"
        )


async def create(
    lvm: "Lvm", group: str, disks: Sequence[HostDisk], tell: Callable[[str], None] | None = None
) -> int:
    """Overwrite the disks and make a group of them; return its size in bytes.

    PrereqError before anything is written if the group exists or a disk is open. After a StorageError the data of the
    disks is lost, and the command may be repeated.
    """
    from ganeti.storage.lvm import commands  # noqa: PLC0415

    if any(one.name == group for one in await lvm.groups()):
        raise PrereqError(f"volume group {group} exists already", ErrorCode.EXISTS)
    made = commands.create_group(group, [disk.path for disk in disks])
    for disk in disks:
        _erase(disk, only_look=True)
    for disk in disks:
        if tell:
            tell(f"overwriting {disk.path}")
        _erase(disk)
        await lvm.act(commands.create_physical(disk.path))
    if tell:
        tell(" ".join(made))
    await lvm.act(made)
    return next(one.size for one in await lvm.groups() if one.name == group)


def _erase(disk: HostDisk, *, only_look: bool = False) -> None:
    """Erase the signatures on the disk: fill both ends of it, and of its partitions, with zeros."""
    for name in (*disk.parts, disk.name):
        try:
            descriptor = os.open(f"/dev/{name}", os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as err:
            if err.errno == errno.EBUSY:
                raise PrereqError(
                    f"{name} is in use by an unknown program", ErrorCode.WRONG_STATE
                ) from err
            raise HostError(f"cannot open /dev/{name}: {err.strerror}") from err
        try:
            if not only_look:
                _zero_ends(descriptor)
                if name == disk.name and disk.parts:
                    fcntl.ioctl(descriptor, _READ_PARTITIONS_AGAIN)
        finally:
            os.close(descriptor)


def _zero_ends(descriptor: int) -> None:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    length = min(MIB, size)
    for offset in (0, size - length):
        os.pwrite(descriptor, bytes(length), offset)
    os.fsync(descriptor)


if __name__ == "__main__":
    sys.exit(main())
