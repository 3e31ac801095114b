"""What people are told of automatic recovery: each node and each protected instance, its state and why."""

from dataclasses import dataclass

from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.instance import InstanceState, InstanceWatch
from ganeti.recovery.node import NodeWatch


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
    state_s: float = 0.0
    """Seconds in its state; not longer than this master is the master."""
    is_off: bool = False
    """Its power is off, as a device or an administrator has confirmed."""


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
    state_s: float = 0.0
    """Seconds in its state; not longer than this master is the master."""


@dataclass(frozen=True, slots=True)
class RecoveryStatus:
    """Everything that recovery watches; empty lists while no instance is protected."""

    nodes: tuple[NodeStatus, ...] = ()
    instances: tuple[InstanceStatus, ...] = ()
    alarms: tuple[str, ...] = ()
    """What is not done automatically, each with the command for the administrator."""


def node_status(one: NodeWatch, now: float) -> NodeStatus:
    """Return what recovery knows of a node; the driver adds `why_unarmed`, which the node has said."""
    return NodeStatus(
        name=one.facts.name,
        state=one.state,
        why=one.why,
        methods=one.facts.methods,
        is_armed=one.is_armed,
        why_unarmed="",
        silent_s=max(now - one.silent_since, 0.0),
        in_maintenance=one.facts.in_maintenance,
        state_s=now - one.since,
        is_off=one.row.is_off,
    )


def instance_status(one: InstanceWatch, node: str, now: float, wall: float) -> InstanceStatus:
    """Return what recovery knows of an instance; `node` is the name of its node."""
    return InstanceStatus(
        name=one.facts.name,
        node=node,
        recovery=one.facts.recovery,
        priority=one.facts.priority,
        state=one.state,
        why=one.doubt or one.why or _unconfirmed(one),
        attempts=len(one.recent(wall)),
        state_s=now - one.since,
    )


def _unconfirmed(one: InstanceWatch) -> str:
    is_confirmed = one.facts.recovery is not Recovery.FAILOVER or one.facts.is_under_lease
    return "" if is_confirmed else "its node has not confirmed the protection yet"
