"""Opcodes that ask allocators about many instances at once."""

from typing import ClassVar

from ganeti.model.opcodes.base import DiskRequest, NicRequest, OpCode
from ganeti.model.opcodes.instance import OpInstanceCreate


class OpInstanceMultiAlloc(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_MULTI_ALLOC"):
    """Place many new instances by one request to an allocator, then make each by a job of its own."""

    instances: list[OpInstanceCreate] = []
    iallocator: str | None = None
    opportunistic_locking: bool = False

    nested_field: ClassVar[str | None] = "instances"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""

    def __post_init__(self) -> None:
        """Secrets of one opcode are never stored; inside another one nobody would look for them (G23)."""
        if any(one.osparams_secret for one in self.instances):
            raise ValueError("secret parameters need a job of their own (OP_INSTANCE_CREATE)")


class OpClusterBalance(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_BALANCE"):
    """Move instances until the cluster is as even as moves can make it (S186): a job for each move."""

    iallocator: str | None = None
    max_moves: int | None = None

    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpClusterCapacity(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_CAPACITY"):
    """How many more instances of one size fit, and on which nodes (S187).

    What is None is that of the cluster's standard instance.
    """

    iallocator: str | None = None
    disk_template: str | None = None
    disks: list[DiskRequest] | None = None
    nics: list[NicRequest] | None = None
    memory: int | None = None
    vcpus: int | None = None
    spindle_use: int | None = None
    max_instances: int | None = None

    host_changing: ClassVar[bool] = False
