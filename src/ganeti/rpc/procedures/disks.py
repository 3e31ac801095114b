"""Procedures about disks."""

from ganeti.model.disk_templates import StorageUnit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.model.objects import Grant
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, SLOW_S, Message, Nothing, Procedure


class DiskArgs(Message, frozen=True, kw_only=True):
    instance_name: str
    disk: DiskSpec


class OpenDiskArgs(DiskArgs, frozen=True, kw_only=True):
    """A disk to be usable on the node in this role, whatever its role was before."""

    role: DiskRole = DiskRole.PRIMARY


class FenceArgs(DiskArgs, frozen=True, kw_only=True):
    """A disk that all nodes can open, and a node that must not write it, or may again."""

    node_name: str
    addresses: list[str]
    """The primary and the secondary address of that node, without duplicates."""


class GrantsArgs(Message, frozen=True, kw_only=True):
    """Every grant of the cluster, by the UUID of the disk."""

    grants: dict[str, Grant]


class GrantArgs(Message, frozen=True, kw_only=True):
    """The present grant of one disk, by its UUID."""

    disk: str
    grant: Grant


class OtherDisk(Message, frozen=True, kw_only=True):
    """A disk that must not be adopted, and its owner."""

    owner: str
    disk: DiskSpec


class AdoptDiskArgs(DiskArgs, frozen=True, kw_only=True):
    """A disk made of an existing one."""

    source: str
    in_use: list[OtherDisk] = []
    """Every disk of the cluster, of any template, that this node has or can reach."""


class SyncStatus(Message, frozen=True, kw_only=True):
    """The state of a mirrored disk's copies, as one node sees them."""

    up_to_date: bool
    """True if the copy on this node has every write."""
    connected: bool
    """True if the peer accepts writes."""
    percent: float | None = None
    """The percentage in sync, while a copy is resynchronised."""
    seconds_left: float | None = None
    rate: int | None = None
    """Speed in KiB/s."""
    state: str = ""
    """The driver's own description (S95)."""
    generations: tuple[str, ...] = ()
    """The generation of this copy's data, then its ancestors; empty if unknown."""
    consistent: bool = True
    """True if this copy is consistent: not before the end of a first or interrupted synchronisation."""
    attached: bool = True
    """True if the driver still uses the volumes of this copy: it detaches a failed volume."""
    dropped: bool = False
    """True if this node has ended the connection and does not reconnect."""
    writing: bool = False
    """True if this node may write to the disk."""
    missed_kib: int = 0
    """Amount that the other copy lacks, as far as this node knows."""

    @property
    def in_sync(self) -> bool:
        return self.up_to_date and self.connected and self.percent is None


class DiskInfo(Message, frozen=True, kw_only=True):
    """A disk as the node sees it."""

    exists: bool
    path: str = ""
    size: int = 0
    problem: str = ""
    device: tuple[int, int] | None = None
    """Major and minor number, if it is a device."""
    sync: SyncStatus | None = None
    """None if the disk is not mirrored, or not open."""
    at_rest: SyncStatus | None = None
    """The metadata of a mirrored copy while the disk is not open; None if it is open, or has none."""
    spindles: int = 0
    """Number of physical devices that only this disk uses; 0 where disks share them."""


class OpenAloneArgs(DiskArgs, frozen=True, kw_only=True):
    """A mirrored disk to be writable on the node without its peer, which the node cannot reach.

    The caller has compared both copies. The node refuses if the generation of its data differs by
    now, and, without `force`, if its copy is not up to date.
    """

    generation: str
    force: bool = False


class GrowDiskArgs(Message, frozen=True, kw_only=True):
    """A disk or a layer of it, and its minimum size in MiB.

    The size is absolute, so the call is idempotent.
    """

    instance_name: str
    disk: DiskSpec
    size: int


class DisksArgs(Message, frozen=True, kw_only=True):
    """Several disks, perhaps of several instances."""

    disks: list[DiskArgs]


class MirroredDevice(Message, frozen=True, kw_only=True):
    """A device in the node's kernel: `name` is the UUID of its disk, if it belongs to this cluster."""

    name: str
    number: int
    state: str = ""


class StorageUnits(Message, frozen=True, kw_only=True):
    """Storage units to inspect."""

    units: list[StorageUnit]


class StoredDisk(Message, frozen=True, kw_only=True):
    """An object in a storage unit: a file by its path, a volume by its name; `size` is in MiB."""

    unit: StorageUnit
    name: str
    size: int


BLOCKDEV_CREATE = Procedure("blockdev_create", DiskArgs, DiskInfo, HOURS_S, changes=True)
"""Filling a large disk, or the added part of one, with zeros takes time."""

BLOCKDEV_REMOVE = Procedure("blockdev_remove", DiskArgs, Nothing, SLOW_S, changes=True)

BLOCKDEV_ADOPTABLE = Procedure(
    "blockdev_adoptable", AdoptDiskArgs, DiskInfo, NORMAL_S, changes=False
)

BLOCKDEV_ADOPT = Procedure("blockdev_adopt", AdoptDiskArgs, DiskInfo, SLOW_S, changes=True)

BLOCKDEV_GIVE_BACK = Procedure("blockdev_give_back", AdoptDiskArgs, Nothing, SLOW_S, changes=True)
"""Undo the adoption: the adopted storage is unchanged again."""

BLOCKDEV_GROW = Procedure("blockdev_grow", GrowDiskArgs, DiskInfo, HOURS_S, changes=True)

BLOCKDEV_ASSEMBLE = Procedure("blockdev_assemble", OpenDiskArgs, DiskInfo, SLOW_S, changes=True)

DISK_GRANTS = Procedure("disk_grants", GrantsArgs, Nothing, NORMAL_S, changes=True)
"""Tells a returning node the grants of protected disks, so that it refuses calls under older ones (D9)."""

DISK_GRANTED = Procedure("disk_granted", GrantArgs, Nothing, NORMAL_S, changes=True)
"""Tells the writer of a mirrored disk its grant: its writes wait for the other current copies, and for no others (D5).

A grant that the node knows changes nothing.
"""

COPY_JOINS = Procedure("copy_joins", GrantArgs, Nothing, NORMAL_S, changes=True)
"""Lets a synchronised copy record the grant under which it was synchronised, before it counts as current (D3).

Refused if it is not complete and connected, or was written apart from the others (D9).
"""

BLOCKDEV_SHUTDOWN = Procedure("blockdev_shutdown", DiskArgs, Nothing, SLOW_S, changes=True)

BLOCKDEV_OUTDATE = Procedure("blockdev_outdate", DiskArgs, Nothing, NORMAL_S, changes=True)
"""Lets a copy know that it has not all that was written: it is not promoted before it has. Refused where it is in use."""

BLOCKDEV_SETINFO = Procedure("blockdev_setinfo", DiskArgs, Nothing, SLOW_S, changes=True)
"""Label the disk's storage with the name of its instance, where the storage has labels."""

BLOCKDEV_FENCE = Procedure("blockdev_fence", FenceArgs, Nothing, SLOW_S, changes=True)
"""Let the disk's storage refuse the writes of another node, and confirm that; an error if it may still write."""

BLOCKDEV_UNFENCE = Procedure("blockdev_unfence", FenceArgs, Nothing, SLOW_S, changes=True)
"""Let the disk's storage accept the writes of a node again; no-op if it does."""

BLOCKDEV_OPEN_ALONE = Procedure(
    "blockdev_open_alone", OpenAloneArgs, DiskInfo, SLOW_S, changes=True
)
"""Open a mirrored disk as primary without a connection to its other copy."""

BLOCKDEV_DISCARD = Procedure("blockdev_discard", DiskArgs, Nothing, SLOW_S, changes=True)
"""Discard the writes that only this copy has: the next connection resynchronises it from the other copy."""

BLOCKDEV_INFO = Procedure("blockdev_info", DiskArgs, DiskInfo, NORMAL_S, changes=False)

STORED_DISKS = Procedure("stored_disks", StorageUnits, list[StoredDisk], NORMAL_S, changes=False)

DISKS_INFO = Procedure("disks_info", DisksArgs, list[DiskInfo], SLOW_S, changes=False)
"""Return the result of `blockdev_info` for each disk, in the same order."""

MIRRORED_DEVICES = Procedure(
    "mirrored_devices", Nothing, list[MirroredDevice], NORMAL_S, changes=False
)
"""Return all DRBD devices of the node, including foreign ones."""
