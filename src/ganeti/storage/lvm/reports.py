"""LVM's reports, from its JSON: pure. Sizes are bytes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ganeti.base.errors import StorageError

T = TypeVar("T")
Row = Mapping[str, str]

DISK_TAG = "ganeti.disk."
"""The prefix of the UUID of a volume's disk."""
UNWIPED_TAG = "ganeti.unwiped."
"""The prefix of the first byte that must still be filled with zeros."""
WAS_TAG = "ganeti.was."
"""The prefix of the former name of an adopted volume."""
SNAPSHOT_TAG = "ganeti.snapshot."
"""The prefix of the UUID of the snapshot's origin."""

_TYPE, _STATE, _OPEN, _ZEROES, _HEALTH = 0, 4, 5, 7, 8
"""Positions in lv_attr."""
_ALLOCATABLE, _MISSING = 0, 2
"""Positions in pv_attr."""
_PARTIAL = 3
"""Position in vg_attr."""


@dataclass(frozen=True)
class Volume:
    """A logical volume."""

    group: str
    name: str
    size: int
    attr: str
    tags: tuple[str, ...] = ()
    uuid: str = ""
    group_uuid: str = ""
    device: tuple[int, int] | None = None
    """Numbers of its device, if it is active."""
    origin: str = ""
    pool: str = ""
    """The thin pool that has its space."""
    data_percent: float = 0.0
    """Of a pool: the used part of its data, and of its metadata."""
    metadata_percent: float = 0.0

    @property
    def is_pool(self) -> bool:
        """True if it is a pool for thin volumes."""
        return self.attr[_TYPE : _TYPE + 1] == "t"

    @property
    def zeroes(self) -> bool:
        """True if a pool fills new space with zeros before its first use."""
        return self.attr[_ZEROES : _ZEROES + 1] == "z"

    @property
    def is_active(self) -> bool:
        return self.attr[_STATE : _STATE + 1] == "a"

    @property
    def is_open(self) -> bool:
        """True if a program or device of the host uses the device."""
        return self.attr[_OPEN : _OPEN + 1] == "o"

    @property
    def is_partial(self) -> bool:
        """True if a physical volume with a part of it is missing."""
        return self.attr[_HEALTH : _HEALTH + 1] == "p"

    @property
    def is_whole(self) -> bool:
        """False for a snapshot without space for the writes of its origin."""
        return self.attr[_STATE : _STATE + 1] not in ("I", "S")

    @property
    def is_plain(self) -> bool:
        """True if it is not a snapshot, the origin of one, a mirror, a pool, or a part of such."""
        return self.attr[_TYPE : _TYPE + 1] == "-"

    def tagged(self, prefix: str) -> str | None:
        """Return the text after `prefix` in one of the tags."""
        found = (tag.removeprefix(prefix) for tag in self.tags if tag.startswith(prefix))
        return next(found, None)

    @property
    def disk(self) -> str | None:
        """The UUID of its disk, from its tag."""
        return self.tagged(DISK_TAG)

    @property
    def snapshot_of(self) -> str | None:
        """The UUID of the disk of this snapshot."""
        return self.tagged(SNAPSHOT_TAG)

    @property
    def unwiped_from(self) -> int | None:
        """The first byte that may be another's data, or None."""
        found = self.tagged(UNWIPED_TAG)
        return int(found) if found is not None and found.isdecimal() else None

    @property
    def device_mapper_uuid(self) -> str:
        """The name in device-mapper."""
        return f"LVM-{self.group_uuid.replace('-', '')}{self.uuid.replace('-', '')}"


@dataclass(frozen=True)
class Group:
    """A volume group."""

    name: str
    size: int
    free: int
    attr: str
    missing: int

    @property
    def is_partial(self) -> bool:
        return self.missing > 0 or self.attr[_PARTIAL : _PARTIAL + 1] == "p"


@dataclass(frozen=True)
class Physical:
    """A physical volume; `group` is '' if it is in no group."""

    name: str
    group: str
    size: int
    free: int
    used: int
    attr: str

    @property
    def is_allocatable(self) -> bool:
        return self.attr[_ALLOCATABLE : _ALLOCATABLE + 1] == "a"

    @property
    def is_missing(self) -> bool:
        return self.attr[_MISSING : _MISSING + 1] == "m"


@dataclass(frozen=True)
class Part:
    """A volume with its physical volumes."""

    group: str
    name: str
    size: int
    devices: tuple[str, ...]


def volumes(output: bytes) -> list[Volume]:
    """Parse the output of `commands.list_volumes`."""
    return _made(output, "lv", _volume)


def _volume(row: Row) -> Volume:
    major, minor = int(row["lv_kernel_major"]), int(row["lv_kernel_minor"])
    return Volume(
        group=row["vg_name"],
        # Parts of other volumes are shown in brackets.
        name=row["lv_name"].strip("[]"),
        size=int(row["lv_size"]),
        attr=row["lv_attr"],
        tags=tuple(tag for tag in row["lv_tags"].split(",") if tag),
        uuid=row["lv_uuid"],
        group_uuid=row["vg_uuid"],
        device=(major, minor) if major >= 0 and minor >= 0 else None,
        origin=row["origin"],
        pool=row.get("pool_lv", "").strip("[]"),
        data_percent=float(row.get("data_percent") or 0),
        metadata_percent=float(row.get("metadata_percent") or 0),
    )


def groups(output: bytes) -> list[Group]:
    """Parse the output of `commands.list_groups`."""
    return _made(
        output,
        "vg",
        lambda row: Group(
            name=row["vg_name"],
            size=int(row["vg_size"]),
            free=int(row["vg_free"]),
            attr=row["vg_attr"],
            missing=int(row["vg_missing_pv_count"]),
        ),
    )


def physical(output: bytes) -> list[Physical]:
    """Parse the output of `commands.list_physical`; a missing one has its group and no usable name."""
    return _made(
        output,
        "pv",
        lambda row: Physical(
            name=row["pv_name"],
            group=row["vg_name"],
            size=int(row["pv_size"]),
            free=int(row["pv_free"]),
            used=int(row["pv_used"] or 0),
            attr=row["pv_attr"],
        ),
    )


def parts(output: bytes) -> list[Part]:
    """Parse the output of `commands.list_parts`, each volume once."""
    found: dict[tuple[str, str], Part] = {}
    for one in _made(output, "lv", _part):
        earlier = found[key].devices if (key := (one.group, one.name)) in found else ()
        devices = tuple(dict.fromkeys((*earlier, *one.devices)))
        found[key] = replace(one, devices=devices)
    return list(found.values())


def _part(row: Row) -> Part:
    on = (word.rpartition("(")[0] for word in row["devices"].split(",") if word)
    return Part(
        group=row["vg_name"],
        name=row["lv_name"].strip("[]"),
        size=int(row["lv_size"]),
        devices=tuple(dict.fromkeys(on)),
    )


def _made(output: bytes, kind: str, make: Callable[[Row], T]) -> list[T]:
    """Return an object of each row of a report; StorageError if the form is wrong, or a column is missing."""
    try:
        found = json.loads(output)["report"]
        return [make(row) for report in found for row in report.get(kind, ())]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise StorageError(
            f"LVM's report cannot be read ({err!r:.200}); lvm2 2.02.158 or later is required"
        ) from err
