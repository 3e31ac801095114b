"""Opcodes about OS definitions."""

from typing import Annotated, ClassVar

import msgspec

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode


class OpOsDiagnose(OpCode, frozen=True, kw_only=True, tag="OP_OS_DIAGNOSE"):
    """List the OS definitions of all nodes as rows of `output_fields`.

    A hidden, blacklisted or invalid definition has a row only if that field is requested.
    """

    output_fields: Annotated[list[str], RefersTo.NOTHING] = msgspec.field(
        default_factory=lambda: ["name", "valid", "node_status"]
    )
    names: Annotated[list[str], RefersTo.OS] = []

    host_changing: ClassVar[bool] = False
