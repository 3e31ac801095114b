"""Disks that are existing block devices which all nodes see: template `blockdev`."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import BLOCK_DEVICE, DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.interface import Adoption, BlockDevice
from ganeti.storage.sizes import check_size
from ganeti.storage.wipe import device_size

T = TypeVar("T")
MIB = 1024 * 1024


class AdoptedDevice(BlockDevice, Adoption):
    """A device below /dev/disk, where names belong to devices. This driver never makes, fills or removes it."""

    template: ClassVar[DiskTemplate] = BLOCK_DEVICE

    def __init__(
        self,
        paths: Paths,
        disk: DiskSpec,
        *,
        root: Path = Path("/"),
        size_of: Callable[[int], int] = device_size,
    ) -> None:
        del (
            paths
        )  # shared storage has the same path on every node, also on those of a virtual cluster
        wanted = self.template.disk_id.driver
        match disk.logical_id:
            case (str(driver), str(path)) if driver == wanted:
                self._path = checked_path(path)
            case _:
                raise StorageError(
                    f"disk {disk.index} ({disk.uuid}): {disk.logical_id!r:.200} is not"
                    f" ({wanted!r}, path), which template {self.template.name} needs"
                )
        self._disk, self._size_of = disk, size_of
        self._real = str(root / self._path.lstrip("/"))
        self.adoption = self

    @property
    def path(self) -> str:
        return self._real

    async def create(self, size_mib: int) -> None:
        """Require that it exists and is large enough."""
        await self._check(size_mib)

    async def remove(self) -> None:
        """Keep the device and its data, because Ganeti did not create it."""

    async def open(self, role: DiskRole) -> None:
        del role
        await self._check(self._disk.size)

    async def close(self) -> None:
        """Do nothing: nothing was set up."""

    async def grow(self, size_mib: int) -> None:
        found = await self._in_thread("grow", self._size)
        if found < size_mib * MIB:
            raise StorageError(
                f"disk {self._disk.index}: {self._path} has {found // MIB} MiB but needs {size_mib} MiB; grow"
                " the device first"
            )

    async def size_mib(self) -> int | None:
        if not await asyncio.to_thread(os.path.lexists, self._real):
            return None
        return await self._in_thread("look at", self._size) // MIB

    async def check_identity(self) -> None:
        await self._check(self._disk.size)

    def source_path(self, source: str) -> str:
        self._check_is(source)
        return self._real

    async def adoptable_mib(self, source: str) -> int:
        self._check_is(source)
        return await self._in_thread("adopt", lambda: self._size(os.O_RDWR | os.O_EXCL)) // MIB

    async def adopt(self, source: str) -> None:
        """Check that no other program holds it."""
        await self.adoptable_mib(source)

    async def give_back(self, source: str) -> None:
        """Do nothing: adoption changed nothing."""

    def _check_is(self, source: str) -> None:
        if source != self._path:
            raise StorageError(f"disk {self._disk.index} is {self._path}, not {source!r:.200}")

    async def _check(self, size_mib: int) -> None:
        found = await self._in_thread("use", self._size)
        check_size(f"disk {self._disk.index}: {self._path}", found // MIB, size_mib)

    def _size(self, flags: int = os.O_RDONLY) -> int:
        """Return bytes; StorageError if it is not a block device. With O_EXCL, OSError if a program holds it."""
        descriptor = os.open(self._real, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
                raise StorageError(f"{self._path} is not a block device")
            return self._size_of(descriptor)
        finally:
            os.close(descriptor)

    async def _in_thread(self, verb: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as err:
            raise StorageError(
                f"cannot {verb} disk {self._disk.index} ({self._path}): {err.strerror}"
            ) from err


def checked_path(path: str) -> str:
    """Return a path below /dev/disk; StorageError if it is another."""
    form = BLOCK_DEVICE.disk_id
    if not form.is_path(path):
        raise StorageError(f"{path!r:.200} is not the path of a device below {form.root}")
    return path
