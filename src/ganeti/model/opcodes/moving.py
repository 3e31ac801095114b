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
        the instance. If automatic recovery has marked the node offline, confirm that the host is off with
        'gnt-node fenced --confirm', unless its power is known to be off.
        """,
    )  # fmt: skip


class OpInstanceMove(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_MOVE"):
    """Copy an instance with its disks to another node and continue it there; its guest keeps running if possible."""

    target_node: Annotated[str, Field("target node", "-n --node", "NODE"), RefersTo.NODE]
    target_node_uuid: Annotated[str | None, RefersTo.NODE] = None
    compress: Annotated[str, Field(
        "compress the data of a stopped instance during the transfer", choices=COPIED
    ), RefersTo.NOTHING] = NONE  # fmt: skip
    ignore_consistency: IgnoreConsistency = False
    ignore_ipolicy: IgnoreIpolicy = False
    shutdown_timeout: ShutdownTimeout = DEFAULT_SHUTDOWN_TIMEOUT_S
    stop: Annotated[bool, Field(
        "shut the guest down during the copy, even if it could keep running"
    )] = False  # fmt: skip
    bandwidth: Annotated[int, Field(
        "limit of the data of each disk in MiB/s; 0 (the default): migration_bandwidth while the guest runs, else none",
        metavar="MIB"
    )] = 0  # fmt: skip

    no_loss: ClassVar[str] = "removes the old disks after they were copied"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/move", right=Right.OPERATE,
            summary="Move an instance with its disks to another node, while it runs if possible"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "move", (INSTANCE,), confirming=("force",),
        question=lambda op: f"Move instance {op.instance_name}?"
        + (" It is shut down meanwhile." if op.stop else " It is shut down meanwhile if it cannot move while it runs."),
        doc="""Copy an instance with its disks to another node, and continue it there.

        A running guest keeps running, as with 'gnt-instance migrate'. If it cannot, the job names the reason before it
        begins, shuts the guest down, copies the disks, and starts it on the other node; so does --stop. Mirrored disks
        first get a copy on the other node. A stopped instance stays stopped. 'gnt-instance modify -t' moves disks
        within a node.

        'gnt-job cancel --kill' ends the move: the guest continues on its node.
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
