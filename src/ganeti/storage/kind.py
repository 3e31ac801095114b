"""The interface of a kind of storage units: places for disks on a node, such as volume groups or directories.

One light framework for all (S1-S8): every kind lists its units and reports their state; optional operations are parts
of the kind, and None if the kind lacks them. Kinds are independent of each other.
"""

import abc
from typing import ClassVar, Protocol

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.rpc.procedures.storage_units import UnitState


class Allocation(Protocol):
    """The part of a kind whose units can be closed to new disks (S4)."""

    async def set_allocatable(self, paths: Paths, key: str, *, allocatable: bool) -> None: ...


class Making(Protocol):
    """The part of a kind whose units can be created and deleted (S5); both may be repeated."""

    async def make(self, paths: Paths, key: str) -> None: ...

    async def delete(self, paths: Paths, key: str) -> None:
        """Delete it; StorageError if it is not empty."""
        ...


class Repair(Protocol):
    """The part of a kind whose units can be made consistent again (S6)."""

    async def repair(self, paths: Paths, key: str) -> list[str]:
        """Return the repairs, a sentence each; unrecoverable data is dropped, complete data is kept."""
        ...


class StorageKind(abc.ABC):
    """All units of one kind on this node. Methods raise StorageError."""

    name: ClassVar[str]
    """The kind in a template's `StorageFacts`, and the word that commands use."""

    allocation: Allocation | None = None
    making: Making | None = None
    repairing: Repair | None = None

    @abc.abstractmethod
    async def units(self, paths: Paths) -> list[UnitState]:
        """Return all of this kind, sizes in MiB (S2)."""

    async def check(self, paths: Paths, key: str) -> str:
        """Return the fault of a unit, a sentence, or '' (S3)."""
        found = next((one for one in await self.units(paths) if one.name == key), None)
        return f"{key} does not exist" if found is None else found.problem

    async def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        """Return its size and free space, in MiB; an error if it is missing or must not be used."""
        for one in await self.units(paths):
            if one.name == unit.key:
                free = one.free if one.allocatable else 0
                return StorageSpace(unit=unit, total=one.size, free=free)
        raise StorageError(f"{unit.key} does not exist")

    async def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        """Return its disks by name, none if it is missing; an error if it must not be used."""
        del paths, unit
        return []

    async def sharing(self, paths: Paths, unit: StorageUnit) -> list[str]:
        """Return the disks of a unit that share devices but should not, a sentence each."""
        del paths, unit
        return []

    async def problems(self, paths: Paths) -> list[str]:
        """Return the faults of the node's own settings for this kind, a sentence each."""
        del paths
        return []
