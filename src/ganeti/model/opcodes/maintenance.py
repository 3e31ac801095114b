"""Opcodes that begin and end the maintenance of a node."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import Iallocator, OpCode
from ganeti.model.operation import DRY_RUN, Parameter, Rest, Value

DEFAULT_WAIT_S = 600


class OpNodeMaintenanceBegin(OpCode, frozen=True, kw_only=True, tag="OP_NODE_MAINTENANCE_BEGIN"):
    """Put a node into maintenance: drain it, and move its instances off by jobs, one after the other.

    The node remembers which instances left and which were shut down. Automatic recovery ignores the node meanwhile.
    """

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    allow_failover: Annotated[bool, Field(
        "stop and fail over instances whose parameters forbid live migration"
    )] = False  # fmt: skip
    shutdown: Annotated[bool, Field(
        "shut down instances whose disks only this node has; they are started when the maintenance ends"
    )] = False  # fmt: skip
    iallocator: Iallocator = None

    summary_field: ClassVar[str | None] = "node_name"
    no_loss: ClassVar[str] = "keeps the disks; the command asks if guests are shut down"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/nodes/{node}/maintenance", (DRY_RUN,),
             summary="Put a node into maintenance, and move its instances off"),
    )  # fmt: skip


class OpNodeMaintenanceEnd(OpCode, frozen=True, kw_only=True, tag="OP_NODE_MAINTENANCE_END"):
    """End the maintenance of a node once it answers; `failback` brings the instances back that left it.

    Without maintenance, `failback` continues a return that stopped; without `failback`, what is left of it is forgotten.
    """

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    failback: Annotated[bool, Field("migrate the instances back that left the node")] = False
    wait: Annotated[int, Field(
        f"time for the node to answer, in seconds ({DEFAULT_WAIT_S})", metavar="SECONDS"
    )] = DEFAULT_WAIT_S  # fmt: skip

    summary_field: ClassVar[str | None] = "node_name"
    no_loss: ClassVar[str] = "moves instances with all their data"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", "/2/nodes/{node}/maintenance", (
            Parameter("failback", Value.FLAG, "migrate the instances back that left the node", "failback"),
            Parameter("wait", Value.INTEGER, "seconds for the node to answer", "wait"),
            DRY_RUN,
        ), summary="End the maintenance of a node", has_body=False),
    )  # fmt: skip
