"""Opcodes about external storage."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode


class OpExtStorageDiagnose(OpCode, frozen=True, kw_only=True, tag="OP_EXT_STORAGE_DIAGNOSE"):
    """The providers of external storage on all nodes: a row for each, with the fields that are asked for."""

    output_fields: list[str]
    names: list[str] = []

    host_changing: ClassVar[bool] = False
