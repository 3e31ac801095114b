"""Opcodes that ask allocators about many instances at once."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import (
    DiskRequest,
    Iallocator,
    NicRequest,
    OpCode,
    OpportunisticLocking,
)
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.operation import DRY_RUN, Rest


class OpInstanceMultiAlloc(OpCode, frozen=True, kw_only=True, tag="OP_INSTANCE_MULTI_ALLOC"):
    """Place many new instances by one request to an allocator, then make each by a job of its own."""

    instances: list[OpInstanceCreate] = []
    iallocator: Iallocator = None
    opportunistic_locking: OpportunisticLocking = False

    nested_field: ClassVar[str | None] = "instances"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances-multi-alloc", (DRY_RUN,), summary="Place several instances at once, and make them"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Secrets of one opcode are never stored; inside another one nobody would look for them (G23)."""
        if any(one.osparams_secret for one in self.instances):
            raise ValueError("secret parameters need a job of their own (OP_INSTANCE_CREATE)")


class OpClusterBalance(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_BALANCE"):
    """Move instances until the cluster is as even as moves can make it (S186): a job for each move."""

    iallocator: Iallocator = None
    max_moves: Annotated[int | None, Field("maximum number of moves", "! -l --max-length", "N")] = (
        None
    )

    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpClusterCapacity(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_CAPACITY"):
    """How many more instances of one size fit, and on which nodes (S187).

    What is None is that of the cluster's standard instance.
    """

    iallocator: Iallocator = None
    disk_template: Annotated[str | None, Field(
        "how the disks are kept; the cluster's first without", "-t", "TEMPLATE"
    ), RefersTo.NOTHING] = None  # fmt: skip
    disks: Annotated[list[DiskRequest] | None, Field(
        "a disk; may be repeated", "! --disk", "N:size=SIZE", Form.DISKS
    )] = None  # fmt: skip
    nics: list[NicRequest] | None = None
    memory: Annotated[
        int | None, Field("memory of each instance", metavar="SIZE", form=Form.SIZE)
    ] = None
    vcpus: Annotated[int | None, Field("virtual processors of each", "-c", "N")] = None
    spindle_use: Annotated[int | None, Field("spindles that each uses", metavar="N")] = None
    max_instances: Annotated[int | None, Field("stop counting at this number", metavar="N")] = None

    host_changing: ClassVar[bool] = False
