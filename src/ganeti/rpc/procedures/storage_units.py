"""Procedures about storage units: lists and changes."""

from ganeti.model.disk_templates import StorageUnit
from ganeti.rpc.procedures.form import NORMAL_S, SLOW_S, Message, Nothing, Procedure


class StorageKindArgs(Message, frozen=True, kw_only=True):
    """The kind of units."""

    kind: str


class UnitState(Message, frozen=True, kw_only=True):
    """A storage unit of a node; sizes in MiB."""

    name: str
    size: int
    used: int
    free: int
    allocatable: bool = True
    problem: str = ""
    """A sentence that describes the problem, or ''."""


class ChangeUnitArgs(Message, frozen=True, kw_only=True):
    """The changes to a unit; None leaves a property unchanged."""

    unit: StorageUnit
    allocatable: bool | None = None
    present: bool | None = None
    """True if the unit must exist: it is created if it is missing, or deleted if it is empty."""


class UnitArgs(Message, frozen=True, kw_only=True):
    unit: StorageUnit


class VolumePart(Message, frozen=True, kw_only=True):
    """A logical volume of a node and its physical volume; the size is in MiB."""

    group: str
    name: str
    size: int
    devices: list[str]


STORAGE_UNITS = Procedure(
    "storage_units", StorageKindArgs, list[UnitState], NORMAL_S, changes=False
)

STORAGE_UNIT_CHANGE = Procedure(
    "storage_unit_change", ChangeUnitArgs, Nothing, SLOW_S, changes=True
)

STORAGE_UNIT_REPAIR = Procedure("storage_unit_repair", UnitArgs, list[str], SLOW_S, changes=True)

NODE_VOLUMES = Procedure("node_volumes", Nothing, list[VolumePart], NORMAL_S, changes=False)
