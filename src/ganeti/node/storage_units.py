"""Answers calls about storage units: lists, changes, repair, and logical volumes."""

from dataclasses import dataclass

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.storage_units import (
    NODE_VOLUMES,
    STORAGE_UNIT_CHANGE,
    STORAGE_UNIT_REPAIR,
    STORAGE_UNITS,
    ChangeUnitArgs,
    StorageKindArgs,
    UnitArgs,
    UnitState,
    VolumePart,
)
from ganeti.storage.kinds import kind_of_storage
from ganeti.storage.lvm.tools import Lvm, LvmMissing

_MIB = 1024 * 1024


def handlers(paths: Paths, lvm: Lvm | None = None) -> Handlers:
    """Return the handlers of all calls about storage units."""
    units = _Units(paths, lvm or Lvm())
    return {
        STORAGE_UNITS.name: units.units,
        STORAGE_UNIT_CHANGE.name: units.change,
        STORAGE_UNIT_REPAIR.name: units.repair,
        NODE_VOLUMES.name: units.volumes,
    }


@dataclass(frozen=True)
class _Units:
    paths: Paths
    lvm: Lvm

    async def units(self, args: StorageKindArgs, _call: Call) -> list[UnitState]:
        return await kind_of_storage(args.kind).units(self.paths)

    async def change(self, args: ChangeUnitArgs, _call: Call) -> Nothing:
        """Change a unit, after checking that everything requested is possible."""
        kind, key = kind_of_storage(args.unit.kind), args.unit.key
        if args.allocatable is not None and kind.allocation is None:
            raise StorageError(f"units of kind {args.unit.kind} cannot be closed to new disks")
        if args.present is not None and kind.making is None:
            raise StorageError(
                f"units of kind {args.unit.kind} cannot be created or deleted by Ganeti"
            )
        if args.present is not None and kind.making is not None:
            act = kind.making.make if args.present else kind.making.delete
            await act(self.paths, key)
        if args.allocatable is not None and kind.allocation is not None:
            await kind.allocation.set_allocatable(self.paths, key, allocatable=args.allocatable)
        return Nothing()

    async def repair(self, args: UnitArgs, _call: Call) -> list[str]:
        kind = kind_of_storage(args.unit.kind)
        if kind.repairing is None:
            raise StorageError(f"units of kind {args.unit.kind} cannot be repaired")
        return await kind.repairing.repair(self.paths, args.unit.key)

    async def volumes(self, _args: Nothing, _call: Call) -> list[VolumePart]:
        try:
            parts = await self.lvm.parts()
        except LvmMissing:
            return []
        return [
            VolumePart(
                group=one.group, name=one.name, size=one.size // _MIB, devices=list(one.devices)
            )
            for one in parts
        ]
