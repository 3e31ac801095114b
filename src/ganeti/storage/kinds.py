"""Kinds of storage units: how much room a node has in them, and what lies there."""

import abc
from collections.abc import Iterable
from dataclasses import dataclass

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing

_MIB = 1024 * 1024


class StorageKind(abc.ABC):
    """All units of one kind on this node. Methods block, and raise StorageError."""

    @abc.abstractmethod
    def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        """Its size and what is free, in MiB; an error if it is missing or must not be used."""

    @abc.abstractmethod
    def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        """What lies there by name, nothing if it is missing; an error if it must not be used."""

    def problems(self, paths: Paths) -> list[str]:
        """What is wrong with the node's own settings for this kind, a sentence each."""
        del paths
        return []


@dataclass(frozen=True)
class Directories(StorageKind):
    """Directories of disks in files."""

    shared: bool

    def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        try:
            found = AllowedDirectories.read(paths, shared=self.shared).free_space(unit.key)
        except OSError as err:
            raise StorageError(f"cannot look at {unit.key}: {err.strerror}") from err
        return StorageSpace(
            unit=unit,
            total=found.f_blocks * found.f_frsize // _MIB,
            free=found.f_bavail * found.f_frsize // _MIB,
        )

    def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        try:
            found = AllowedDirectories.read(paths, shared=self.shared).files(unit.key)
        except DirectoryMissing:
            return []
        except OSError as err:
            raise StorageError(f"cannot look at {unit.key}: {err.strerror}") from err
        return [StoredDisk(unit=unit, name=path, size=size // _MIB) for path, size in sorted(found)]

    def problems(self, paths: Paths) -> list[str]:
        return list(AllowedDirectories.read(paths, shared=self.shared).problems)


KINDS: dict[str, StorageKind] = {
    "file": Directories(shared=False),
    "sharedfile": Directories(shared=True),
}
"""By the kind in a template's `StorageFacts`."""


def storage_kind(unit: StorageUnit) -> StorageKind:
    """The kind of a unit; StorageError if this node knows it not."""
    found = KINDS.get(unit.kind)
    if found is None:
        raise StorageError(f"this node knows no storage of kind {unit.kind!r:.40}")
    return found


def storage_problems(paths: Paths, wanted: Iterable[StorageUnit]) -> list[str]:
    """What keeps these units from being used, a sentence each; blocks."""
    problems: dict[str, None] = {}
    for kind in KINDS.values():
        try:
            problems |= dict.fromkeys(kind.problems(paths))
        except StorageError as err:
            problems[err.message] = None
    for unit in wanted:
        try:
            storage_kind(unit).space(paths, unit)
        except StorageError as err:
            problems[f"{unit.kind} storage: {err.message}"] = None
    return list(problems)
