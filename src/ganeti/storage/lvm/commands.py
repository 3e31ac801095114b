"""Command lines of LVM as lists of words: pure.

No word comes from outside but names that `checked` has seen, numbers, and tags made here; names stand
behind `--`, so that none can be an option (A48-A50, G24).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.base.errors import InputError, StorageError
from ganeti.base.identifiers import is_absolute_path, volume_name

Words = list[str]

_REPORT = ("--reportformat", "json", "--units", "b", "--nosuffix")

VOLUME_COLUMNS = (
    *("vg_name", "vg_uuid", "lv_name", "lv_uuid", "lv_attr", "lv_size", "lv_tags"),
    *("lv_kernel_major", "lv_kernel_minor", "origin"),
)
PART_COLUMNS = ("vg_name", "lv_name", "lv_attr", "lv_size", "devices")
GROUP_COLUMNS = ("vg_name", "vg_attr", "vg_size", "vg_free", "vg_missing_pv_count", "pv_count")
PHYSICAL_COLUMNS = ("pv_name", "vg_name", "pv_attr", "pv_size", "pv_free", "pv_used")

_RESERVED_STARTS = ("snapshot", "pvmove")
_RESERVED_PARTS = (
    *("_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_imeta", "_iorig", "_mimage", "_mlog", "_pmspare"),
    *("_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig"),
)  # fmt: skip
"""LVM keeps names with these for its own parts of volumes."""


def checked(name: str, what: str) -> str:
    """A name of a volume or group; StorageError if it could be anything else."""
    try:
        return volume_name(name, what)
    except InputError as err:
        raise StorageError(f"{what}: {err.message}") from err


def checked_volume(name: str) -> str:
    """The name of a logical volume that LVM does not keep for itself."""
    checked(name, "volume")
    if name.startswith(_RESERVED_STARTS) or any(part in name for part in _RESERVED_PARTS):
        raise StorageError(f"volume {name}: LVM keeps such names for its own parts of volumes")
    return name


def checked_device(path: str) -> str:
    """The path of a physical volume; StorageError if it is none below /dev."""
    if not is_absolute_path(path) or not path.startswith("/dev/"):
        raise StorageError(f"{path!r:.200} is not the path of a device below /dev")
    return path


@dataclass(frozen=True)
class VolumeName:
    """A checked name of a logical volume."""

    group: str
    name: str

    def __post_init__(self) -> None:
        checked(self.group, "volume group")
        checked_volume(self.name)

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


def list_volumes(group: str, names: Sequence[str] = ()) -> Words:
    """`lvs` of some volumes of a group by their names, which need not exist, or of all."""
    wanted = " || ".join(f'lv_name="{checked(name, "volume")}"' for name in names)
    select = ["--select", wanted] if names else []
    columns = ",".join(VOLUME_COLUMNS)
    return ["lvs", *_REPORT, "--options", columns, *select, "--", checked(group, "volume group")]


def list_parts(group: str = "") -> Words:
    """`lvs` of all volumes with the physical volumes that they lie on: a row a segment."""
    where = [checked(group, "volume group")] if group else []
    return ["lvs", *_REPORT, "--options", ",".join(PART_COLUMNS), "--", *where]


def list_groups() -> Words:
    """`vgs` of all groups."""
    return ["vgs", *_REPORT, "--options", ",".join(GROUP_COLUMNS)]


def list_physical() -> Words:
    """`pvs` of all physical volumes."""
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
    """`lvcreate`; `stripes` are their number and KiB each, `clear` lets LVM clear the first blocks, `on` names devices."""
    count, kib = stripes
    striped = ["--stripes", str(count), "--stripesize", f"{kib}k"] if count > 1 else []
    marked = [word for tag in tags for word in ("--addtag", tag)]
    yes = "y" if clear else "n"
    return [
        *("lvcreate", "--yes", "--wipesignatures", yes, "--zero", yes),
        *("--size", f"{size_bytes}b", *striped, *marked, "--name", volume.name),
        *("--", volume.group, *map(checked_device, on)),
    ]


def snapshot(origin: VolumeName, name: str, size_bytes: int, tags: Sequence[str]) -> Words:
    """`lvcreate` of a snapshot that can take so much of what is written meanwhile."""
    marked = [word for tag in tags for word in ("--addtag", tag)]
    return [
        *("lvcreate", "--yes", "--snapshot", "--size", f"{size_bytes}b", *marked),
        *("--name", checked_volume(name), "--", str(origin)),
    ]


def extend(volume: VolumeName, size_bytes: int, on: Sequence[str] = ()) -> Words:
    """`lvextend` to a size, without touching a file system."""
    devices = map(checked_device, on)
    return ["lvextend", "--size", f"{size_bytes}b", "--", str(volume), *devices]


def remove(volume: VolumeName) -> Words:
    """`lvremove`; it refuses a volume that something holds open."""
    return ["lvremove", "--force", "--", str(volume)]


def rename(volume: VolumeName, name: str) -> Words:
    """`lvrename` within the group."""
    return ["lvrename", "--", volume.group, volume.name, checked_volume(name)]


def activate(volume: VolumeName) -> Words:
    """`lvchange` that makes the device appear."""
    return ["lvchange", "--activate", "y", "--", str(volume)]


def retag(volume: VolumeName, *, add: Sequence[str] = (), drop: Sequence[str] = ()) -> Words:
    """`lvchange` of tags, all at once."""
    added = [word for tag in add for word in ("--addtag", tag)]
    dropped = [word for tag in drop for word in ("--deltag", tag)]
    return ["lvchange", *added, *dropped, "--", str(volume)]


def set_allocatable(device: str, *, allocatable: bool) -> Words:
    """`pvchange` of whether new volumes may lie on a physical volume (S4)."""
    return ["pvchange", "--allocatable", "y" if allocatable else "n", "--", checked_device(device)]


def create_physical(device: str) -> Words:
    """`pvcreate`, whatever was on the device."""
    return ["pvcreate", "--yes", "-ff", "--", checked_device(device)]


def create_group(group: str, devices: Sequence[str]) -> Words:
    """`vgcreate` of physical volumes."""
    return ["vgcreate", "--", checked(group, "volume group"), *map(checked_device, devices)]


def drop_missing(group: str) -> Words:
    """`vgreduce` that drops missing physical volumes, and the volumes that were on them (S6)."""
    return ["vgreduce", "--removemissing", "--force", "--", checked(group, "volume group")]
