"""Opcodes that ask an allocator about many instances at once, and submit the jobs that it proposes."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode
from ganeti.model.opcodes.instance import OpInstanceCreate


class OpClusterBalance(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_BALANCE"):
    """Make the load of the nodes more even by `max_moves` moves at most: a job for each (S186); ours, not upstream's."""

    max_moves: int | None = None
    iallocator: str | None = None
    """The built-in one if none is named."""

    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpInstanceMultiAlloc(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_MULTI_ALLOC"):
    """Place many new instances by one request, and submit a job for each that has a place (S175)."""

    instances: list[OpInstanceCreate] = []
    iallocator: str | None = None
    opportunistic_locking: bool = False

    summary_field: ClassVar[str | None] = None
    nested_field: ClassVar[str | None] = "instances"
    host_changing: ClassVar[bool] = False
