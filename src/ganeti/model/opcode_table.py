"""All opcodes by name, and the decoding of one."""

from typing import TYPE_CHECKING, Any, Union

from ganeti.base.errors import InputError
from ganeti.base.modules import declared_in
from ganeti.model import wire
from ganeti.model.opcodes.base import SUBMITTABLE_PRIORITIES, OpCode

OPCODES: dict[str, type[OpCode]] = {
    kind.op_id(): kind
    for kind in declared_in("ganeti.model.opcodes", OpCode)
    if kind.op_id().startswith("OP_")  # the others are base classes
}
"""Every opcode that can be submitted, by its name on the wire."""

if TYPE_CHECKING:
    AnyOpCode = OpCode
else:
    AnyOpCode = Union[tuple(OPCODES.values())]  # noqa: UP007  # made from a list
    """A field of this type is decoded as the opcode that its OP_ID names."""


def parse_opcode(value: Any, *, what: str = "opcode") -> OpCode:
    """Return the opcode for plain values; InputError names the fault.

    Unknown opcodes, unknown fields and wrong types are refused (A22).
    """
    # msgspec inspects a union at each call, which takes 0.1 ms; a single opcode needs no inspection.
    kind = _kind_of(value)
    op: OpCode = wire.convert(_without_nulls(value, kind), kind or AnyOpCode, what=what)
    if op.priority not in SUBMITTABLE_PRIORITIES:
        known = ", ".join(map(str, SUBMITTABLE_PRIORITIES))
        raise InputError(f"must be one of {known}", f"{what}.priority")
    return op


def _kind_of(value: Any) -> type[OpCode] | None:
    name = value.get("OP_ID") if isinstance(value, dict) else None
    return OPCODES.get(name) if isinstance(name, str) else None


def _without_nulls(value: Any, kind: type[OpCode] | None) -> Any:
    """Return the message without nulls that stand for a default, including nested ones."""
    if kind is None or (kind.nested_field is None and None not in value.values()):
        return value
    found = {
        name: one
        for name, one in value.items()
        if one is not None or name not in kind.null_is_default
    }
    nested = found.get(kind.nested_field) if kind.nested_field else None
    if isinstance(nested, list):
        found[str(kind.nested_field)] = [_without_nulls(one, _kind_of(one)) for one in nested]
    return found
