"""Toy disks: a driver that keeps each in a file, which has another name while it is open."""

import os
from pathlib import Path
from typing import ClassVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.interface import BlockDevice
from tests.support.toy.row import TOY


class ToyDisk(BlockDevice):
    template: ClassVar[DiskTemplate] = TOY

    def __init__(self, paths: Paths, disk: DiskSpec) -> None:
        directory = paths.root / "toys"
        directory.mkdir(parents=True, exist_ok=True)
        self._closed = directory / str(disk.logical_id[1])
        self._open = self._closed.with_suffix(".open")
        self._disk = disk

    @property
    def path(self) -> str:
        return str(self._open)

    @property
    def _found(self) -> Path | None:
        return next((one for one in (self._closed, self._open) if one.exists()), None)

    async def create(self, size_mib: int) -> None:
        if self._found is None:
            self._closed.touch()
            os.truncate(self._closed, size_mib << 20)

    async def remove(self) -> None:
        self._closed.unlink(missing_ok=True)
        self._open.unlink(missing_ok=True)

    async def open(self, role: DiskRole) -> None:
        del role
        await self.check_identity()
        if self._closed.exists():
            self._closed.rename(self._open)

    async def close(self) -> None:
        if self._open.exists():
            self._open.rename(self._closed)

    async def grow(self, size_mib: int) -> None:
        await self.check_identity()
        if self._found is not None:
            os.truncate(self._found, size_mib << 20)

    async def size_mib(self) -> int | None:
        return None if self._found is None else self._found.stat().st_size >> 20

    async def check_identity(self) -> None:
        if self._found is None:
            raise StorageError(f"disk {self._disk.index}: there is no {self._closed}")
