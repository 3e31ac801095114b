"""What people are told of automatic recovery: each node and each protected instance, its state and why."""

from dataclasses import dataclass

from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.instance import InstanceState


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node."""

    name: str
    state: NodeState
    why: str
    methods: tuple[FenceMethod, ...]
    is_armed: bool
    """Its watchdog was armed when it answered last."""
    why_unarmed: str
    silent_s: float
    """Seconds since its last answer."""
    in_maintenance: bool


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One protected instance."""

    name: str
    node: str
    recovery: Recovery
    priority: int
    state: InstanceState
    why: str
    attempts: int
    """Within its window."""


@dataclass(frozen=True, slots=True)
class RecoveryStatus:
    """Everything that recovery watches; empty lists while no instance is protected."""

    nodes: tuple[NodeStatus, ...] = ()
    instances: tuple[InstanceStatus, ...] = ()
    alarms: tuple[str, ...] = ()
    """What is not done automatically, each with the command for the administrator."""
