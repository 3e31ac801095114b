"""The directory with one instance's backups: images, and a manifest for each backup.

A backup exists if its manifest does. These steps are in an order in which a crash leaves the old state or the new one:

    a new backup   images as NAME.new, synced; their names; the manifest, by a rename
    a merge        new forms of the child's images as NAME.new, synced; the child's manifest says so (`merging`); the
                   names; the child's manifest without the parent; then the parent is removed
    a removal      the manifest; then its images, and its proof

The next change completes a merge that was decided, and removes files that belong to no manifest.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ganeti.base.errors import HostError, StorageError
from ganeti.base.paths import Paths
from ganeti.model import wire
from ganeti.node.backups.images import new_image, open_directory, remove
from ganeti.protocols.backup_encryption import BackupKeyring, merged
from ganeti.protocols.backup_manifest import SUFFIX, Image, Manifest, Merge, parse_manifest
from ganeti.protocols.backup_proof import proof_file
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing

DEFAULT_TARGET = "/srv/ganeti/backup"
NEW = ".new"
PART = ".part"
"""Ends the name of a new image's description, until the manifest has it."""
_MANIFEST_LIMIT = 256 << 20
_ANY = "any"


def allowed_targets(paths: Paths) -> AllowedDirectories:
    """Return the directories on this node that may have backups."""
    return AllowedDirectories.read(
        paths, shared=False, source=paths.backup_paths, default=DEFAULT_TARGET
    )


def path_of(paths: Paths, target: str, instance: str) -> Path:
    """Return the directory of an instance's backups."""
    allowed = allowed_targets(paths)
    if target not in allowed.entries:
        raise StorageError(
            f"{target} is not a directory for backups on this node, which has"
            f" {', '.join(allowed.entries) or 'none'}; its administrator can add one to {allowed.source}"
        )
    return allowed.real(target) / instance


@contextlib.contextmanager
def entered(
    paths: Paths,
    target: str,
    instance: str,
    *,
    make: bool = False,
    keys: BackupKeyring | None = None,
) -> Iterator["BackupDirectory"]:
    """Open an instance's directory for the block, as checked as a directory of disks."""
    path_of(paths, target, instance)
    allowed = allowed_targets(paths)
    if make and target == DEFAULT_TARGET:
        allowed.real(target).mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with allowed.enter(f"{target}/{instance}/{_ANY}", make=make) as location:
            if make and location.made_directory:
                location.sync()
            yield BackupDirectory(location.directory, instance, keys)
    except DirectoryMissing as err:
        raise HostError(f"{target} has no backups of {instance}") from err


@dataclass
class Contents:
    """The manifests of a directory by the names of their backups, the oldest first, and what is wrong with others."""

    points: dict[str, Manifest] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> Manifest | None:
        return next(reversed(self.points.values()), None)

    def find(self, name: str) -> Manifest:
        """Return a backup by its name; HostError with the existing ones."""
        found = self.points.get(name)
        if found is None:
            why = (
                self.problems.get(name)
                or f"it does not exist; there are {', '.join(self.points) or 'none'}"
            )
            raise HostError(f"backup {name}: {why}")
        return found

    def child(self, point: str) -> Manifest | None:
        """Return the backup that was made after this one."""
        return next((one for one in self.points.values() if one.parent == point), None)


@dataclass(frozen=True)
class BackupDirectory:
    """An open directory; every method blocks and raises GanetiError or OSError."""

    descriptor: int
    name: str = ""
    """The name of the instance; '' if it is unknown."""
    keys: BackupKeyring | None = None
    """None: encrypted manifests are not verified, so nothing in them may be used for more than a list."""

    @contextlib.contextmanager
    def locked(self, *, waits: bool = False) -> Iterator[None]:
        """Keep other processes, also of other clusters that share the target, from changes."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError as err:
            raise HostError("another process changes these backups; try again later") from err
        try:
            yield
        finally:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.descriptor))  # noqa: PTH208 - by its descriptor

    def contents(self) -> Contents:
        """Return all manifests; a damaged one does not hide the others."""
        found, contents = list[Manifest](), Contents()
        for name in self.names():
            if name.endswith(SUFFIX):
                try:
                    manifest = parse_manifest(self.read(name, _MANIFEST_LIMIT), name)
                    if self.keys is not None:
                        self.keys.check(manifest, self.name)
                    found.append(manifest)
                except (HostError, OSError) as err:
                    contents.problems[name.removesuffix(SUFFIX)] = str(err)
        for one in sorted(found, key=lambda one: one.number):
            contents.points[one.point] = one
        return contents

    def read(self, name: str, limit: int) -> bytes:
        """Return a regular file of at most `limit` bytes, never a link; HostError or OSError."""
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.descriptor
        )
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                raise HostError(f"{name} is not a file, or too large")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)

    def complete(self) -> Contents:
        """Complete the merges that were decided; return the contents."""
        contents = self.contents()
        decided = [one for one in contents.points.values() if one.merging is not None]
        for point in decided:
            self._replace_images(point)
        return self.contents() if decided else contents

    def settle(self) -> Contents:
        """Complete what was decided, and remove what belongs to nothing; return the contents."""
        contents = self.complete()
        if contents.problems:
            return contents  # a damaged manifest may be repaired, and its images are not known
        used = {one.file for point in contents.points.values() for one in point.disks}
        used |= {proof_file(point) for point in contents.points}
        for name in self.names():
            if name not in used and not name.endswith(SUFFIX):
                remove(name, self.descriptor)
        return contents

    def part(self, file: str) -> Image:
        """Return what is known of a new image."""
        try:
            return wire.decode(self.read(file + PART, _MANIFEST_LIMIT), Image, what=file)
        except FileNotFoundError as err:
            raise HostError(f"{file} was not written completely") from err

    def write_part(self, image: Image) -> None:
        """Record the facts of a new image, which is synced."""
        self.write(image.file + PART, wire.encode(image))

    def commit(self, manifest: Manifest) -> Manifest:
        """Add a backup whose images were written; return it with their facts. It may be repeated."""
        contents = self.contents()
        had = contents.points.get(manifest.point)
        if had is not None and had.instance_uuid == manifest.instance_uuid:
            return had
        last = contents.last
        if (last.point if last else "") != manifest.parent:
            raise HostError(
                f"another backup, {last.point if last else 'none'}, was made meanwhile; try again"
            )
        images = tuple(self.part(one.file) for one in manifest.disks)
        manifest = replace(manifest, disks=images, number=last.number + 1 if last else 1)
        if self.keys is not None:
            manifest = self.keys.sealed(manifest)
        for image in images:
            self.rename(image.file + NEW, image.file)
        os.fsync(self.descriptor)
        self.write(manifest.file, wire.encode(manifest))
        for image in images:
            remove(image.file + PART, self.descriptor)
        return manifest

    def begin_merge(self, child: Manifest, parent: Manifest, images: Sequence[Image]) -> None:
        """Decide that these images, which are synced, replace those of `child`; and complete it."""
        decided = replace(child, merging=Merge(parent=parent.parent, disks=tuple(images)))
        if self.keys is not None:
            decided = self.keys.resealed(decided)
        self.write(child.file, wire.encode(decided))
        self._replace_images(decided)

    def _replace_images(self, point: Manifest) -> None:
        assert point.merging is not None  # noqa: S101 - the caller looked
        old = {one.disk: one for one in point.disks}
        for image in point.merging.disks:
            if image != old.get(image.disk):
                with contextlib.suppress(FileNotFoundError):  # it was renamed before a crash
                    self.rename(image.file + NEW, image.file)
        os.fsync(self.descriptor)
        done = merged(point)
        self.write(done.file, wire.encode(done))

    def remove_point(self, point: Manifest) -> None:
        """Remove a backup that no other needs."""
        remove(point.file, self.descriptor)
        os.fsync(self.descriptor)
        for image in point.disks:
            remove(image.file, self.descriptor)
        remove(proof_file(point.point), self.descriptor)

    def abandon(self, files: Sequence[str]) -> None:
        """Remove what was written of images that are in no backup."""
        for file in files:
            remove(file + NEW, self.descriptor)
            remove(file + PART, self.descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file by a synced one with this content."""
        descriptor = new_image(self.descriptor, name + NEW)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.rename(name + NEW, name)
        os.fsync(self.descriptor)

    def rename(self, old: str, new: str) -> None:
        """Rename a file within the directory."""
        os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)


@contextlib.contextmanager
def opened(path: str | Path, keys: BackupKeyring | None = None) -> Iterator[BackupDirectory]:
    """Open a directory that the node daemon has checked, for a program of the node."""
    descriptor = open_directory(Path(path))
    try:
        yield BackupDirectory(descriptor, Path(path).name, keys)
    finally:
        os.close(descriptor)
