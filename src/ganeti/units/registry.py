"""The logical unit of each opcode: `LUNodeAdd` runs `OpNodeAdd`."""

from typing import Any

from ganeti.base.modules import declared_in, modules_below
from ganeti.model.opcode_table import OPCODES
from ganeti.model.opcodes import OpCode
from ganeti.units.base import LogicalUnit

_UNITS: dict[str, type[LogicalUnit[Any, Any]]] = {
    unit.__name__: unit
    for subject in modules_below("ganeti.units", packages_only=True)
    for unit in declared_in(subject.__name__, LogicalUnit)  # type: ignore[type-abstract]  # not called here
}

UNITS: dict[type[OpCode], type[LogicalUnit[Any, Any]]] = {
    opcode: _UNITS["LU" + opcode.__name__.removeprefix("Op")] for opcode in OPCODES.values()
}
