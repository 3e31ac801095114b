"""Command lines of LVM as lists of words: pure.

Outside input is limited to names that `checked` has checked, numbers, and tags made here; names follow `--`, so that
none can be an option (A48-A50, G24).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.base.errors import InputError, StorageError
from ganeti.base.identifiers import is_absolute_path, volume_name

Words = list[str]

_REPORT = ("--reportformat", "json", "--units", "b", "--nosuffix")

VOLUME_COLUMNS = (
    *("vg_name", "vg_uuid", "lv_name", "lv_uuid", "lv_attr", "lv_size", "lv_tags"),
    *(
        "lv_kernel_major",
        "lv_kernel_minor",
        "origin",
        "pool_lv",
        "data_percent",
        "metadata_percent",
    ),
)
PART_COLUMNS = ("vg_name", "lv_name", "lv_attr", "lv_size", "devices")
GROUP_COLUMNS = ("vg_name", "vg_attr", "vg_size", "vg_free", "vg_missing_pv_count", "pv_count")
PHYSICAL_COLUMNS = ("pv_name", "vg_name", "pv_attr", "pv_size", "pv_free", "pv_used")

_RESERVED_STARTS = ("snapshot", "pvmove")
_RESERVED_PARTS = (
    *("_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_imeta", "_iorig", "_mimage", "_mlog", "_pmspare"),
    *("_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig"),
)  # fmt: skip
"""LVM reserves names with these for its own parts of volumes."""


def checked(name: str, what: str) -> str:
    """Return a name of a volume or group; StorageError if it could be anything else."""
    try:
        return volume_name(name, what)
    except InputError as err:
        raise StorageError(f"{what}: {err.message}") from err


def checked_volume(name: str) -> str:
    """Return the name of a logical volume that LVM does not reserve."""
    checked(name, "volume")
    if name.startswith(_RESERVED_STARTS) or any(part in name for part in _RESERVED_PARTS):
        raise StorageError(f"volume {name}: LVM reserves such names for its own parts of volumes")
    return name


def checked_device(path: str) -> str:
    """Return the path of a physical volume; StorageError if it is not below /dev."""
    if not is_absolute_path(path) or not path.startswith("/dev/"):
        raise StorageError(f"{path!r:.200} is not the path of a device below /dev")
    return path


@dataclass(frozen=True)
class VolumeName:
    """Return a checked name of a logical volume."""

    group: str
    name: str

    def __post_init__(self) -> None:
        checked(self.group, "volume group")
        checked_volume(self.name)

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


def list_volumes(group: str, names: Sequence[str] = ()) -> Words:
    """Return `lvs` of some volumes of a group by their names, which may not exist, or of all."""
    wanted = " || ".join(f'lv_name="{checked(name, "volume")}"' for name in names)
    select = ["--select", wanted] if names else []
    columns = ",".join(VOLUME_COLUMNS)
    return ["lvs", *_REPORT, "--options", columns, *select, "--", checked(group, "volume group")]


def list_parts(group: str = "") -> Words:
    """Return `lvs` of all volumes with their physical volumes: a row a segment."""
    where = [checked(group, "volume group")] if group else []
    return ["lvs", *_REPORT, "--options", ",".join(PART_COLUMNS), "--", *where]


def list_groups() -> Words:
    """Return `vgs` of all groups."""
    return ["vgs", *_REPORT, "--options", ",".join(GROUP_COLUMNS)]


def list_physical() -> Words:
    """Return `pvs` of all physical volumes."""
    return ["pvs", *_REPORT, "--options", ",".join(PHYSICAL_COLUMNS)]


def create(
    volume: VolumeName,
    size_bytes: int,
    tags: Sequence[str],
    *,
    stripes: tuple[int, int] = (1, 64),
    clear: bool,
    on: Sequence[str] = (),
) -> Words:
    """Return `lvcreate`.

    `stripes` are their number and KiB each, `clear` lets LVM clear the first blocks, `on` is devices.
    """
    count, kib = stripes
    striped = ["--stripes", str(count), "--stripesize", f"{kib}k"] if count > 1 else []
    marked = [word for tag in tags for word in ("--addtag", tag)]
    yes = "y" if clear else "n"
    return [
        *("lvcreate", "--yes", "--wipesignatures", yes, "--zero", yes),
        *("--size", f"{size_bytes}b", *striped, *marked, "--name", volume.name),
        *("--", volume.group, *map(checked_device, on)),
    ]


def create_thin(volume: VolumeName, pool: str, size_bytes: int, tags: Sequence[str]) -> Words:
    """Return `lvcreate` of a volume that takes space of a thin pool as it is written."""
    marked = [word for tag in tags for word in ("--addtag", tag)]
    return [
        *("lvcreate", "--yes", "--type", "thin", "--virtualsize", f"{size_bytes}b", *marked),
        *("--thinpool", checked_volume(pool), "--name", volume.name, "--", volume.group),
    ]


def thin_snapshot(origin: VolumeName, name: str, tags: Sequence[str]) -> Words:
    """Return `lvcreate` of a snapshot in the pool of its origin, active like any other volume."""
    marked = [word for tag in tags for word in ("--addtag", tag)]
    return [
        *("lvcreate", "--yes", "--snapshot", "--setactivationskip", "n", *marked),
        *("--name", checked_volume(name), "--", str(origin)),
    ]


def snapshot(origin: VolumeName, name: str, size_bytes: int, tags: Sequence[str]) -> Words:
    """Return `lvcreate` of a snapshot with this space for later writes."""
    marked = [word for tag in tags for word in ("--addtag", tag)]
    return [
        *("lvcreate", "--yes", "--snapshot", "--size", f"{size_bytes}b", *marked),
        *("--name", checked_volume(name), "--", str(origin)),
    ]


def extend(volume: VolumeName, size_bytes: int, on: Sequence[str] = ()) -> Words:
    """Return `lvextend` to a size, without touching a file system."""
    devices = map(checked_device, on)
    return ["lvextend", "--size", f"{size_bytes}b", "--", str(volume), *devices]


def remove(volume: VolumeName) -> Words:
    """Return `lvremove`, which refuses an open volume."""
    return ["lvremove", "--force", "--", str(volume)]


def rename(volume: VolumeName, name: str) -> Words:
    """Return `lvrename` within the group."""
    return ["lvrename", "--", volume.group, volume.name, checked_volume(name)]


def activate(volume: VolumeName) -> Words:
    """Return `lvchange` that makes the device appear."""
    return ["lvchange", "--activate", "y", "--", str(volume)]


def retag(volume: VolumeName, *, add: Sequence[str] = (), drop: Sequence[str] = ()) -> Words:
    """Return `lvchange` of tags, all at once."""
    added = [word for tag in add for word in ("--addtag", tag)]
    dropped = [word for tag in drop for word in ("--deltag", tag)]
    return ["lvchange", *added, *dropped, "--", str(volume)]


def set_allocatable(device: str, *, allocatable: bool) -> Words:
    """Return `pvchange` that allows or forbids new volumes on a physical volume (S4)."""
    return ["pvchange", "--allocatable", "y" if allocatable else "n", "--", checked_device(device)]


def create_physical(device: str) -> Words:
    """Return `pvcreate`, which overwrites the device."""
    return ["pvcreate", "--yes", "-ff", "--", checked_device(device)]


def create_group(group: str, devices: Sequence[str]) -> Words:
    """Return `vgcreate` of physical volumes."""
    return ["vgcreate", "--", checked(group, "volume group"), *map(checked_device, devices)]


def drop_missing(group: str) -> Words:
    """Return `vgreduce` that drops missing physical volumes, and their volumes (S6)."""
    return ["vgreduce", "--removemissing", "--force", "--", checked(group, "volume group")]
