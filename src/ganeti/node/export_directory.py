"""The exports of this node, and its image store: a directory each, which appears completely or not at all.

An image in the store has the form of an export. `NAME.new` is an unfinished export. No name leads out of the directory, and links are not followed
(A42).
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HostError, InputError
from ganeti.base.identifiers import host_name, plain_name
from ganeti.base.paths import Paths
from ganeti.protocols.export_description import NEW, OLD
from ganeti.rpc.procedures.exports import CONFIG_LIMIT, ExportContent, ExportListing, StoredFile

CONFIG = "config.ini"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MIB = 1024 * 1024
_BLOCK = 512
"""Bytes of a block in the status of a file."""
_SEAL_NS = 0
"""The time of the last change that a complete dump of the image store has: any write changes it."""


@dataclass(frozen=True)
class ExportDirectory:
    """`path` is created with the first export; every method blocks and raises GanetiError."""

    path: Path
    seals: bool = False
    """True if complete dumps never change, and have a time by which a change is seen."""

    def list(self) -> ExportListing:
        """Return the exports and the free space."""
        existing = next(one for one in (self.path, *self.path.parents) if one.exists())
        space = os.statvfs(existing)
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as entries:
            names = [
                one.name
                for one in entries
                if one.is_dir(follow_symlinks=False) and _is_export(one.name)
            ]
        return ExportListing(names=sorted(names), free=space.f_bavail * space.f_frsize // _MIB)

    def files(self, name: str) -> dict[str, StoredFile]:
        """Return the dumps of a complete export."""
        with self._opened(name, unfinished=False) as directory:
            return {
                one: StoredFile(length=status.st_size, unchanged=status.st_mtime_ns == _SEAL_NS)
                for one, status in _dumps(directory)
            }

    def seal(self, name: str, *, unfinished: bool = False) -> None:
        """Give the dumps the time by which a later change is seen."""
        with self._opened(name, unfinished=unfinished) as directory:
            for one, _status in _dumps(directory):
                os.utime(one, ns=(_SEAL_NS, _SEAL_NS), dir_fd=directory, follow_symlinks=False)

    def info(self, name: str, *, unfinished: bool = False) -> ExportContent:
        """Return the description and the sizes of the dumps."""
        with self._opened(name, unfinished=unfinished) as directory:
            found = list(_dumps(directory))
            blocks = sum(status.st_blocks for _name, status in found)
            return ExportContent(
                config=_read_config(directory, name),
                files={one: status.st_size for one, status in found},
                allocated=-(-blocks * _BLOCK // _MIB),
            )

    def begin(self, name: str) -> None:
        """Create the directory of a new export; remove the rest of an earlier attempt."""
        self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        with self._root() as root:
            _settle(name, root)
            _remove(_directory_name(name, unfinished=True), root)
            os.mkdir(_directory_name(name, unfinished=True), 0o700, dir_fd=root)
            os.fsync(root)

    def new_file(self, name: str, file: str) -> Path:
        """Return the path for a dump of an unfinished export; the file must not exist."""
        with (
            self._opened(name, unfinished=True) as directory,
            contextlib.suppress(FileNotFoundError),
        ):
            os.unlink(plain_name(file, "dump"), dir_fd=directory)
        return self.path / _directory_name(name, unfinished=True) / file

    def file(self, name: str, file: str) -> Path:
        """Return the path of an existing dump, which must not be a link."""
        with self._opened(name, unfinished=False) as directory:
            try:
                status = os.stat(plain_name(file, "dump"), dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError as err:
                raise HostError(f"export {name} has no dump {file}") from err
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise HostError(f"{file} of export {name} is not a separate regular file")
        return self.path / _directory_name(name, unfinished=False) / file

    def directory(self, name: str, *, unfinished: bool) -> Path:
        """Return the directory of an existing export, for use by local programs."""
        with self._opened(name, unfinished=unfinished):
            return self.path / _directory_name(name, unfinished=unfinished)

    def finish(self, name: str, config: str) -> None:
        """Write the description, and replace an earlier export."""
        final, new = (_directory_name(name, unfinished=one) for one in (False, True))
        old = name + OLD
        with self._root() as root:
            with (
                contextlib.suppress(_Missing),
                self._opened(name, unfinished=True) as directory,
            ):
                if self.seals:
                    self.seal(name, unfinished=True)
                _write_config(directory, config)
            if not _exists(new, root):
                # A repeated call: the export is finished if it has exactly this description.
                if _exists(final, root) and self.info(name).config == config:
                    return
                raise HostError(f"no unfinished export of {name} exists")
            if _exists(final, root):
                _remove(old, root)
                os.rename(final, old, src_dir_fd=root, dst_dir_fd=root)
            os.rename(new, final, src_dir_fd=root, dst_dir_fd=root)
            os.fsync(root)
            _remove(old, root)

    def remove(self, name: str, *, unfinished: bool = False) -> None:
        """Remove an export, if it exists."""
        with contextlib.suppress(FileNotFoundError), self._root() as root:
            _settle(name, root)
            _remove(_directory_name(name, unfinished=unfinished), root)
            os.fsync(root)

    @contextlib.contextmanager
    def _root(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _opened(self, name: str, *, unfinished: bool) -> Iterator[int]:
        try:
            with self._root() as root:
                found = os.open(
                    _directory_name(name, unfinished=unfinished), _DIRECTORY, dir_fd=root
                )
        except FileNotFoundError as err:
            raise _Missing(f"export {name} does not exist on this node") from err
        except OSError as err:
            if err.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise HostError(f"export {name} is not a separate directory") from err
        try:
            yield found
        finally:
            os.close(found)


class _Missing(HostError):
    """The export does not exist."""


@dataclass(frozen=True)
class ExportDirectories:
    """The exports of a node, and its image store."""

    exports: ExportDirectory
    images: ExportDirectory

    @classmethod
    def of_node(cls, paths: Paths) -> "ExportDirectories":
        return cls(ExportDirectory(paths.exports), ExportDirectory(paths.image_store, seals=True))

    def of(self, *, stored: bool) -> ExportDirectory:
        """Return the image store if `stored`, else the exports."""
        return self.images if stored else self.exports


def _dumps(directory: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and status of each dump in an open directory."""
    for one in os.listdir(directory):
        status = os.stat(one, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and one != CONFIG:
            yield one, status


def _is_export(name: str) -> bool:
    try:
        host_name(name, "export")
    except InputError:
        return False
    return not name.endswith((NEW, OLD))


def _directory_name(name: str, *, unfinished: bool) -> str:
    """Return the checked name of an instance's export, which never leads to another directory."""
    if host_name(name, "export") != name or name.endswith((NEW, OLD)):
        raise InputError(f"{name!r:.80} is not the name of an export", "export")
    return name + (NEW if unfinished else "")


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _settle(name: str, root: int) -> None:
    """Restore the earlier export after a crash in `finish`."""
    if not _exists(name, root) and _exists(name + OLD, root):
        os.rename(name + OLD, name, src_dir_fd=root, dst_dir_fd=root)
    _remove(name + OLD, root)


def _remove(name: str, directory: int) -> None:
    """Remove a directory tree; a link is removed itself, and its target stays."""
    try:
        shutil.rmtree(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except (NotADirectoryError, OSError):
        if not _exists(name, directory):
            return
        os.unlink(name, dir_fd=directory)


def _read_config(directory: int, name: str) -> str:
    try:
        descriptor = os.open(
            CONFIG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except FileNotFoundError as err:
        raise HostError(f"export {name} has no {CONFIG}") from err
    except OSError as err:
        raise HostError(f"{CONFIG} of export {name} cannot be read: {err.strerror}") from err
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise HostError(f"{CONFIG} of export {name} is not a regular file")
        data = source.read(CONFIG_LIMIT + 1)
    if len(data) > CONFIG_LIMIT:
        raise HostError(f"{CONFIG} of export {name} has more than {CONFIG_LIMIT} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise HostError(f"{CONFIG} of export {name} is not text") from err


def _write_config(directory: int, config: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(
        os.open(CONFIG, flags, 0o600, dir_fd=directory), "w", encoding="utf-8"
    ) as target:
        target.write(config)
        target.flush()
        os.fsync(target.fileno())
    os.fsync(directory)
