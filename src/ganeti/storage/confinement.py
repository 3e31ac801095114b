"""Confinement of file storage, and images, to the directories that the node's administrator allowed (F37, A41).

The list is a file of the node (`paths.file_storage_paths`): one absolute path a line, `#` comments. Below an allowed
directory every component is opened from the one above it, without following links, and must be on the same mount,
belong to us or root, and be closed to other writers: so no other process can swap what was checked.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import StorageError
from ganeti.base.files import listed_lines
from ganeti.base.paths import Paths

DIRECTORY_MODE = 0o700

_OF_THE_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr"),
    *("/boot", "/etc", "/dev", "/proc", "/sys"),
    *("/var/lib/ganeti", "/var/log/ganeti", "/var/run/ganeti", "/run/ganeti"),
)
"""Forbidden: these directories, and those above or below them."""

_OF_OTHERS = ("/home", "/root", "/run", "/tmp", "/var")  # noqa: S108 -- refused, never used
"""Forbidden: these directories and those above them; a separate directory below them is allowed."""

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectoryMissing(StorageError):
    """A directory on the way to a disk does not exist, so neither does the disk."""


@dataclass(frozen=True)
class Location:
    """A file's name in an open directory, and the directory's name in its parent, if root owns that."""

    directory: int
    name: str
    mount_id: int
    above: int | None = None
    directory_name: str = ""
    made_directory: bool = False

    def open_file(self, flags: int) -> int:
        """Open the regular file of this name; refuse links, pipes, devices, and files of other mounts or names."""
        handle = os.open(self.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.directory)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise StorageError(f"{self.name} is not a regular file, so it cannot be a disk")
            if status.st_nlink != 1:
                raise StorageError(
                    f"{self.name} has {status.st_nlink} hard links, but a disk must have one"
                )
            if _mount_id(handle) != self.mount_id:
                raise StorageError(f"{self.name} is a mount point, not a file of its directory")
            # Through the handle, so that it is the checked file.
            return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)
        finally:
            os.close(handle)

    def remove_directory_if_empty(self) -> None:
        """Remove the file's directory, unless it is an allowed one itself or not empty."""
        if self.above is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self.directory_name, dir_fd=self.above)

    def sync(self) -> None:
        """Make created or removed names survive a power cut."""
        os.fsync(self.directory)
        if self.above is not None:
            os.fsync(self.above)


@dataclass(frozen=True)
class AllowedDirectories:
    """The list of allowed directories, applied to paths below `prefix`."""

    prefix: Path
    source: Path
    entries: tuple[str, ...]
    problems: tuple[str, ...]
    """Ignored lines, with the reason."""

    @classmethod
    def read(
        cls, paths: Paths, *, shared: bool, source: Path | None = None, default: str = ""
    ) -> "AllowedDirectories":
        """Read the list of this node, or the one in `source`; without the file only `default` is allowed.

        Shared storage has the same path on every node, so a virtual cluster does not prefix it.
        """
        source = source or paths.file_storage_paths
        try:
            lines = listed_lines(source, default)
        except OSError as err:
            raise StorageError(f"cannot read {source}: {err.strerror}") from err
        entries, problems = [], []
        for line in lines:
            if why := why_refused(line):
                problems.append(f"{source}: {line!r:.200} is ignored: {why}")
            else:
                entries.append(line.rstrip("/"))
        return cls(Path("/") if shared else paths.root, source, tuple(entries), tuple(problems))

    def real(self, path: str) -> Path:
        """Return this node's form of `path`."""
        return self.prefix / path.lstrip("/")

    @contextlib.contextmanager
    def enter(self, path: str, *, make: bool = False) -> Iterator[Location]:
        """Give the location of the file `path`; with `make`, missing directories are created on the way (0700).

        Raises DirectoryMissing, or StorageError if the path is not allowed.
        """
        root, names = self._split(path)
        if not names:
            raise StorageError(f"{path} is itself an allowed directory, not a file below one")
        with self._walk(root, names[:-1], path, make=make) as (opened, made):
            has_own = len(opened) > 1
            yield Location(
                opened[-1],
                names[-1],
                _mount_id(opened[-1]),
                above=opened[-2] if has_own else None,
                directory_name=names[-2] if has_own else "",
                made_directory=made,
            )

    def free_space(self, directory: str) -> os.statvfs_result:
        """Return the space of the file system that holds `directory`, which is allowed or below such."""
        root, names = self._split(directory)
        with self._walk(root, names, directory) as (opened, _):
            return os.fstatvfs(opened[-1])

    def directories(self, directory: str) -> list[str]:
        """Return names of the directories directly below `directory`, in order."""
        root, names = self._split(directory)
        with self._walk(root, names, directory) as (opened, _), os.scandir(opened[-1]) as found:
            return sorted(one.name for one in found if one.is_dir(follow_symlinks=False))

    def files(self, directory: str) -> list[tuple[str, int]]:
        """Return path and size in bytes of all entries in `directory` and below it, except directories."""
        root, names = self._split(directory)
        found = []
        with self._walk(root, names, directory) as (opened, _):
            for where, _names, files, descriptor in os.fwalk(".", dir_fd=opened[-1]):
                for name in files:
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        place = f"{directory.rstrip('/')}{where.removeprefix('.')}"
                        found.append((f"{place}/{name}", status.st_size))
        return found

    @contextlib.contextmanager
    def _walk(
        self, root: str, names: list[str], path: str, *, make: bool = False
    ) -> Iterator[tuple[list[int], bool]]:
        """Open the directories from `root` down; the flag says whether the last one was created."""
        with contextlib.ExitStack() as stack:
            opened = [self._open_root(root)]
            stack.callback(os.close, opened[0])
            mount_id = _mount_id(opened[0])
            made = False
            for name in names:
                made = make and _make_directory(name, opened[-1])
                opened.append(_open_below(name, opened[-1], path))
                stack.callback(os.close, opened[-1])
                _check_directory(opened[-1], mount_id, f"{name} in {path}")
            yield opened, made

    def _split(self, path: str) -> tuple[str, list[str]]:
        """Return the deepest allowed directory that holds `path`, and the names from there."""
        if wrong := _malformed(path):
            raise StorageError(f"{path!r:.300} {wrong}")
        holders = [entry for entry in self.entries if _is_within(path, entry)]
        if not holders:
            raise StorageError(
                f"{path} is not below a directory that this node allows; its administrator can add"
                f" one to {self.source}"
            )
        root = max(holders, key=len)
        return root, [name for name in path[len(root) :].split("/") if name]

    def _open_root(self, entry: str) -> int:
        directory = self.real(entry)
        try:
            # Links above the allowed directory are the administrator's; their target is checked.
            real = directory.resolve(strict=True)
            inside = f"/{real.relative_to(self.prefix.resolve())}"
        except FileNotFoundError as err:
            raise DirectoryMissing(
                f"the allowed directory {directory} does not exist; create or mount it"
            ) from err
        except ValueError as err:
            raise StorageError(f"{directory} leads outside {self.prefix}") from err
        if why := why_refused(inside):
            raise StorageError(f"{directory} leads to {real}, which is not allowed: {why}")
        descriptor = os.open(real, _OPEN_DIRECTORY)
        try:
            _check_directory(descriptor, _mount_id(descriptor), str(directory))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def why_refused(directory: str) -> str | None:
    """Return why disks may never be stored below `directory`, or None."""
    if wrong := _malformed(directory):
        return wrong
    for name in _OF_THE_SYSTEM:
        if _is_within(directory, name) or _is_within(name, directory):
            return f"{name} belongs to the system"
    for name in _OF_OTHERS:
        if _is_within(name, directory):
            return f"{name} holds other things; use a directory of its own"
    return None


def _malformed(path: str) -> str | None:
    names = path.split("/")
    if not path.startswith("/"):
        return "is not an absolute path"
    if ".." in names or "." in names:
        return "contains '.' or '..'"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):  # noqa: PLR2004 -- ASCII controls
        return "contains control characters"
    return None


def _is_within(path: str, directory: str) -> bool:
    """Return whether `path` is `directory` or below it, by the words alone."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _make_directory(name: str, above: int) -> bool:
    try:
        os.mkdir(name, DIRECTORY_MODE, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _open_below(name: str, above: int, path: str) -> int:
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=above)
    except FileNotFoundError as err:
        raise DirectoryMissing(f"{path}: the directory {name} does not exist") from err
    except OSError as err:
        # ELOOP or ENOTDIR, after the kernel: a link, or not a directory.
        raise StorageError(f"{path}: {name} is not a real directory: {err.strerror}") from err


def _check_directory(descriptor: int, mount_id: int, what: str) -> None:
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()):
        raise StorageError(
            f"{what} belongs to user {status.st_uid}, who could swap disks; change its owner to root"
        )
    if status.st_mode & stat.S_IWOTH:
        raise StorageError(
            f"{what} is world-writable, so other users could swap disks; run chmod o-w on it"
        )
    if _mount_id(descriptor) != mount_id:
        raise StorageError(
            f"{what} is a mount point inside an allowed directory; allow the mount point itself instead"
        )


def _mount_id(descriptor: int) -> int:
    """Return the kernel's number of the mount; bind mounts differ even on one device."""
    for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines():
        if line.startswith("mnt_id:"):
            return int(line.partition(":")[2])
    raise StorageError("this kernel does not report the mount of a file (/proc/self/fdinfo)")
