"""What every storage driver offers, and what some offer besides."""

import abc
from collections.abc import Callable
from typing import ClassVar, Protocol

from ganeti.base.paths import Paths
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.rpc.procedures.disks import SyncStatus


class Mirror(Protocol):
    """What a driver offers that keeps the data on two nodes."""

    async def sync_status(self) -> SyncStatus | None:
        """Return how the two copies are, as this node sees it; None if it is not open here."""
        ...

    async def outdate(self) -> None:
        """Let this copy know that the other one is newer; no-op if it is not open."""
        ...

    async def at_rest(self) -> SyncStatus | None:
        """The record that this copy keeps of its data while it is closed; None if it has none."""
        ...

    async def open_alone(self, generation: str, *, force: bool) -> None:
        """Open as primary without the other copy; refused if the data is of another generation by now.

        Without `force` this copy must be up to date.
        """
        ...

    async def discard(self) -> None:
        """Let the next connection replace what only this copy has; no-op if the copies are connected."""
        ...


class Snapshots(Protocol):
    """What a driver offers that can keep the data of a moment."""

    async def can_take(self) -> bool:
        """Return whether what keeps the disk can do it."""
        return True

    async def take(self, name: str) -> str:
        """Keep the data as it is now under this name; the path that reads it."""
        ...

    async def drop(self, name: str) -> None: ...


class Adoption(Protocol):
    """What a driver offers that can make a disk of what is there already."""

    def source_path(self, source: str) -> str:
        """Return where `source` is to be found, if it is there."""
        ...

    async def adoptable_mib(self, source: str) -> int:
        """The size of `source`; an error if it is not there, used, or another's."""
        ...

    async def adopt(self, source: str) -> None:
        """Make `source` this disk; its data stays."""
        ...

    async def give_back(self, source: str) -> None:
        """Undo `adopt`; no-op if it was not adopted."""
        ...


class Labels(Protocol):
    """What a driver offers whose storage can note to which instance a disk belongs."""

    async def set_info(self, text: str) -> None:
        """Replace the note."""
        ...


class BlockDevice(abc.ABC):
    """One disk of one instance, or one layer of it, seen from one node.

    Every operation may be repeated: creating what exists, or removing what is gone, succeeds. A layer
    creates, opens, closes and removes what is below it; growing is done layer by layer.
    Drivers raise only StorageError.
    """

    template: ClassVar[DiskTemplate]

    # What not every driver can do is a part of it, and None where it cannot.
    mirror: Mirror | None = None
    snapshots: Snapshots | None = None
    adoption: Adoption | None = None
    labels: Labels | None = None

    @abc.abstractmethod
    def __init__(self, paths: Paths, disk: DiskSpec) -> None:
        """Handle `disk` on the node with these paths."""

    @classmethod
    def of(
        cls, paths: Paths, disk: DiskSpec, layer: Callable[[DiskSpec], "BlockDevice"]
    ) -> "BlockDevice":
        """The driver of one disk on this node; `layer` gives the driver of a layer below."""
        del layer
        return cls(paths, disk)

    @property
    @abc.abstractmethod
    def path(self) -> str:
        """What the hypervisor opens, as raw."""

    @abc.abstractmethod
    async def create(self, size_mib: int) -> None:
        """Make the disk, reading as zeros; on failure nothing remains."""

    @abc.abstractmethod
    async def remove(self) -> None: ...

    @abc.abstractmethod
    async def open(self, role: DiskRole) -> None:
        """Make `path` usable in a role, which may be another than before; an error if the data is not there.

        The peers and the layers below are those that the disk has now: a driver takes up new ones.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Undo `open`; the data stays."""

    @abc.abstractmethod
    async def grow(self, size_mib: int) -> None:
        """Make this layer at least so large, the new part reading as zeros; on failure it stays as it was."""

    @abc.abstractmethod
    async def size_mib(self) -> int | None:
        """The present size, or None if the disk does not exist."""

    async def spindles(self) -> int:
        """The number of its own physical devices; 0 where disks share them, or the disk does not exist."""
        return 0

    @abc.abstractmethod
    async def check_identity(self) -> None:
        """Fail unless what is there is this very disk, with all its data: asked before it is used or written."""
