"""Opcodes that move instances to other nodes; live migration is in `instance.py`."""

from typing import Annotated, ClassVar

from ganeti.model.compression import COPIED, NONE
from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import (
    EarlyRelease,
    Iallocator,
    IgnoreConsistency,
    IgnoreIpolicy,
    MigrationMode,
    NonLive,
    NoRuntimeChanges,
    OpCode,
    ShutdownTimeout,
    TargetNode,
)
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, Cleanup, OnInstance
from ganeti.model.operation import DRY_RUN, INSTANCE, Command, Parameter, Rest, Right, Value


class OpInstanceFailover(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_FAILOVER"):
    """Stop an instance and start it on another node that has its data, even if its own node is dead."""

    target_node: TargetNode = None
    target_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    iallocator: Iallocator = None
    ignore_consistency: IgnoreConsistency = False
    ignore_ipolicy: IgnoreIpolicy = False
    cleanup: Cleanup = False
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S

    no_loss: ClassVar[str] = "keeps the disks; the command asks because the guest is shut down"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/failover", right=Right.OPERATE,
            summary="Fail an instance over to another node"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "failover", (INSTANCE,), confirming=("force",),
        question=lambda op: f"{'Clean up the broken migration of' if op.cleanup else 'Stop and fail over'}"
        f" instance {op.instance_name}?",
        doc="""Stop an instance and start it on another node that has its data.

        If the instance's node is dead, first make sure that the host is off, and mark it with 'gnt-node modify
        --offline yes'. Otherwise the failover is refused, because a node that does not answer may still run
        the instance.
        """,
    )  # fmt: skip


class OpInstanceMove(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_MOVE"):
    """Stop an instance, copy its disks to another node, and start it there."""

    target_node: Annotated[str, Field("target node", "-n --node", "NODE"), RefersTo.NODE]
    target_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    compress: Annotated[str, Field(
        "compress the data during the transfer", choices=COPIED
    ), RefersTo.NOTHING] = NONE  # fmt: skip
    ignore_consistency: IgnoreConsistency = False
    ignore_ipolicy: IgnoreIpolicy = False
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S

    no_loss: ClassVar[str] = "removes the old disks after they were copied"
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "move", (INSTANCE,), confirming=("force",),
        question=lambda op: f"Instance {op.instance_name} will be moved; it is shut down meanwhile. Continue?",
        doc="""Stop an instance, copy its disks to another node, and start it there.

        Use it for disks that only one node has. The guest is down during the copy. 'gnt-instance migrate' moves a
        running guest with such disks, and 'gnt-instance modify -t' moves disks within a node.
        """,
    )  # fmt: skip


class OnNode(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode that empties a node."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    iallocator: Iallocator = None

    summary_field: ClassVar[str | None] = "node_name"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpNodeMigrate(OnNode, frozen=True, kw_only=True, tag="OP_NODE_MIGRATE"):
    """Migrate all primary instances of a node by one job for each."""

    mode: MigrationMode = None
    live: NonLive = None
    target_node: TargetNode = None
    target_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    allow_runtime_changes: NoRuntimeChanges = True
    ignore_ipolicy: IgnoreIpolicy = False

    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/nodes/{node}/migrate", (
            Parameter("live", Value.FLAG, "the same as mode=live"),
            Parameter("mode", Value.TEXT, "live or non-live"),
            DRY_RUN,
        ), Right.OPERATE),
    )  # fmt: skip


class OpNodeEvacuate(OnNode, frozen=True, kw_only=True, tag="OP_NODE_EVACUATE"):
    """Move primary instances, secondary instances or both from a node, by one job for each."""

    mode: Annotated[str, RefersTo.NOTHING]
    remote_node: Annotated[
        str | None, Field("new secondary node", "! -n --new-secondary", "NODE"), RefersTo.NODE
    ] = None
    remote_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    early_release: EarlyRelease = False
    ignore_soft_errors: Annotated[
        bool | None, Field("ignore soft errors (such as an unhealthy node) when choosing nodes")
    ] = None

    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/nodes/{node}/evacuate", (DRY_RUN,), summary="Move instances away from a node"),
    )  # fmt: skip
