"""The check whether two paths lead to the same data: by device numbers and inodes, never by names."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Key = tuple[str, int, int]
"""`("block", major, minor)`, or `("file", device, inode)`."""


@dataclass(frozen=True)
class Identity:
    """The target of a path, and all devices and files below it."""

    own: Key
    below: frozenset[Key]

    def overlaps(self, other: "Identity") -> bool:
        """Return whether both are the same, or one is on the other; two that merely share a third are different."""
        return self.own == other.own or self.own in other.below or other.own in self.below


def identity(path: str, *, sys: Path = Path("/sys")) -> Identity | None:
    """Return the identity of a device or file, or None if it does not exist; blocks."""
    own = _key(path)
    if own is None:
        return None
    below: set[Key] = set()
    waiting = [own]
    while waiting:
        for key in _directly_below(waiting.pop(), sys):
            if key not in below:
                below.add(key)
                waiting.append(key)
    return Identity(own, frozenset(below - {own}))


def _key(path: str) -> Key | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    if stat.S_ISBLK(found.st_mode):
        return "block", os.major(found.st_rdev), os.minor(found.st_rdev)
    return "file", found.st_dev, found.st_ino


def _directly_below(key: Key, sys: Path) -> Iterator[Key]:
    """Return what is below: the disk of a partition, the devices of a mapping, the file of a loop device, and so on."""
    kind, one, two = key
    if kind == "file":
        yield "block", os.major(one), os.minor(one)
        return
    try:
        device = (sys / "dev" / "block" / f"{one}:{two}").resolve(strict=True)
    except OSError:
        return
    parts = [device.parent] if (device / "partition").exists() else []
    for place in (*parts, *(device / "slaves").glob("*")):
        major, _, minor = _text(place / "dev").partition(":")
        if major.isdecimal() and minor.isdecimal():
            yield "block", int(major), int(minor)
    backing = _text(device / "loop" / "backing_file")
    found = _key(backing) if backing else None
    if found is not None:
        yield found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
