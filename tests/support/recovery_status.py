"""Automatic recovery for tests of what people see of it."""

from dataclasses import dataclass, field, replace
from typing import Any

from ganeti.model.objects import NodeUuid
from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.instance import InstanceState
from ganeti.recovery.status import InstanceStatus, NodeStatus, RecoveryStatus

_NODE = NodeStatus(
    name="node1.example.com",
    state=NodeState.HEALTHY,
    why="",
    methods=(FenceMethod.POWER, FenceMethod.WATCHDOG),
    is_armed=True,
    why_unarmed="",
    silent_s=1.24,
    in_maintenance=False,
    state_s=7300.0,
)
_INSTANCE = InstanceStatus(
    name="web1.example.com",
    node="node1.example.com",
    recovery=Recovery.FAILOVER,
    priority=50,
    state=InstanceState.PROTECTED,
    why="",
    attempts=0,
    state_s=7300.0,
)
ALARM = (
    "node node2.example.com is lost and not fenced: no fencing method is configured; once it is certainly off, run:"
    " gnt-node fenced --confirm node2.example.com"
)


def node_status(number: int, **changes: Any) -> NodeStatus:
    """Return the state of a healthy node with an armed watchdog, except for `changes`."""
    return replace(_NODE, name=f"node{number}.example.com", **changes)


def instance_status(name: str = "web1.example.com", **changes: Any) -> InstanceStatus:
    """Return the state of a protected instance that runs, except for `changes`."""
    return replace(_INSTANCE, name=name, **changes)


def stuck_status() -> RecoveryStatus:
    """Return a cluster in which node2 is lost, and nothing has fenced it."""
    stuck = node_status(
        2,
        state=NodeState.STUCK,
        why="no fencing method is configured",
        methods=(),
        is_armed=False,
        why_unarmed="no watchdog device",
        silent_s=250.0,
        state_s=215.0,
    )
    given_up = instance_status(
        "db1.example.com",
        state=InstanceState.GIVEN_UP,
        why="3 attempts within 3600 s; the last: its guest has crashed",
        attempts=3,
        state_s=30.0,
    )
    nodes = (node_status(3), stuck, node_status(1))
    return RecoveryStatus(nodes, (instance_status(), given_up), (ALARM,))


@dataclass
class FakeRecovery:
    """Automatic recovery that has this state, and remembers confirmations."""

    state: RecoveryStatus = field(default_factory=stuck_status)
    confirmed: list[tuple[NodeUuid, str]] = field(default_factory=list)

    def status(self) -> RecoveryStatus:
        return self.state

    async def confirm_fenced(self, node: NodeUuid, by: str) -> None:
        self.confirmed.append((node, by))
