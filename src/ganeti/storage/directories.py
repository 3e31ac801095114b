"""Directories of file-based disks, as storage units."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from typing import ClassVar, TypeVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.rpc.procedures.storage_units import UnitState
from ganeti.storage.confinement import DIRECTORY_MODE, AllowedDirectories, DirectoryMissing
from ganeti.storage.kind import Making, StorageKind

T = TypeVar("T")
_MIB = 1024 * 1024


class Directories(StorageKind, Making):
    """The directories of a node that the administrator allowed, and those directly below them.

    The directories of instances, which contain disks directly, are not storage units.
    """

    name: ClassVar[str] = "file"
    shared: ClassVar[bool] = False

    def __init__(self) -> None:
        self.making = self

    async def units(self, paths: Paths) -> list[UnitState]:
        allowed = await asyncio.to_thread(self._allowed, paths)
        return await asyncio.to_thread(lambda: [_state(allowed, path) for path in _all(allowed)])

    async def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        found = await _looking(unit.key, lambda: self._allowed(paths).free_space(unit.key))
        return StorageSpace(
            unit=unit,
            total=found.f_blocks * found.f_frsize // _MIB,
            free=found.f_bavail * found.f_frsize // _MIB,
        )

    async def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        try:
            found = await _looking(unit.key, lambda: self._allowed(paths).files(unit.key))
        except DirectoryMissing:
            return []
        return [StoredDisk(unit=unit, name=path, size=size // _MIB) for path, size in sorted(found)]

    async def problems(self, paths: Paths) -> list[str]:
        return list((await asyncio.to_thread(self._allowed, paths)).problems)

    async def make(self, paths: Paths, key: str) -> None:
        def work() -> None:
            with self._allowed(paths).enter(key, make=True) as place:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(place.name, DIRECTORY_MODE, dir_fd=place.directory)
                place.sync()

        await _looking(key, work)
        await self.space(paths, StorageUnit(kind="file", key=key))

    async def delete(self, paths: Paths, key: str) -> None:
        def work() -> None:
            with (
                contextlib.suppress(FileNotFoundError, DirectoryMissing),
                self._allowed(paths).enter(key) as place,
            ):
                os.rmdir(place.name, dir_fd=place.directory)
                place.sync()

        await _looking(key, work)

    def _allowed(self, paths: Paths) -> AllowedDirectories:
        return AllowedDirectories.read(paths, shared=self.shared)


class SharedDirectories(Directories):
    """The same for directories that every node sees."""

    name: ClassVar[str] = "sharedfile"
    shared: ClassVar[bool] = True


async def _looking(key: str, work: Callable[[], T]) -> T:
    """Do blocking work in a thread; StorageError names the directory of an error."""
    try:
        return await asyncio.to_thread(work)
    except OSError as err:
        hint = "; remove its content first" if err.errno == errno.ENOTEMPTY else ""
        raise StorageError(f"cannot read {key}: {err.strerror}{hint}") from err


def _all(allowed: AllowedDirectories) -> list[str]:
    """Return each allowed directory, and the directories directly below it that do not belong to an instance."""
    found = []
    for entry in allowed.entries:
        found.append(entry)
        with contextlib.suppress(StorageError, OSError):
            below = [f"{entry}/{name}" for name in allowed.directories(entry)]
            found += [path for path in below if not _has_disks(allowed, path)]
    return list(dict.fromkeys(found))


def _has_disks(allowed: AllowedDirectories, path: str) -> bool:
    return any(file.rpartition("/")[0] == path for file, _size in allowed.files(path))


def _state(allowed: AllowedDirectories, path: str) -> UnitState:
    try:
        space = allowed.free_space(path)
        used = sum(size for _name, size in allowed.files(path))
    except (StorageError, OSError) as err:
        return UnitState(name=path, size=0, used=0, free=0, allocatable=False, problem=str(err))
    return UnitState(
        name=path,
        size=space.f_blocks * space.f_frsize // _MIB,
        used=used // _MIB,
        free=space.f_bavail * space.f_frsize // _MIB,
    )
