"""Disks that are files of one node: template `file`.

A file carries the UUID of its disk as an extended attribute (if the file system has them), so that a left-over file of
another disk is neither adopted nor removed.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from typing import ClassVar, NoReturn, TypeVar

from ganeti.base.errors import StorageError
from ganeti.base.files import is_full
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Run, run
from ganeti.model.disk_templates import DISK_FORMATS, FILE, RAW, DiskTemplate, disk_format
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.clones import Clone, clone
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing, Location
from ganeti.storage.file_snapshots import FileSnapshots
from ganeti.storage.image_files import (
    grow_image,
    has_header,
    image_size,
    is_new_image,
    new_image,
    raw_copy,
    why_not_grown,
    write_empty_image,
)
from ganeti.storage.interface import BlockDevice
from ganeti.storage.preallocation import Preallocate, preallocate
from ganeti.storage.sizes import check_size

T = TypeVar("T")

FILE_MODE = 0o600
MIB = 1024 * 1024

_MARK = "user.ganeti.disk"
_NO_MARKS = (errno.EOPNOTSUPP, errno.ENODATA, errno.EPERM)
_ZEROS = bytes(MIB)


class FileDisk(BlockDevice):
    """A regular file below an allowed directory, opened by the hypervisor in the format that the disk records."""

    template: ClassVar[DiskTemplate] = FILE
    snapshots: FileSnapshots

    def __init__(
        self,
        paths: Paths,
        disk: DiskSpec,
        *,
        preallocate: Preallocate = preallocate,
        clone: Clone = clone,
        run: Run = run,
    ) -> None:
        self._format = disk_format(disk.template, disk.params)
        if self._format not in DISK_FORMATS:
            raise StorageError(
                f"disk {disk.index} ({disk.uuid}): this node does not know the format"
                f" {self._format!r:.40}; known: {', '.join(DISK_FORMATS)}"
            )
        wanted, form = self.template.disk_id.driver, [] if self._format == RAW else [self._format]
        match disk.logical_id:
            case (str(driver), str(path), *named) if (driver, named) == (wanted, form):
                self._name = path
            case _:
                needed = ", ".join((repr(wanted), "path", *map(repr, form)))
                raise StorageError(
                    f"disk {disk.index} ({disk.uuid}): {disk.logical_id!r:.200} is not"
                    f" ({needed}), which template {self.template.name} needs"
                )
        self._paths, self._disk, self._preallocate, self._run = paths, disk, preallocate, run
        self._is_image = self._format != RAW
        self.snapshots = FileSnapshots(
            disk.uuid,
            self._name,
            self.image,
            self._allowed,
            self._in_thread,
            clone,
            self._size,
        )

    @property
    def path(self) -> str:
        if self._is_image:
            raise StorageError(
                f"disk {self._disk.index} ({self.image}): it is an image in the format {self._format}, and this operation"
                f" needs a disk with format={RAW}"
            )
        return self.image

    @property
    def is_image(self) -> bool:
        return self._is_image

    @property
    def image(self) -> str:
        root = "/" if self.template.shared else str(self._paths.root)
        return os.path.join(root, self._name.lstrip("/"))  # noqa: PTH118 -- words, not a lookup

    async def create(self, size_mib: int) -> None:
        if size_mib <= 0:
            raise StorageError(f"disk {self._disk.index}: a size of {size_mib} MiB is not possible")
        await self._in_thread("create", lambda: self._create(size_mib))

    async def remove(self) -> None:
        await self._in_thread("remove", self._remove)

    async def grow(self, size_mib: int) -> None:
        if not self._is_image:
            await self._in_thread("grow", lambda: self._grow(size_mib * MIB))
            return
        descriptor = await self._in_thread("grow", lambda: self._to_grow(size_mib * MIB))
        if descriptor is None:
            return
        try:
            await grow_image(self._run, descriptor, size_mib * MIB)
        except CommandFailed as err:
            raise StorageError(
                f"cannot grow disk {self._disk.index} ({self.image}): {why_not_grown(err)}"
            ) from err
        finally:
            os.close(descriptor)

    async def open(self, role: DiskRole) -> None:
        del role  # every node that sees a file may use it
        await self.check_identity()

    async def close(self) -> None:
        """Do nothing: nothing was set up."""

    async def check_identity(self) -> None:
        await self._in_thread("use", self._check)

    async def size_mib(self) -> int | None:
        return await self._in_thread("look at", self._size_mib)

    async def _in_thread(self, verb: str, work: Callable[[], T]) -> T:
        """Do `work` in a thread, and name the disk in an error."""
        what = f"cannot {verb} disk {self._disk.index} ({self.image})"
        try:
            return await asyncio.to_thread(work)
        except StorageError as err:
            raise StorageError(f"{what}: {err.message}") from err
        except OSError as err:
            raise StorageError(f"{what}: {err.strerror}") from err

    def _allowed(self) -> AllowedDirectories:
        return AllowedDirectories.read(self._paths, shared=self.template.shared)

    def _create(self, size_mib: int) -> None:
        with self._allowed().enter(self._name, make=True) as place:
            try:
                descriptor = self._open_new_or_own(place, size_mib * MIB)
            except BaseException:
                if place.made_directory:
                    place.remove_directory_if_empty()
                raise
            try:
                self._fill(descriptor, size_mib * MIB)
                place.sync()
            except BaseException as err:
                # A complete file of another size existed before: this call must not remove it.
                if not isinstance(err, _OtherSize):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(place.name, dir_fd=place.directory)
                    place.remove_directory_if_empty()
                raise
            finally:
                os.close(descriptor)

    def _open_new_or_own(self, place: Location, size: int) -> int:
        """Open a new file, or the one that an earlier call for the same disk left, complete or not."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(place.name, flags, FILE_MODE, dir_fd=place.directory)
        except FileExistsError:
            descriptor = place.open_file(os.O_RDWR)
        try:
            if not (self._is_ours(descriptor) or self._is_unused(descriptor, size)):
                _refuse("a file with other data exists there; move it away if it is not needed")
            with contextlib.suppress(OSError):  # file systems without extended attributes
                os.setxattr(descriptor, _MARK, self._disk.uuid.encode())
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _fill(self, descriptor: int, size: int) -> None:
        """Give a file its space and then its length, so that a file with a length is complete."""
        if self._is_image:
            try:
                present = image_size(descriptor) if has_header(descriptor) else 0
            except StorageError as err:
                raise _OtherSize(err.message) from err
        else:
            present = os.fstat(descriptor).st_size
        if present not in (0, size):
            raise _OtherSize(f"it exists with {present} bytes instead of {size}")
        if present == 0:
            self._reserve(descriptor, size, size)
            if self._is_image:
                write_empty_image(descriptor, size)
            else:
                os.ftruncate(descriptor, size)
        os.fsync(descriptor)

    def _reserve(self, descriptor: int, size: int, missing: int) -> None:
        """Preallocate the missing space; for an image, or if that is not supported, only check the free space."""
        space = os.fstatvfs(descriptor)
        free = space.f_bavail * space.f_frsize
        try:
            fits = free >= missing
            if fits and not self._is_image:
                self._preallocate(descriptor, size)
        except OSError as err:
            if not is_full(err):
                raise
            fits = False
        if not fits:
            raise StorageError(
                f"no space left: {missing // MIB} MiB are needed, {free // MIB} MiB are free;"
                " free some space or choose another node"
            )

    def _grow(self, size: int) -> None:
        with self._allowed().enter(self._name) as place:
            descriptor = place.open_file(os.O_RDWR)
            try:
                if self._is_foreign(descriptor):
                    _refuse("the file belongs to another disk")
                present = os.fstat(descriptor).st_size
                check_size("the file", present // MIB, self._disk.size)
                if present < size:
                    self._reserve(descriptor, size, size - present)
                    os.ftruncate(descriptor, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _to_grow(self, size: int) -> int | None:
        """Open an image that must become larger; None if it has that size."""
        with self._allowed().enter(self._name) as place:
            descriptor = place.open_file(os.O_RDWR)
            try:
                if self._is_foreign(descriptor):
                    _refuse("the file belongs to another disk")
                present = image_size(descriptor)
                check_size("the image", present // MIB, self._disk.size)
                if present < size:
                    self._reserve(descriptor, size, size - present)
                    return os.dup(descriptor)
            finally:
                os.close(descriptor)
        return None

    def _remove(self) -> None:
        with (
            contextlib.suppress(FileNotFoundError, DirectoryMissing),
            self._allowed().enter(self._name) as place,
        ):
            self._remove_copies(place)
            descriptor = place.open_file(os.O_RDONLY)
            try:
                is_foreign = self._is_foreign(descriptor)
            finally:
                os.close(descriptor)
            if not is_foreign:
                os.unlink(place.name, dir_fd=place.directory)
                place.remove_directory_if_empty()
                place.sync()

    def _remove_copies(self, place: Location) -> None:
        """Remove what a script left that was interrupted together with the node."""
        for name in (raw_copy(place.name), new_image(place.name)) if self._is_image else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=place.directory)

    def _check(self) -> None:
        with self._allowed().enter(self._name) as place:
            descriptor = place.open_file(os.O_RDONLY)
            try:
                if self._is_foreign(descriptor):
                    raise StorageError("the file belongs to another disk")
                size = self._size(descriptor)
            finally:
                os.close(descriptor)
        check_size("the file", size // MIB, self._disk.size)

    def _size_mib(self) -> int | None:
        with (
            contextlib.suppress(FileNotFoundError, DirectoryMissing),
            self._allowed().enter(self._name) as place,
        ):
            descriptor = place.open_file(os.O_RDONLY)
            try:
                if not self._is_foreign(descriptor):
                    return self._size(descriptor) // MIB
            finally:
                os.close(descriptor)
        return None

    def _size(self, descriptor: int) -> int:
        """Return the bytes of the disk; StorageError if it should be an image and is not a safe one."""
        return image_size(descriptor) if self._is_image else os.fstat(descriptor).st_size

    def _is_unused(self, descriptor: int, size: int) -> bool:
        """Return whether an unmarked file has no data of a guest."""
        if self._is_image and _mark(descriptor) is None and is_new_image(descriptor, size):
            return True
        return _reads_as_zeros(descriptor)

    def _is_ours(self, descriptor: int) -> bool:
        return _mark(descriptor) == self._disk.uuid

    def _is_foreign(self, descriptor: int) -> bool:
        """Return whether the file is marked as another disk; a file without a mark is accepted."""
        return _mark(descriptor) not in (None, self._disk.uuid)


def _refuse(why: str) -> NoReturn:
    raise StorageError(why)


class _OtherSize(StorageError):
    """The file exists and is not the one to make: it is complete, with another size, or a damaged image."""


def _mark(descriptor: int) -> str | None:
    try:
        return os.getxattr(descriptor, _MARK).decode(errors="replace")
    except OSError as err:
        if err.errno in _NO_MARKS:
            return None
        raise


def _reads_as_zeros(descriptor: int) -> bool:
    """Return whether the unmarked file was never written, so that it cannot hold secrets."""
    if _mark(descriptor) is not None:
        return False
    position, end = 0, os.fstat(descriptor).st_size
    while position < end:
        try:
            position = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as err:
            if err.errno == errno.ENXIO:  # nothing but holes from here on
                return True
            raise
        piece = os.pread(descriptor, len(_ZEROS), position)
        if piece != _ZEROS[: len(piece)]:
            return False
        position += len(piece)
    return True
