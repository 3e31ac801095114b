"""What every storage driver offers."""

import abc
from typing import ClassVar

from ganeti.model.disk_templates import DiskTemplate


class BlockDevice(abc.ABC):
    """One disk of one instance, seen from one node.

    Every operation may be repeated: creating what exists, or removing what is gone, succeeds.
    Drivers raise only StorageError.
    """

    template: ClassVar[DiskTemplate]

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
    async def assemble(self) -> None:
        """Make `path` usable, and fail if the data is not there."""

    @abc.abstractmethod
    async def shutdown(self) -> None:
        """Undo `assemble`; the data stays."""

    @abc.abstractmethod
    async def grow(self, size_mib: int) -> None:
        """Make the disk at least so large, the new part reading as zeros; on failure it stays as it was."""

    @abc.abstractmethod
    async def size_mib(self) -> int | None:
        """The present size, or None if there is no such disk."""
