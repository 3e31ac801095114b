"""Thin pools of LVM as storage units: GROUP/POOL."""

from collections.abc import Sequence
from typing import ClassVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import THIN_POOL, StorageUnit
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.rpc.procedures.storage_units import UnitState
from ganeti.storage.kind import StorageKind
from ganeti.storage.lvm.reports import Volume
from ganeti.storage.lvm.tools import Lvm, LvmMissing

MIB = 1024 * 1024
MOST_PERCENT = 80.0
"""The use of data or metadata from which a pool is reported: a full one stops its guests."""


class ThinPools(StorageKind):
    """All thin pools of this node."""

    name: ClassVar[str] = THIN_POOL

    def __init__(self, lvm: Lvm | None = None) -> None:
        self._lvm = lvm or Lvm()

    async def units(self, paths: Paths) -> list[UnitState]:
        del paths
        return [state(pool, volumes) for pool, volumes in await self._pools()]

    async def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        """Return the size of a pool, and what its volumes have not been promised."""
        del paths
        for pool, volumes in await self._pools():
            if _key(pool) == unit.key:
                found = state(pool, volumes)
                return StorageSpace(
                    unit=unit,
                    total=found.size,
                    free=found.free,
                    promised=sum(one.size for one in volumes) // MIB,
                )
        raise StorageError(f"thin pool {unit.key} does not exist")

    async def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        del paths
        return [
            StoredDisk(unit=unit, name=one.name, size=one.size // MIB)
            for pool, volumes in await self._pools()
            if _key(pool) == unit.key
            for one in volumes
        ]

    async def problems(self, paths: Paths) -> list[str]:
        """Return the pools with disks of instances that are nearly full."""
        del paths
        return [
            problem
            for pool, volumes in await self._pools()
            if any(one.disk is not None for one in volumes) and (problem := _problem(pool))
        ]

    async def _pools(self) -> list[tuple[Volume, list[Volume]]]:
        """Return each pool with its volumes."""
        try:
            groups = await self._lvm.groups()
        except LvmMissing:
            return []
        found = []
        for group in groups:
            volumes = await self._lvm.volumes(group.name)
            found += [
                (pool, [one for one in volumes if one.pool == pool.name])
                for pool in volumes
                if pool.is_pool
            ]
        return found


def state(pool: Volume, volumes: Sequence[Volume]) -> UnitState:
    """Return a pool in the form of lists; its free space is what no volume has been promised."""
    promised = sum(one.size for one in volumes)
    return UnitState(
        name=_key(pool),
        size=pool.size // MIB,
        used=round(pool.size * pool.data_percent / 100) // MIB,
        free=max(0, pool.size - promised) // MIB,
        allocatable=True,
        problem=_problem(pool),
    )


def _key(pool: Volume) -> str:
    return f"{pool.group}/{pool.name}"


def _problem(pool: Volume) -> str:
    if pool.is_partial:
        return f"a physical volume with a part of thin pool {_key(pool)} is missing"
    used = {"data": pool.data_percent, "metadata": pool.metadata_percent}
    full = [
        f"{percent:g}% of its {what}" for what, percent in used.items() if percent >= MOST_PERCENT
    ]
    if not full:
        return ""
    grow = "--poolmetadatasize" if pool.metadata_percent >= MOST_PERCENT else "--size"
    return (
        f"thin pool {_key(pool)} uses {' and '.join(full)}, and when it is full its guests stop; extend it: lvextend"
        f" {grow} +SIZE {_key(pool)}"
    )
