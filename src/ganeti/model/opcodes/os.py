"""Opcodes about OS definitions."""

from typing import ClassVar

import msgspec

from ganeti.model.opcodes.base import OpCode


class OpOsDiagnose(OpCode, frozen=True, kw_only=True, tag="OP_OS_DIAGNOSE"):
    """The OS definitions of all nodes; a list of rows of `output_fields`.

    What is hidden, blacklisted or not valid has a row only if that field is asked for.
    """

    output_fields: list[str] = msgspec.field(
        default_factory=lambda: ["name", "valid", "node_status"]
    )
    names: list[str] = []

    host_changing: ClassVar[bool] = False
