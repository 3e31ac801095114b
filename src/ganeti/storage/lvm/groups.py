"""Volume groups of LVM as storage units."""

from collections.abc import Sequence
from typing import ClassVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import VOLUME_GROUP, StorageUnit
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.rpc.procedures.storage_units import UnitState
from ganeti.storage.kind import Repair, StorageKind
from ganeti.storage.lvm import commands
from ganeti.storage.lvm.exclusive import sharing, unused
from ganeti.storage.lvm.reports import Group, Physical
from ganeti.storage.lvm.tools import Lvm, LvmMissing

MIB = 1024 * 1024


class VolumeGroups(StorageKind, Repair):
    """All volume groups of this node."""

    name: ClassVar[str] = VOLUME_GROUP

    def __init__(self, lvm: Lvm | None = None) -> None:
        self._lvm = lvm or Lvm()
        self.repairing = self

    async def units(self, paths: Paths) -> list[UnitState]:
        del paths
        try:
            groups = await self._lvm.groups()
        except LvmMissing:
            return []
        devices = await self._lvm.physical() if groups else []
        return [state(group, devices) for group in groups]

    async def space(self, paths: Paths, unit: StorageUnit) -> StorageSpace:
        """Return the space for new volumes: the free part of the physical volumes that accept any."""
        del paths
        devices = [one for one in await self._lvm.physical() if one.group == unit.key]
        if not devices:
            raise StorageError(f"volume group {unit.key} does not exist")
        total = sum(one.size for one in devices)
        return StorageSpace(
            unit=unit,
            total=total // MIB,
            free=free(devices) // MIB,
            devices=len(devices),
            free_devices=len(unused(devices)),
        )

    async def disks(self, paths: Paths, unit: StorageUnit) -> list[StoredDisk]:
        del paths
        if not any(one.name == unit.key for one in await self._lvm.groups()):
            return []
        found = await self._lvm.volumes(unit.key)
        return [
            StoredDisk(unit=unit, name=one.name, size=one.size // MIB)
            for one in found
            if not one.pool and not one.is_pool  # of another kind
        ]

    async def sharing(self, paths: Paths, unit: StorageUnit) -> list[str]:
        del paths
        devices = [one for one in await self._lvm.physical() if one.group == unit.key]
        if not devices:
            return []
        return sharing(devices, await self._lvm.parts(unit.key), await self._lvm.volumes(unit.key))

    async def repair(self, paths: Paths, key: str) -> list[str]:
        """Drop missing physical volumes, with their volumes (S6)."""
        del paths
        found = next((one for one in await self._lvm.groups() if one.name == key), None)
        if found is None:
            raise StorageError(f"volume group {key} does not exist")
        if not found.is_partial:
            return []
        lost = [one.name for one in await self._lvm.volumes(key) if one.is_partial]
        await self._lvm.act(commands.drop_missing(key))
        left = next((one for one in await self._lvm.groups() if one.name == key), None)
        if left is None or left.is_partial:
            raise StorageError(
                f"volume group {key} still lacks physical volumes; check vgs and pvs"
            )
        said = [f"{found.missing} missing physical volumes were dropped"]
        return [*said, *(f"volume {key}/{name} is lost" for name in lost)]


def free(devices: Sequence[Physical]) -> int:
    """Return the bytes for new volumes on some physical volumes."""
    return sum(one.free for one in devices if one.is_allocatable and not one.is_missing)


def state(group: Group, devices: Sequence[Physical]) -> UnitState:
    """Return a group in the form of lists."""
    own = [one for one in devices if one.group == group.name]
    problem = ""
    if group.is_partial:
        problem = (
            f"volume group {group.name} lacks {group.missing} physical volumes; bring them back, or run"
            f" gnt-node repair-storage NODE lvm-vg {group.name}"
        )
    return UnitState(
        name=group.name,
        size=group.size // MIB,
        used=(group.size - group.free) // MIB,
        free=group.free // MIB,
        allocatable=any(one.is_allocatable for one in own),
        problem=problem,
    )
