"""Physical volumes of LVM as storage units."""

from typing import ClassVar

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.rpc.procedures.storage_units import UnitState
from ganeti.storage.kind import Allocation, StorageKind
from ganeti.storage.lvm import commands
from ganeti.storage.lvm.reports import Physical
from ganeti.storage.lvm.tools import Lvm, LvmMissing

MIB = 1024 * 1024


class PhysicalVolumes(StorageKind, Allocation):
    """All physical volumes of this node that are in a group."""

    name: ClassVar[str] = "lvm-pv"

    def __init__(self, lvm: Lvm | None = None) -> None:
        self._lvm = lvm or Lvm()
        self.allocation = self

    async def units(self, paths: Paths) -> list[UnitState]:
        del paths
        try:
            devices = await self._lvm.physical()
        except LvmMissing:
            return []
        return [_state(one) for one in devices if one.group]

    async def set_allocatable(self, paths: Paths, key: str, *, allocatable: bool) -> None:
        words = commands.set_allocatable(key, allocatable=allocatable)
        found = next((one for one in await self.units(paths) if one.name == key), None)
        if found is None:
            raise StorageError(f"physical volume {key} does not exist, or is not in a volume group")
        if found.allocatable != allocatable:
            await self._lvm.act(words)


def _state(one: Physical) -> UnitState:
    return UnitState(
        name=one.name,
        size=one.size // MIB,
        used=one.used // MIB,
        free=one.free // MIB,
        allocatable=one.is_allocatable,
        problem=f"a physical volume of volume group {one.group} is missing"
        if one.is_missing
        else "",
    )
