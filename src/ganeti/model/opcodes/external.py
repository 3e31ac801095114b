"""Opcodes about external storage."""

from typing import Annotated, ClassVar

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode


class OpExtStorageDiagnose(OpCode, frozen=True, kw_only=True, tag="OP_EXT_STORAGE_DIAGNOSE"):
    """List the providers of external storage on all nodes: a row of the requested fields for each."""

    output_fields: Annotated[list[str], RefersTo.NOTHING]
    names: Annotated[list[str], RefersTo.STORAGE] = []

    host_changing: ClassVar[bool] = False
