"""Snapshots of disks in files, as files beside them that share unchanged blocks."""

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ganeti.base.errors import StorageError
from ganeti.storage.clones import Clone, NoClones, cloned, unnamed
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing, Location
from ganeti.storage.interface import Snapshots

T = TypeVar("T")

_MARK = "user.ganeti.snapshot"
"""An extended attribute with the UUID of the disk."""
_FILE_MODE = 0o600


class InThread(Protocol):
    """Does blocking work in a thread, and names the disk in an error."""

    def __call__(self, verb: str, work: Callable[[], T]) -> Awaitable[T]: ...


@dataclass(frozen=True)
class FileSnapshots(Snapshots):
    """The snapshots of one disk: DISK.NAME beside the file DISK, complete as soon as they have their name."""

    uuid: str
    name: str
    """The path of the disk, below the prefix of its node."""
    path: str
    """The same as the node opens it."""
    allowed: Callable[[], AllowedDirectories]
    in_thread: InThread
    clone: Clone
    size: Callable[[int], int]
    """Bytes of the disk in an open file; StorageError if the file is not a copy of the disk."""

    async def can_take(self) -> bool:
        return await self.in_thread("look at", self._can)

    async def take(self, name: str) -> str:
        await self.make(name)
        return f"{self.path}.{name}"

    async def make(self, name: str) -> None:
        await self.in_thread("make a snapshot of", lambda: self._make(name))

    async def roll_back(self, name: str) -> None:
        await self.in_thread("roll back", lambda: self._roll_back(name))

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        del unsure
        await self.in_thread("drop a snapshot of", lambda: self._drop(name))

    def _can(self) -> bool:
        with (
            self.allowed().enter(self.name) as place,
            _opened(place.open_file(os.O_RDONLY)) as disk,
        ):
            try:
                with _opened(unnamed(place.directory, _FILE_MODE)) as new:
                    cloned(self.clone, new, disk)
            except NoClones:
                return False
        return True

    def _make(self, name: str) -> None:
        with self.allowed().enter(self.name) as place:
            copy = _beside(place, name)
            with contextlib.suppress(FileNotFoundError), self._own(copy):
                return
            with (
                _opened(place.open_file(os.O_RDONLY)) as disk,
                _opened(unnamed(place.directory, _FILE_MODE)) as new,
            ):
                os.setxattr(new, _MARK, self.uuid.encode())
                cloned(self.clone, new, disk)
                os.link(
                    f"/proc/self/fd/{new}",
                    copy.name,
                    dst_dir_fd=place.directory,
                    follow_symlinks=True,
                )
            place.sync()

    def _roll_back(self, name: str) -> None:
        with self.allowed().enter(self.name) as place:
            try:
                with (
                    self._own(_beside(place, name)) as copy,
                    _opened(place.open_file(os.O_RDWR)) as disk,
                ):
                    sizes = [self.size(one) for one in (copy, disk)]
                    if sizes[0] != sizes[1]:
                        raise StorageError(f"it has {sizes[1]} bytes, its snapshot {sizes[0]}")
                    cloned(self.clone, disk, copy)
                    # An image may have become longer since; cut only now, it has a header at any time.
                    os.ftruncate(disk, os.fstat(copy).st_size)
                    os.fsync(disk)
            except FileNotFoundError as err:
                raise StorageError(f"its snapshot {name} does not exist") from err

    def _drop(self, name: str) -> None:
        with (
            contextlib.suppress(FileNotFoundError, DirectoryMissing),
            self.allowed().enter(self.name) as place,
        ):
            copy = _beside(place, name)
            with contextlib.suppress(_Foreign), self._own(copy):
                os.unlink(copy.name, dir_fd=copy.directory)
                copy.remove_directory_if_empty()
                copy.sync()

    @contextlib.contextmanager
    def _own(self, copy: Location) -> Iterator[int]:
        """Open an existing snapshot of this disk; FileNotFoundError, or _Foreign for another file."""
        with _opened(copy.open_file(os.O_RDONLY)) as found:
            try:
                mark = os.getxattr(found, _MARK)
            except OSError:
                mark = b""
            if mark != self.uuid.encode():
                raise _Foreign(f"{copy.name} exists already and is not its snapshot")
            yield found


class _Foreign(StorageError):
    """A file of this name that is not a snapshot of this disk."""


def _beside(place: Location, name: str) -> Location:
    return replace(place, name=f"{place.name}.{name}")


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
