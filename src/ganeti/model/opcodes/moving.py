"""Opcodes that put instances on other nodes, beside live migration (`instance.py`)."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, OnInstance


class OpInstanceFailover(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_FAILOVER"):
    """Stop an instance and start it on another node that has its data, also if its own node is dead."""

    target_node: str | None = None
    target_node_uuid: str | None = None
    iallocator: str | None = None
    ignore_consistency: bool = False
    ignore_ipolicy: bool = False
    cleanup: bool = False
    shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S


class OpInstanceMove(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_MOVE"):
    """Stop an instance, copy its disks to another node, and start it there."""

    target_node: str
    target_node_uuid: str | None = None
    compress: str = "none"
    ignore_consistency: bool = False
    ignore_ipolicy: bool = False
    shutdown_timeout: int = DEFAULT_SHUTDOWN_TIMEOUT_S


class OnNode(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode that empties a node."""

    node_name: str
    node_uuid: str | None = None
    iallocator: str | None = None

    summary_field: ClassVar[str | None] = "node_name"
    host_changing: ClassVar[bool] = False
    """It only submits jobs."""


class OpNodeMigrate(OnNode, frozen=True, kw_only=True, tag="OP_NODE_MIGRATE"):
    """Migrate all primary instances of a node: a job for each."""

    mode: str | None = None
    live: bool | None = None
    target_node: str | None = None
    target_node_uuid: str | None = None
    allow_runtime_changes: bool = True
    ignore_ipolicy: bool = False


class OpNodeEvacuate(OnNode, frozen=True, kw_only=True, tag="OP_NODE_EVACUATE"):
    """Take instances off a node: primaries, secondaries or both, a job for each."""

    mode: str
    remote_node: str | None = None
    remote_node_uuid: str | None = None
    early_release: bool = False
    ignore_soft_errors: bool | None = None
