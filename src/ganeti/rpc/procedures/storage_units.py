"""Procedures about storage units: what there is, and what changes one."""

from ganeti.model.disk_templates import StorageUnit
from ganeti.rpc.procedures.form import NORMAL_S, SLOW_S, Message, Nothing, Procedure


class StorageKindArgs(Message, frozen=True, kw_only=True):
    """Which kind of units is meant."""

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
    """What is to become of a unit; None leaves a thing as it is."""

    unit: StorageUnit
    allocatable: bool | None = None
    present: bool | None = None
    """Whether it is to be there: made if it is missing, deleted if it is empty."""


class UnitArgs(Message, frozen=True, kw_only=True):
    unit: StorageUnit


class VolumePart(Message, frozen=True, kw_only=True):
    """A logical volume of a node and what it lies on; the size is in MiB."""

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
