"""Procedures about disks."""

from ganeti.model.disk_templates import StorageUnit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, SLOW_S, Message, Nothing, Procedure


class DiskArgs(Message, frozen=True, kw_only=True):
    instance_name: str
    disk: DiskSpec


class OpenDiskArgs(DiskArgs, frozen=True, kw_only=True):
    """A disk that is to be usable on the node in this role, whatever it was there before."""

    role: DiskRole = DiskRole.PRIMARY


class OtherDisk(Message, frozen=True, kw_only=True):
    """A disk that must not be adopted, and whose it is."""

    owner: str
    disk: DiskSpec


class AdoptDiskArgs(DiskArgs, frozen=True, kw_only=True):
    """A disk that is made of what is there already, or was."""

    source: str
    in_use: list[OtherDisk] = []
    """Every disk of the cluster, of any template, that this node has or sees."""


class SyncStatus(Message, frozen=True, kw_only=True):
    """How the copies of a mirrored disk are, as one node sees them."""

    up_to_date: bool
    """Whether the copy on this node has all that was ever written."""
    connected: bool
    """Whether the other node takes what is written."""
    percent: float | None = None
    """How far copies are the same, while one is brought up to date."""
    seconds_left: float | None = None
    rate: int | None = None
    """KiB/s."""
    state: str = ""
    """What the driver says of it, in its own words (S95)."""
    generations: tuple[str, ...] = ()
    """The generation of the data of this copy, then those that it comes from; empty if that is not known."""
    consistent: bool = True
    """Whether the data of this copy is that of one moment: not before a first or broken synchronisation has ended."""
    attached: bool = True
    """Whether the driver still uses the volumes of this copy: it gives up a volume that fails."""
    dropped: bool = False
    """Whether this node has ended the connection, and does not try to connect again."""
    writing: bool = False
    """Whether this node may write to the disk."""
    missed_kib: int = 0
    """How much the other copy lacks, as far as this node knows."""

    @property
    def in_sync(self) -> bool:
        return self.up_to_date and self.connected and self.percent is None


class DiskInfo(Message, frozen=True, kw_only=True):
    """One disk as the node sees it."""

    exists: bool
    path: str = ""
    size: int = 0
    problem: str = ""
    device: tuple[int, int] | None = None
    """Major and minor number, if it is a device."""
    sync: SyncStatus | None = None
    """None if it is not mirrored, or not open."""
    at_rest: SyncStatus | None = None
    """The record that a mirrored copy keeps of its data while it is not open; None if it is open, or has none."""
    spindles: int = 0
    """How many physical devices it has for itself; 0 where disks share them."""


class OpenAloneArgs(DiskArgs, frozen=True, kw_only=True):
    """A mirrored disk that is to be writable on the node without its other copy, which the node cannot reach.

    The caller has compared both copies. The node refuses if the generation of its data is another one by now,
    and, without `force`, if its copy is not up to date.
    """

    generation: str
    force: bool = False


class GrowDiskArgs(Message, frozen=True, kw_only=True):
    """A disk or a layer of it, and the size in MiB that it is to have at least; said absolutely, so that it can be repeated."""

    instance_name: str
    disk: DiskSpec
    size: int


class DisksArgs(Message, frozen=True, kw_only=True):
    """Several disks, perhaps of several instances."""

    disks: list[DiskArgs]


class MirroredDevice(Message, frozen=True, kw_only=True):
    """A device in the node's kernel: `name` is the UUID of its disk, if it is ours."""

    name: str
    number: int
    state: str = ""


class StorageUnits(Message, frozen=True, kw_only=True):
    """Places that are to be looked at."""

    units: list[StorageUnit]


class StoredDisk(Message, frozen=True, kw_only=True):
    """What lies in a storage unit: a file by its path, a volume by its name; `size` is in MiB."""

    unit: StorageUnit
    name: str
    size: int


BLOCKDEV_CREATE = Procedure("blockdev_create", DiskArgs, DiskInfo, HOURS_S, changes=True)
"""Filling a large disk with zeros takes its time, as does what a larger one has more."""

BLOCKDEV_REMOVE = Procedure("blockdev_remove", DiskArgs, Nothing, SLOW_S, changes=True)

BLOCKDEV_ADOPTABLE = Procedure(
    "blockdev_adoptable", AdoptDiskArgs, DiskInfo, NORMAL_S, changes=False
)

BLOCKDEV_ADOPT = Procedure("blockdev_adopt", AdoptDiskArgs, DiskInfo, SLOW_S, changes=True)

BLOCKDEV_GIVE_BACK = Procedure("blockdev_give_back", AdoptDiskArgs, Nothing, SLOW_S, changes=True)
"""Undoes the adoption: what was adopted is again what it was."""

BLOCKDEV_GROW = Procedure("blockdev_grow", GrowDiskArgs, DiskInfo, HOURS_S, changes=True)

BLOCKDEV_ASSEMBLE = Procedure("blockdev_assemble", OpenDiskArgs, DiskInfo, SLOW_S, changes=True)

BLOCKDEV_SHUTDOWN = Procedure("blockdev_shutdown", DiskArgs, Nothing, SLOW_S, changes=True)

BLOCKDEV_OUTDATE = Procedure("blockdev_outdate", DiskArgs, Nothing, NORMAL_S, changes=True)
"""Lets a copy know that it has not all that was written: it is not promoted before it has. Refused where it is in use."""

BLOCKDEV_SETINFO = Procedure("blockdev_setinfo", DiskArgs, Nothing, SLOW_S, changes=True)
"""Notes at the storage, where it can, that the disk belongs to the instance of this name."""

BLOCKDEV_OPEN_ALONE = Procedure(
    "blockdev_open_alone", OpenAloneArgs, DiskInfo, SLOW_S, changes=True
)
"""Opens a mirrored disk as primary although its other copy is not connected."""

BLOCKDEV_DISCARD = Procedure("blockdev_discard", DiskArgs, Nothing, SLOW_S, changes=True)
"""Gives up the writes that only this copy has: the next connection fills it from the other copy."""

BLOCKDEV_INFO = Procedure("blockdev_info", DiskArgs, DiskInfo, NORMAL_S, changes=False)

STORED_DISKS = Procedure("stored_disks", StorageUnits, list[StoredDisk], NORMAL_S, changes=False)

DISKS_INFO = Procedure("disks_info", DisksArgs, list[DiskInfo], SLOW_S, changes=False)
"""What `blockdev_info` says of each, in the same order."""

MIRRORED_DEVICES = Procedure(
    "mirrored_devices", Nothing, list[MirroredDevice], NORMAL_S, changes=False
)
"""All devices of DRBD that the node has, whosever they are."""
