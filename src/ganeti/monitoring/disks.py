"""Figures of block devices and logical volumes. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from ganeti.base.errors import HostError

_DISKSTATS = (
    *("readsNum", "mergedReads", "secRead", "timeRead"),
    *("writes", "mergedWrites", "secWritten", "timeWrite", "ios", "timeIO", "wIOmillis"),
)
"""The fields after a device's numbers and name; newer kernels add more, which are ignored."""

_LV_FIELDS = (
    *(
        "lv_uuid",
        "lv_name",
        "lv_attr",
        "lv_major",
        "lv_minor",
        "lv_kernel_major",
        "lv_kernel_minor",
    ),
    *(
        "lv_size",
        "seg_count",
        "lv_tags",
        "lv_modules",
        "vg_uuid",
        "vg_name",
        "segtype",
        "seg_start",
    ),
    *("seg_start_pe", "seg_size", "seg_tags", "seg_pe_ranges", "devices"),
)
_LV_NUMBERS = frozenset(
    (
        *("major", "minor", "kernel_major", "kernel_minor", "size", "seg_count"),
        *("seg_start", "seg_start_pe", "seg_size"),
    )
)
_SEPARATOR = ";"
_OWNER_TAG = "originstname+"
"""The tag of a volume that names the disk's instance."""
LVS = (
    *("lvs", "--noheadings", "--units=B", f"--separator={_SEPARATOR}", "--unbuffered"),
    f"--options={','.join(_LV_FIELDS)}",
)


def parse_diskstats(text: str) -> list[dict[str, Any]]:
    """Return the devices of `/proc/diskstats`; HostError."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        words = line.split()
        try:
            major, minor, name, *figures = words
            numbers = [int(one) for one in figures[: len(_DISKSTATS)]]
            device: dict[str, Any] = {"major": int(major), "minor": int(minor), "name": name}
            found.append(device | dict(zip(_DISKSTATS, numbers, strict=True)))
        except ValueError:
            raise HostError(f"/proc/diskstats has the line {line!r:.100}") from None
    return found


def volume_owners(instances: Iterable[Any]) -> dict[tuple[str, str], str]:
    """Return instance by (volume group, volume), from upstream's pairs (instance, disks)."""
    found: dict[tuple[str, str], str] = {}

    def add(name: str, disk: Mapping[str, Any]) -> None:
        if disk.get("dev_type") == "plain":
            group, volume = disk["logical_id"][:2]
            found[group, volume] = name
        for child in disk.get("children") or ():
            add(name, child)

    for instance, disks in instances:
        for disk in disks:
            add(instance["name"], disk)
    return found


def parse_lvs(
    text: str, owners: Mapping[tuple[str, str], str] | None = None
) -> list[dict[str, Any]]:
    """Return the logical volumes, a segment each, in the output of `LVS`; HostError.

    Their instances come from `owners` by (volume group, volume), without it from the volumes' tags.
    """
    names = [name.removeprefix("lv_") for name in _LV_FIELDS]
    found = []
    for line in filter(str.strip, text.splitlines()):
        words = line.strip().split(_SEPARATOR)
        try:
            volume: dict[str, Any] = {
                name: _number(word) if name in _LV_NUMBERS else word
                for name, word in zip(names, words, strict=True)
            }
        except ValueError:
            raise HostError(f"lvs prints the line {line.strip()!r:.100}") from None
        found.append(volume | {"instance": _owner(volume, owners)})
    return found


def _owner(volume: Mapping[str, Any], owners: Mapping[tuple[str, str], str] | None) -> str | None:
    if owners is not None:
        return owners.get((volume["vg_name"], volume["name"]))
    tags = (tag for tag in volume["tags"].split(",") if tag.startswith(_OWNER_TAG))
    return next((tag.removeprefix(_OWNER_TAG) for tag in tags), None)


def _number(word: str) -> int:
    return int(word.removesuffix("B"))
