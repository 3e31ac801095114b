"""The interface of every storage driver, and of its optional parts."""

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from ganeti.base.paths import Paths
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.rpc.procedures.disks import SyncStatus


class Mirror(Protocol):
    """The part of a driver that keeps the data on two nodes."""

    async def sync_status(self) -> SyncStatus | None:
        """Return the states of the two copies, as this node sees them; None if the disk is not open here."""
        ...

    async def outdate(self) -> None:
        """Mark this copy as older than the other; no-op if it is not open."""
        ...

    async def at_rest(self) -> SyncStatus | None:
        """Return this copy's record about its data while it is closed; None if it has none."""
        ...

    async def open_alone(self, generation: str, *, force: bool) -> None:
        """Open as primary without the other copy; refused if the data is of another generation by now.

        Without `force` this copy must be up to date.
        """
        ...

    async def discard(self) -> None:
        """Let the next connection replace the data that only this copy has; no-op if the copies are connected."""
        ...


class Snapshots(Protocol):
    """The part of a driver that takes snapshots."""

    async def can_take(self) -> bool:
        """Return whether the disk's storage supports snapshots."""
        return True

    async def take(self, name: str) -> str:
        """Take a snapshot with this name; return its path, in the format of the disk."""
        ...

    async def make(self, name: str) -> None:
        """Take a lasting snapshot; `drop` removes both kinds."""
        ...

    async def roll_back(self, name: str) -> None:
        """Give the disk, which is not in use, the content of a lasting snapshot, which is kept.

        After a failure in the middle the disk is a mixture, and the same call completes it.
        """
        ...

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        """Remove a snapshot; no-op if it does not exist.

        With `unsure` False the snapshot was made: a storage that cannot tell must not treat it as missing.
        """
        ...


class Adoption(Protocol):
    """The part of a driver that can adopt an existing volume or device."""

    def source_path(self, source: str) -> str:
        """Return the path of `source`, if it exists."""
        ...

    async def adoptable_mib(self, source: str) -> int:
        """Return the size of `source`; an error if it does not exist, is in use, or belongs to another disk."""
        ...

    async def adopt(self, source: str) -> None:
        """Make `source` this disk; its data is kept."""
        ...

    async def give_back(self, source: str) -> None:
        """Undo `adopt`; no-op if it was not adopted."""
        ...


class Labels(Protocol):
    """The part of a driver whose storage can record the instance of a disk."""

    async def set_info(self, text: str) -> None:
        """Replace the record."""
        ...


class StorageFence(Protocol):
    """The part of a driver whose storage can refuse the writes of one node."""

    async def fence(self, node: str, addresses: Sequence[str]) -> None:
        """Return once a node certainly cannot write any more, not even what it has buffered; `addresses` are all of its own.

        Called on another node, while that node is lost and perhaps still writes. StorageError if it may still write.
        """
        ...

    async def unfence(self, node: str, addresses: Sequence[str]) -> None:
        """Accept the node's writes again; no-op if they are accepted."""
        ...


class BlockDevice(abc.ABC):
    """One disk of one instance, or one layer of it, in the view of one node.

    Every operation may be repeated: creating an existing disk, or removing a missing one, succeeds. A layer creates,
    opens, closes and removes the layers below it; growth is done layer by layer. Drivers raise only StorageError.
    """

    template: ClassVar[DiskTemplate]

    # Optional operations are parts, and None if the driver lacks them.
    mirror: Mirror | None = None
    snapshots: Snapshots | None = None
    adoption: Adoption | None = None
    labels: Labels | None = None
    fencing: StorageFence | None = None

    @abc.abstractmethod
    def __init__(self, paths: Paths, disk: DiskSpec) -> None:
        """Handle `disk` on the node with these paths."""

    @classmethod
    def of(
        cls, paths: Paths, disk: DiskSpec, layer: Callable[[DiskSpec], "BlockDevice"]
    ) -> "BlockDevice":
        """Return the driver of one disk on this node; `layer` gives the driver of a layer below."""
        del layer
        return cls(paths, disk)

    @property
    @abc.abstractmethod
    def path(self) -> str:
        """The path whose bytes are those of the disk; StorageError if the disk is an image in another format."""

    @property
    def image(self) -> str:
        """The path of the disk in the format of its parameters: for the hypervisor and for people, not for its data."""
        return self.path

    @property
    def is_image(self) -> bool:
        """Return whether `image` is an image of the disk, whose bytes are not those of the disk."""
        return False

    @abc.abstractmethod
    async def create(self, size_mib: int) -> None:
        """Make the disk, reading as zeros; on failure nothing remains."""

    @abc.abstractmethod
    async def remove(self) -> None: ...

    @abc.abstractmethod
    async def open(self, role: DiskRole) -> None:
        """Make `path` usable in a role, which may be another than before; an error if the data does not exist.

        The peers and the layers below are those of the present disk: a driver uses new ones.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Undo `open`; the data is kept."""

    @abc.abstractmethod
    async def grow(self, size_mib: int) -> None:
        """Make this layer at least this large, the new part reading as zeros; on failure it is unchanged."""

    @abc.abstractmethod
    async def size_mib(self) -> int | None:
        """Return the present size, or None if the disk does not exist."""

    async def spindles(self) -> int:
        """Return the number of its own physical devices; 0 if disks share them, or the disk does not exist."""
        return 0

    @abc.abstractmethod
    async def check_identity(self) -> None:
        """Fail unless this very disk exists with all its data: called before it is used or written."""
