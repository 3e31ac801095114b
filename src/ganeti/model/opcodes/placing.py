"""Opcodes that send allocators requests about many instances."""

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
    """Place many new instances by one request to an allocator, and create each by a separate job."""

    instances: list[OpInstanceCreate] = []
    iallocator: Iallocator = None
    opportunistic_locking: OpportunisticLocking = False

    nested_field: ClassVar[str | None] = "instances"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/instances-multi-alloc", (DRY_RUN,), summary="Place several instances at once, and create them"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Secrets of an opcode are never stored, but secrets inside a nested opcode would be (G23)."""
        if any(one.osparams_secret for one in self.instances):
            raise ValueError(
                "secret parameters cannot be used here; submit a separate job (OP_INSTANCE_CREATE)"
            )


class OpClusterBalance(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_BALANCE"):
    """Move instances to balance the load of the nodes (S186), by one job for each move."""

    iallocator: Iallocator = None
    max_moves: Annotated[int | None, Field("maximum number of moves", "! -l --max-length", "N")] = (
        None
    )

    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpClusterCapacity(OpCode, frozen=True, kw_only=True, tag="OP_CLUSTER_CAPACITY"):
    """Return how many more instances of one size fit, and on which nodes (S187).

    None stands for the value of the cluster's standard instance.
    """

    iallocator: Iallocator = None
    disk_template: Annotated[str | None, Field(
        "disk template; default: the cluster's first", "-t", "TEMPLATE"
    ), RefersTo.NOTHING] = None  # fmt: skip
    disks: Annotated[list[DiskRequest] | None, Field(
        "a disk; may be repeated", "! --disk", "N:size=SIZE", Form.DISKS
    )] = None  # fmt: skip
    nics: list[NicRequest] | None = None
    memory: Annotated[
        int | None, Field("memory of each instance", metavar="SIZE", form=Form.SIZE)
    ] = None
    vcpus: Annotated[int | None, Field("virtual processors of each instance", "-c", "N")] = None
    spindle_use: Annotated[int | None, Field("spindles of each instance", metavar="N")] = None
    max_instances: Annotated[int | None, Field("stop counting at this number", metavar="N")] = None

    host_changing: ClassVar[bool] = False
