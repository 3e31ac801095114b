"""The disks of this host, their uses, and whether they may become physical volumes; reads `/sys` and `/proc`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import ErrorCode, PrereqError

SECTOR = 512
"""The unit of sizes in sysfs, independent of the disk."""
VIRTUAL = ("loop", "ram", "zram", "dm-", "sr", "fd", "drbd", "nbd", "rbd", "mtdblock")
"""Prefixes of devices that are not disks."""
_NUMBER, _PLACE, _SOURCE = 2, 4, 2
"""Positions in a line of mountinfo, the last of them counted from the line's separator."""


@dataclass(frozen=True)
class HostDisk:
    """A whole disk; `uses` are its uses, or the reasons against it."""

    name: str
    size: int
    """Bytes."""
    is_removable: bool = False
    parts: tuple[str, ...] = ()
    """Return the names of its partitions."""
    uses: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"/dev/{self.name}"


def disks_of(root: Path, groups: Mapping[str, str]) -> list[HostDisk]:
    """Return all disks, by name; `groups` are physical volumes (names below /dev) with their groups."""
    blocks = root / "sys" / "block"
    names = [
        one for one in sorted(path.name for path in blocks.iterdir()) if not one.startswith(VIRTUAL)
    ]
    mounts, swaps = _mounts(root), _swaps(root)
    return [_disk(blocks / name, groups, mounts, swaps) for name in names]


def _disk(
    place: Path, groups: Mapping[str, str], mounts: Mapping[str, str], swaps: Collection[str]
) -> HostDisk:
    parts = sorted(path.parent.name for path in place.glob("*/partition"))
    size = int(_read(place / "size") or 0) * SECTOR
    uses = []
    if not size:
        uses.append("has no medium")
    if _read(place / "ro") == "1":
        uses.append("is read-only")
    for one in (place, *(place / part for part in parts)):
        name = _device(one.name)
        uses += [f"{name} {what}" for what in _uses(one, name, groups, mounts, swaps)]
    return HostDisk(
        _device(place.name),
        size,
        _read(place / "removable") == "1",
        tuple(_device(part) for part in parts),
        tuple(uses),
    )


def _uses(
    place: Path,
    name: str,
    groups: Mapping[str, str],
    mounts: Mapping[str, str],
    swaps: Collection[str],
) -> Iterable[str]:
    mounted = mounts.get(_read(place / "dev")) or mounts.get(f"/dev/{name}")
    if mounted:
        yield f"is mounted at {mounted}"
    if name in swaps:
        yield "has swap"
    if name in groups:
        yield f"is a physical volume of {groups[name] or 'no group yet'}"
    holders = sorted(path.name for path in (place / "holders").glob("*"))
    if holders and name not in groups:
        yield f"is held by {', '.join(holders)}"


def _device(name: str) -> str:
    """Return the path of a device: a ! in sysfs is a directory separator of /dev."""
    return name.replace("!", "/")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _mounts(root: Path) -> dict[str, str]:
    """Return device number and path of mounts -> mount point."""
    found: dict[str, str] = {}
    for line in _read(root / "proc" / "self" / "mountinfo").splitlines():
        words = line.split()
        for device in (words[_NUMBER], words[words.index("-") + _SOURCE]):
            found.setdefault(device, words[_PLACE])
    return found


def _swaps(root: Path) -> set[str]:
    lines = _read(root / "proc" / "swaps").splitlines()[1:]
    return {line.split()[0].removeprefix("/dev/") for line in lines}


def chosen(
    disks: Iterable[HostDisk], names: Collection[str] | None, *, removable: bool
) -> list[HostDisk]:
    """Return the named disks, or (None) all unused ones; PrereqError if one is in use, or there is none."""
    known = {disk.name: disk for disk in disks}
    if names is None:
        found = [disk for disk in known.values() if not problem_of(disk, removable=removable)]
        if not found:
            raise PrereqError("no disk is unused", ErrorCode.NO_RESOURCES)
        return found
    wanted = dict.fromkeys(name.removeprefix("/dev/") for name in names)
    for name in wanted:
        if name not in known:
            raise PrereqError(f"disk {name} does not exist: see diskinfo", ErrorCode.UNKNOWN_ENTITY)
        if why := problem_of(known[name], removable=removable):
            raise PrereqError(f"{name} cannot be used: {why}", ErrorCode.WRONG_STATE)
    return [known[name] for name in wanted]


def problem_of(disk: HostDisk, *, removable: bool) -> str:
    """Return why the disk must not be overwritten; '' if it may."""
    uses = list(disk.uses)
    if disk.is_removable and not removable:
        uses.append("is removable (--allow-removable)")
    return ", ".join(uses)
