"""Opcodes about OS definitions."""

from typing import Annotated, ClassVar

import msgspec

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode


class OpOsDiagnose(OpCode, frozen=True, kw_only=True, tag="OP_OS_DIAGNOSE"):
    """The OS definitions of all nodes; a list of rows of `output_fields`.

    What is hidden, blacklisted or not valid has a row only if that field is asked for.
    """

    output_fields: Annotated[list[str], RefersTo.NOTHING] = msgspec.field(
        default_factory=lambda: ["name", "valid", "node_status"]
    )
    names: Annotated[list[str], RefersTo.OS] = []

    host_changing: ClassVar[bool] = False
