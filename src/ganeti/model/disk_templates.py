"""Facts about disk templates: one table for the master, the nodes, placement, policies and commands.

No other module tests for a template's name. A new template is a row here, a planner (`ganeti.layouts`) and a
driver on the node (`ganeti.storage`); the planner and the driver are discovered.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from ganeti.base.identifiers import is_absolute_path, plain_name, volume_name

VOLUME_GROUP = "lvm-vg"
"""The kind of storage units that are volume groups of LVM."""
THIN_POOL = "lvm-thin"
"""The kind of storage units that are thin pools in volume groups, as GROUP/POOL."""


RAW, QCOW2 = "raw", "qcow2"
DISK_FORMATS = (RAW, QCOW2)
"""The formats of disks in files: the bytes of the disk themselves, or an image of QEMU that grows with its data."""


class Mirror(StrEnum):
    """The way in which another node gets the data of an instance."""

    NONE = "none"
    INTERNAL = "internal"
    """A secondary node holds a copy."""
    EXTERNAL = "external"
    """Every node sees the same data, or there is none."""


class StorageUnit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of storage on nodes: a directory, a volume group."""

    kind: str
    """`file`, `sharedfile`, `lvm-vg`, …: a name in the node's `ganeti.storage.kinds`."""
    key: str
    """Its name there: a path, the name of a group."""

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class StorageFacts(msgspec.Struct, frozen=True):
    """The source of a template's space: a field of the cluster, or a disk parameter, which wins."""

    kind: str
    field: str = ""
    param: str = ""
    option: str = ""
    """The option of `gnt-cluster init` that sets the field."""
    pool: str = ""
    """The disk parameter with the name of a pool in the unit that has the space instead, if it is set."""
    pool_kind: str = ""
    """The kind of such pools; the key is that of the unit, a slash and the name."""
    pool_percent: str = ""
    """The parameter with the percentage of a pool's size that disks may have together."""


class DiskId(msgspec.Struct, frozen=True, kw_only=True):
    """The two words of the `logical_id` of a disk without parts: the storage of the disk, and its name there."""

    driver: str = ""
    """The first word, if it is the same for all disks of the template."""
    param: str = ""
    """The disk parameter with the first word, if it differs between disks."""
    root: str = ""
    """The second word is a path below this directory; '' if it is a name."""
    checked_name: Callable[[str, str], str] = plain_name
    """Return a name, or raise InputError with the given field."""

    def is_path(self, word: str) -> bool:
        """Return whether the second word of an id is a possible path of a disk of the template."""
        return is_absolute_path(word) and word.startswith(self.root)


class DiskTemplate(msgspec.Struct, frozen=True):
    """The facts about one disk template."""

    name: str
    mirror: Mirror = Mirror.NONE
    has_disks: bool = True
    has_driver: bool = False
    """True if this implementation creates such disks; allocators and parameters know the others, too."""
    in_files: bool = False
    """Disks are files below a directory that the administrator allowed."""
    disk_id: DiskId = DiskId()
    """The form of the id that all nodes share, unless each node has a part of its own."""
    remote: Callable[[str], Mapping[str, str]] | None = None
    """Converts a path that is not a file to the options with which QEMU opens it.

    None if paths are files or devices.
    """
    storage: StorageFacts | None = None
    """The source of space of its own layer; None if only the layers below use space."""
    lower: str = ""
    """The template of the layers below; '' if there are none."""
    has_port: bool = False
    """The first item of the id that all nodes share is a TCP port of the cluster's pool."""
    has_numbers: bool = False
    """Each node has a number (a minor) for its part that no other disk of this template has there."""
    can_be_exclusive: bool = False
    """True if a disk can have physical devices of its node for itself alone (exclusive storage)."""
    uses_node_disk: bool = False
    """True if allocators count its disks against the free disk that nodes report."""
    is_balanced: bool = False
    """True if balancing moves such instances."""
    adopts: bool = False
    """True if a disk can be made of an existing volume or device."""
    only_adopts: bool = False
    """True if that is the only way."""
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Disk parameters and their defaults. Rates are KiB/s, delays tenths of a second, stripes KiB."""
    own_params: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Parameters of single disks; their defaults mean "not set"."""
    open_params: bool = False
    """True if a disk may have parameters that are not in the row: its provider's own."""
    by_provider: bool = False
    """True if other programs manage the disks; the first item of the shared id names them."""
    no_snapshots: str = ""
    """Why its disks cannot have lasting snapshots; '' if they can."""
    snapshots_need: str = ""
    """What the storage of its disks must be for snapshots, if not every storage can; '' if every one can."""
    snapshots_take_space: bool = False
    """True if a snapshot takes up to the space of its disk, and is listed, in the disk's storage unit."""
    can_fence: bool = False
    """True if its storage can refuse the writes of one node (`ganeti.storage.interface.StorageFence`)."""
    fixed_params: tuple[str, ...] = ()
    """Parameters of a disk's location, which never change after its creation."""

    @property
    def mirrored(self) -> bool:
        """A second node holds a copy."""
        return self.mirror is Mirror.INTERNAL

    @property
    def shared(self) -> bool:
        """Every node sees the same data."""
        return self.has_disks and self.mirror is Mirror.EXTERNAL

    @property
    def nodes_needed(self) -> int:
        """The number of nodes of an instance."""
        return 2 if self.mirrored else 1

    @property
    def can_migrate(self) -> bool:
        """True if another node can run the guest on the same data."""
        return self.shared or self.mirrored

    @property
    def is_local(self) -> bool:
        """True if the primary node has the only copy, so that a move must transfer the data."""
        return self.has_disks and not self.can_migrate

    @property
    def can_fail_over(self) -> bool:
        """True if another node can start the guest after the loss of its own node."""
        return not self.is_local

    @property
    def why_not_recovered(self) -> str:
        """Return why no instance may be started on another node without an administrator; '' if it may."""
        if self.is_local:
            return "keeps its data on one node"
        return ""


_ACCESS = {"access": "kernelspace"}
_FORMAT = {"format": RAW}

_IN_FILES = DiskId(driver="loop", root="/")
_CLONES = "a file system that shares blocks between files (XFS, btrfs)"

DISKLESS = DiskTemplate("diskless", Mirror.EXTERNAL, has_disks=False, has_driver=True)
FILE = DiskTemplate(
    "file",
    has_driver=True,
    in_files=True,
    disk_id=_IN_FILES,
    snapshots_need=_CLONES,
    snapshots_take_space=True,
    storage=StorageFacts("file", "file_storage_dir", option="--file-storage-dir"),
    params=_FORMAT,
    fixed_params=("format",),
)
SHARED_FILE = DiskTemplate(
    "sharedfile",
    Mirror.EXTERNAL,
    has_driver=True,
    in_files=True,
    disk_id=_IN_FILES,
    snapshots_need=_CLONES,
    snapshots_take_space=True,
    storage=StorageFacts(
        "sharedfile", "shared_file_storage_dir", option="--shared-file-storage-dir"
    ),
    is_balanced=True,
    params=_FORMAT,
    fixed_params=("format",),
)
PLAIN = DiskTemplate(
    "plain",
    has_driver=True,
    disk_id=DiskId(param="vg", checked_name=volume_name),
    storage=StorageFacts(
        VOLUME_GROUP,
        "vg_name",
        param="vg",
        option="--vg-name",
        pool="thin_pool",
        pool_kind=THIN_POOL,
        pool_percent="thin_overcommit",
    ),
    uses_node_disk=True,
    adopts=True,
    can_be_exclusive=True,
    snapshots_take_space=True,
    params={
        "stripe_size": 64,
        "stripes": 1,
        "thin_overcommit": 100,
        "thin_pool": "",
        "vg": "",
    },
    own_params={"spindles": 0},
    fixed_params=("vg", "thin_pool", "spindles"),
)
BLOCK_DEVICE = DiskTemplate(
    "blockdev",
    Mirror.EXTERNAL,
    has_driver=True,
    disk_id=DiskId(driver="manual", root="/dev/disk/"),  # where names belong to devices
    is_balanced=True,
    adopts=True,
    only_adopts=True,
    no_snapshots="other systems manage the device",
)
DRBD = DiskTemplate(
    "drbd",
    Mirror.INTERNAL,
    has_driver=True,
    lower="plain",
    has_port=True,
    has_numbers=True,
    uses_node_disk=True,
    is_balanced=True,
    no_snapshots="a snapshot would be of one copy, and a synchronisation could not follow a rollback",
    params={
        "c-delay-target": 1,
        "c-fill-target": 0,
        "c-max-rate": 61440,
        "c-min-rate": 4096,
        "c-plan-ahead": 20,
        "data-stripes": 1,
        "data_flushes": True,
        "disk-barriers": "n",
        "disk-custom": "",
        "dynamic-resync": False,
        "meta-barriers": False,
        "meta-stripes": 1,
        "meta_flushes": True,
        "meta_size": 128,
        "metavg": "",
        "net-custom": "",
        "protocol": "C",
        "resync-rate": 61440,
        "vg": "",
    },
    fixed_params=("meta_size", "metavg", "vg"),
)

RBD_SCHEME = "rbd:"
"""The prefix of pool and image, if the hypervisor opens an image of Ceph directly."""


def _rbd_options(path: str) -> dict[str, str]:
    pool, _, image = path.removeprefix(RBD_SCHEME).partition("/")
    image, _, snapshot = image.partition("@")
    found = {"driver": "rbd", "pool": pool, "image": image}
    return {**found, "snapshot": snapshot} if snapshot else found


RBD = DiskTemplate(
    "rbd",
    Mirror.EXTERNAL,
    has_driver=True,
    disk_id=DiskId(driver="rbd"),
    remote=_rbd_options,
    is_balanced=True,
    can_fence=True,
    params={**_ACCESS, "pool": "rbd"},
    fixed_params=("pool",),
)
EXTERNAL = DiskTemplate(
    "ext",
    Mirror.EXTERNAL,
    has_driver=True,
    disk_id=DiskId(param="provider"),
    is_balanced=True,
    params=_ACCESS,
    open_params=True,
    by_provider=True,
    can_fence=True,
    snapshots_need="a provider with a script snapshot",
    fixed_params=("provider",),
)
GLUSTER = DiskTemplate(
    "gluster",
    Mirror.EXTERNAL,
    is_balanced=True,
    params={**_ACCESS, "host": "127.0.0.1", "port": 24007, "volume": "gv0"},
)

TEMPLATES: dict[str, DiskTemplate] = {
    row.name: row for row in list(globals().values()) if isinstance(row, DiskTemplate)
}
"""Every template that an allocator's message may contain."""

DISK_TEMPLATES: dict[str, DiskTemplate] = {
    name: template for name, template in TEMPLATES.items() if template.has_driver
}
"""The templates that this implementation creates."""

DRBD_HELPERS_OFF = ("/bin/true", "/usr/bin/true", "disabled")
"""The programs that DRBD's module may run at events: programs that do nothing."""


def original_resource(minor: int) -> str:
    """Upstream's name of a resource of DRBD; here the name is the UUID of the disk."""
    return f"resource{minor}"


def disk_format(template: str, params: Mapping[str, Any]) -> str:
    """Return the format of a disk with these own parameters, raw unless its template has formats."""
    row = TEMPLATES.get(template)
    return str(params.get("format", RAW)) if row is not None and "format" in row.params else RAW


ENABLED_BY_DEFAULT = ("sharedfile", "file", "diskless")
"""The templates of a new cluster, the default first."""


def storage_facts(template: DiskTemplate) -> StorageFacts | None:
    """Return the source of space of a template, including its layers below; None if there is none."""
    if template.storage is None and template.lower:
        return storage_facts(TEMPLATES[template.lower])
    return template.storage
